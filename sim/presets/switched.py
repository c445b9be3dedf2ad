"""Topologies of hosts and levels of switches."""

from __future__ import annotations

import networkx as nx

from ..topology import NodeKind, Routing
from .parsing import FAST, SLOW, Rates, Shape, link, preset, ranks


@preset("two-level", shape="HOSTSxRANKS", example="2x4", sizes=(2, 2), rates=(FAST, SLOW))
def two_level(n: int, shape: Shape | None, inside: Rates, outside: Rates) -> nx.DiGraph:
    """Return hosts: fast links to the host's switch, one slow link from it to the outer switch."""
    hosts, each = shape or _hosts(n)
    graph = _in_hosts(hosts, each)
    for host in range(hosts):
        graph.add_node(f"host{host}", kind=NodeKind.HOST, host=f"host{host}")
    _switches(graph, ["switch"])
    for rank in range(hosts * each):
        link(graph, f"r{rank}", f"host{rank // each}", inside)
    for host in range(hosts):
        link(graph, f"host{host}", "switch", outside)
    return graph


@preset(
    "rails", shape="HOSTSxRANKS", example="4x8", sizes=(2, 2), rates=(FAST, SLOW),
)  # fmt: skip
def rails(n: int, shape: Shape | None, inside: Rates, outside: Rates) -> nx.DiGraph:
    """Return hosts with a switch inside and a NIC a rank; the k-th NICs of all hosts share a rail.

    Rails meet in a spine, which has room for all of them.
    """
    hosts, each = shape or _hosts(n)
    graph = _in_hosts(hosts, each)
    for host in range(hosts):
        graph.add_node(f"nvswitch{host}", kind=NodeKind.HOST, host=f"host{host}")
    for rank in range(hosts * each):
        link(graph, f"r{rank}", f"nvswitch{rank // each}", inside)
    nics = {f"r{rank}": f"nic{rank}" for rank in range(hosts * each)}
    add_rails(graph, nics, each, outside, outside)
    return graph


def add_rails(
    graph: nx.DiGraph, nics: dict[str, str], each: int, to_nic: Rates, outside: Rates
) -> None:
    """Give ranks their NICs, and link the k-th NICs of all hosts to rail k, and rails to a spine.

    Args:
        graph: The hosts.
        nics: Name of the NIC of each node that has one, in order of hosts.
        each: NICs of a host.
        to_nic: Rates from the node to its NIC.
        outside: Rates of a NIC.
    """
    several = len(nics) > each
    names = [f"rail{k}" for k in range(each)] if several else []
    _switches(graph, [*names, "spine"] if several and each > 1 else names)
    for at, (node, nic) in enumerate(nics.items()):
        if nic not in graph:
            graph.add_node(nic, kind=NodeKind.NIC, host=graph.nodes[node]["host"])
            if several:
                link(graph, nic, f"rail{at % each}", outside)
        link(graph, node, nic, to_nic)
    for name in names if each > 1 else []:
        link(graph, name, "spine", outside, len(nics) // each)


@preset(
    "leaf-spine", shape="LEAVESxSPINESxRANKS", example="4x2x8", sizes=(3, 3), rates=(FAST, FAST),
    exact=False, routing=Routing.ECMP,
)  # fmt: skip
def leaf_spine(n: int, shape: Shape | None, down: Rates, up: Rates) -> nx.DiGraph:
    """Return ranks on leaf switches, each of which is linked to every spine switch."""
    if shape is None:
        leaves, each = _hosts(n)
        shape = (leaves, max(1, each // 2), each)
    leaves, spines, each = shape
    graph = ranks(leaves * each)
    _switches(graph, [f"leaf{k}" for k in range(leaves)] + [f"spine{k}" for k in range(spines)])
    for rank in range(leaves * each):
        link(graph, f"r{rank}", f"leaf{rank // each}", down)
    for leaf in range(leaves):
        for spine in range(spines):
            link(graph, f"leaf{leaf}", f"spine{spine}", up)
    return graph


@preset(
    "fat-tree", shape="PORTSxOVERSUBSCRIPTION", example="4x1", sizes=(1, 2), exact=False,
    routing=Routing.ECMP,
)  # fmt: skip
def fat_tree(n: int, shape: Shape | None, rates: Rates) -> nx.DiGraph:
    """Return a three-level fat tree of switches with k ports: k^3/4 places in k pods.

    With oversubscription o an edge switch has o times as many places below as links above.

    Source: M. Al-Fares, A. Loukissas, A. Vahdat, "A scalable, commodity data center network
    architecture", SIGCOMM 2008.
    """
    least = next(k for k in range(2, 10_000, 2) if k**3 // 4 >= n)
    ports, over = (*(shape or (least,)), 1)[:2]
    if ports % 2:
        raise ValueError(f"switches of {ports} ports, expected an even number")
    half = ports // 2
    graph = ranks(ports * half * half * over)
    edges = [f"edge{pod}.{k}" for pod in range(ports) for k in range(half)]
    middle = [f"agg{pod}.{k}" for pod in range(ports) for k in range(half)]
    _switches(graph, [*edges, *middle, *(f"core{k}" for k in range(half * half))])
    for rank in range(len(edges) * half * over):
        link(graph, f"r{rank}", edges[rank // (half * over)], rates)
    for pod in range(ports):
        for a in range(half):
            for b in range(half):
                link(graph, f"edge{pod}.{a}", f"agg{pod}.{b}", rates)
                link(graph, f"agg{pod}.{a}", f"core{a * half + b}", rates)
    return graph


@preset(
    "dragonfly", shape="ROUTERSxRANKSxGLOBAL", example="4x2x2", sizes=(3, 3),
    rates=(FAST, FAST, FAST), exact=False,
)  # fmt: skip
def dragonfly(n: int, shape: Shape | None, down: Rates, local: Rates, far: Rates) -> nx.DiGraph:
    """Return a dragonfly: groups of a routers, all linked, with p ranks and h global links each.

    There are a h + 1 groups, and one global link between any two.

    Source: J. Kim, W. Dally, S. Scott, D. Abts, "Technology-driven, highly-scalable dragonfly
    topology", ISCA 2008.
    """
    if shape is None:  # balanced: a = 2p = 2h
        p = next(k for k in range(1, 1000) if 2 * k * k * (2 * k * k + 1) >= n)
        shape = (2 * p, p, p)
    a, p, h = shape
    groups = a * h + 1
    graph = ranks(groups * a * p)
    _switches(graph, [f"router{group}.{k}" for group in range(groups) for k in range(a)])
    for rank in range(groups * a * p):
        link(graph, f"r{rank}", f"router{rank // (a * p)}.{rank // p % a}", down)
    for group in range(groups):
        for one in range(a):
            for other in range(one + 1, a):
                link(graph, f"router{group}.{one}", f"router{group}.{other}", local)
        for port in range(a * h):
            peer = (group + port + 1) % groups
            if peer > group:
                back = (group - peer - 1) % groups
                link(graph, f"router{group}.{port // h}", f"router{peer}.{back // h}", far)
    return graph


@preset(
    "dual-plane", shape="LEAVESxRANKS", example="2x8", sizes=(2, 2), exact=False,
    routing=Routing.ECMP,
)  # fmt: skip
def dual_plane(n: int, shape: Shape | None, rates: Rates) -> nx.DiGraph:
    """Return ranks whose NICs have a port in each of two planes of leaf switches and a spine."""
    leaves, each = shape or _hosts(n)
    graph = ranks(leaves * each)
    for plane in "ab":
        _switches(graph, [f"leaf{k}{plane}" for k in range(leaves)] + [f"spine{plane}"])
    for rank in range(leaves * each):
        for plane in "ab":
            link(graph, f"r{rank}", f"leaf{rank // each}{plane}", rates)
    for leaf in range(leaves):
        for plane in "ab":
            link(graph, f"leaf{leaf}{plane}", f"spine{plane}", rates, each)
    return graph


def _hosts(n: int) -> Shape:
    """Return a number of hosts, the fewest above one, and the ranks of each."""
    hosts = next((k for k in range(2, n) if n % k == 0), n)
    return hosts, n // hosts


def _in_hosts(hosts: int, each: int) -> nx.DiGraph:
    graph = nx.DiGraph()
    for rank in range(hosts * each):
        graph.add_node(f"r{rank}", kind=NodeKind.RANK, host=f"host{rank // each}")
    return graph


def _switches(graph: nx.DiGraph, names: list[str]) -> None:
    graph.add_nodes_from(names, kind=NodeKind.SWITCH, host=None)
