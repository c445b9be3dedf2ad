"""Topologies of hosts and levels of switches."""

from __future__ import annotations

import numpy as np

from ..network import Ints, NodeKind
from ..topology import Routing
from .registry import Shape, preset
from .wiring import FAST, SLOW, Rates, Wiring


@preset("two-level", shape="HOSTSxRANKS", example="2x4", sizes=(2, 2), rates=(FAST, SLOW))
def two_level(n: int, shape: Shape | None, inside: Rates, outside: Rates) -> Wiring:
    """Return hosts: fast links to the host's switch, one slow link from it to the outer switch."""
    hosts, each = shape or _hosts(n)
    net = Wiring()
    rank = net.ranks(hosts * each, each=each)
    host = in_hosts(net, "host", hosts)
    net.link(rank, host[rank // each], inside)
    net.link(host, net.switches(["switch"]), outside)
    return net


@preset("rails", shape="HOSTSxRANKS", example="4x8", sizes=(2, 2), rates=(FAST, SLOW))
def rails(n: int, shape: Shape | None, inside: Rates, outside: Rates) -> Wiring:
    """Return hosts with a switch inside and a NIC a rank; the k-th NICs of all hosts share a rail.

    Rails meet in a spine, which has room for all of them.
    """
    hosts, each = shape or _hosts(n)
    net = Wiring()
    rank = net.ranks(hosts * each, each=each)
    net.link(rank, in_hosts(net, "nvswitch", hosts)[rank // each], inside)
    nic = add_rails(net, [f"nic{k}" for k in rank], hosts, outside)
    net.link(rank, nic, outside)
    return net


def in_hosts(net: Wiring, name: str, hosts: int) -> Ints:
    """Add a switch inside each host, and return their numbers."""
    inside = [f"host{k}" for k in range(hosts)]
    return net.add(NodeKind.HOST, (f"{name}{k}" for k in range(hosts)), inside)


def add_rails(net: Wiring, names: list[str], hosts: int, outside: Rates) -> Ints:
    """Add the NICs of hosts, which have equally many, and return their numbers.

    The k-th NICs of all hosts are linked to rail k, and rails to a spine.

    Args:
        net: The hosts.
        names: Names of the NICs in order of hosts.
        hosts: Number of hosts; one alone has no rails.
        outside: Rates of a NIC.
    """
    each = len(names) // hosts
    host = np.arange(len(names)) // each
    nic = net.add(NodeKind.NIC, names, [f"host{k}" for k in host])
    if hosts > 1:
        rail = net.switches(f"rail{k}" for k in range(each))
        net.link(nic, np.tile(rail, hosts), outside)
        if each > 1:
            net.link(rail, net.switches(["spine"]), outside, hosts)
    return nic


@preset(
    "leaf-spine", shape="LEAVESxSPINESxRANKS", example="4x2x8", sizes=(3, 3), rates=(FAST, FAST),
    exact=False, routing=Routing.ECMP,
)  # fmt: skip
def leaf_spine(n: int, shape: Shape | None, down: Rates, up: Rates) -> Wiring:
    """Return ranks on leaf switches, each of which is linked to every spine switch."""
    if shape is None:
        leaves, each = _hosts(n)
        shape = (leaves, max(1, each // 2), each)
    leaves, spines, each = shape
    net = Wiring()
    rank = net.ranks(leaves * each)
    leaf = net.switches(f"leaf{k}" for k in range(leaves))
    spine = net.switches(f"spine{k}" for k in range(spines))
    net.link(rank, leaf[rank // each], down)
    net.link(leaf[:, None], spine, up)
    return net


@preset(
    "fat-tree", shape="PORTSxOVERSUBSCRIPTION", example="4x1", sizes=(1, 2), exact=False,
    routing=Routing.ECMP,
)  # fmt: skip
def fat_tree(n: int, shape: Shape | None, rates: Rates) -> Wiring:
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
    net = Wiring()
    rank = net.ranks(ports * half * half * over)
    of_pods = [(pod, k) for pod in range(ports) for k in range(half)]
    edge = net.switches(f"edge{pod}.{k}" for pod, k in of_pods)
    middle = net.switches(f"agg{pod}.{k}" for pod, k in of_pods).reshape(ports, half)
    core = net.switches(f"core{k}" for k in range(half * half)).reshape(half, half)
    net.link(rank, edge[rank // (half * over)], rates)
    net.link(edge.reshape(ports, half, 1), middle[:, None, :], rates)
    net.link(middle[:, :, None], core, rates)
    return net


@preset(
    "dragonfly", shape="ROUTERSxRANKSxGLOBAL", example="4x2x2", sizes=(3, 3),
    rates=(FAST, FAST, FAST), exact=False,
)  # fmt: skip
def dragonfly(n: int, shape: Shape | None, down: Rates, local: Rates, far: Rates) -> Wiring:
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
    net = Wiring()
    rank = net.ranks(groups * a * p)
    router = net.switches(f"router{group}.{k}" for group in range(groups) for k in range(a))
    net.link(rank, router[rank // p], down)
    router = router.reshape(groups, a)
    net.link_all(router, local)
    net.expect(groups * (groups - 1) // 2)
    group, port = np.arange(groups)[:, None], np.arange(a * h)
    peer = (group + port + 1) % groups
    back = (group - peer - 1) % groups
    once = peer > group
    net.link(router[group, port // h][once], router[peer, back // h][once], far)
    return net


@preset(
    "dual-plane", shape="LEAVESxRANKS", example="2x8", sizes=(2, 2), exact=False,
    routing=Routing.ECMP,
)  # fmt: skip
def dual_plane(n: int, shape: Shape | None, rates: Rates) -> Wiring:
    """Return ranks whose NICs have a port in each of two planes of leaf switches and a spine.

    Source: K. Qian et al., "Alibaba HPN: a data center network for large language model training",
    SIGCOMM 2024 (two ports of a NIC on two leaf switches).
    """
    leaves, each = shape or _hosts(n)
    net = Wiring()
    rank = net.ranks(leaves * each)
    for plane in "ab":
        leaf = net.switches(f"leaf{k}{plane}" for k in range(leaves))
        net.link(rank, leaf[rank // each], rates)
        net.link(leaf, net.switches([f"spine{plane}"]), rates, each)
    return net


def _hosts(n: int) -> Shape:
    """Return a number of hosts, the fewest above one, and the ranks of each."""
    hosts = next((k for k in range(2, n) if n % k == 0), n)
    return hosts, n // hosts
