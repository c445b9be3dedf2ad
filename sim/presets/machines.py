"""Machines that can be bought, by name: ``dgx-h100``, or four of them, ``dgx-h100x4``.

Rates are those of the data sheets, each way. Latencies are those of NCCL's model for its protocol
LL: 0.6 µs a hop over NVLink and Infinity Fabric, 1 µs over PCIe, 2.7 µs over the network.

Source: NVIDIA, "DGX-1 with Tesla V100 system architecture", "DGX A100", "DGX H100" and "DGX B200"
data sheets, "GB200 NVL72"; AMD, "Instinct MI300X" data sheet; OLCF, "Frontier user guide" (MI250X);
NCCL, src/graph/tuning.cc.
"""

from __future__ import annotations

from collections.abc import Callable

import networkx as nx

from ..topology import NodeKind
from .parsing import Rates, Shape, link, preset
from .switched import add_rails

# Pairs of GPUs of a machine, by the number of links between them.
Pairs = dict[int, tuple[tuple[int, int], ...]]

# A way from GPU to GPU is two links where a switch lies between, one where none does.
_NVLINK_HOP_NS, _PCIE_HOP_NS, _NET_HOP_NS = 600.0, 1000.0, 2700.0
_PCIE3, _PCIE4, _PCIE5 = (Rates(rate * 1e9, _PCIE_HOP_NS / 2) for rate in (15.75, 31.5, 63))

# DGX-1 V100: links between pairs of GPUs; the hybrid cube mesh. 25 GB/s a link.
_CUBE_MESH: Pairs = {
    1: ((0, 1), (0, 2), (1, 3), (2, 6), (3, 7), (4, 5), (4, 6), (5, 7)),
    2: ((0, 3), (0, 4), (1, 2), (1, 5), (2, 3), (4, 7), (5, 6), (6, 7)),
}
# MI250X: links between the eight dies of four packages. 50 GB/s a link.
_MI250X: Pairs = {
    1: ((0, 2), (1, 3), (4, 6), (5, 7)),
    2: ((0, 6), (1, 5), (2, 4), (3, 7)),
    4: ((0, 1), (2, 3), (4, 5), (6, 7)),
}


def _net(gbit_s: float) -> Rates:
    """Return the rates of a NIC; its way to the GPU is part of the hop."""
    return Rates(gbit_s / 8 * 1e9, (_NET_HOP_NS - _PCIE_HOP_NS) / 2)


def _machine(name: str) -> Callable[[Callable[..., nx.DiGraph]], Callable[..., nx.DiGraph]]:
    return preset(name, shape="MACHINES", example="2", sizes=(1, 1), rates=(), exact=False)


def _copies(shape: Shape | None, n: int, each: int) -> int:
    return shape[0] if shape else max(1, -(-n // each))


def _gpus(machines: int, each: int) -> nx.DiGraph:
    graph = nx.DiGraph()
    for rank in range(machines * each):
        graph.add_node(f"r{rank}", kind=NodeKind.RANK, host=f"host{rank // each}")
    return graph


def _with_nics(graph: nx.DiGraph, machines: int, nics: int, pcie: Rates, net: Rates) -> nx.DiGraph:
    """Return the graph with NICs, each shared by neighbouring GPUs, on as many rails."""
    gpus = [node for node, kind in graph.nodes(data="kind") if kind == NodeKind.RANK]
    users: dict[str, list[str]] = {}
    for at, gpu in enumerate(gpus):
        machine, own = divmod(at, len(gpus) // machines)
        users.setdefault(f"nic{machine}.{own * nics * machines // len(gpus)}", []).append(gpu)
    add_rails(graph, {first: nic for nic, (first, *_) in users.items()}, nics, pcie, net)
    for nic, (_, *others) in users.items():
        for gpu in others:
            link(graph, gpu, nic, pcie)
    return graph


def _nvswitch(
    n: int, shape: Shape | None, each: int, nvlink_GBps: float, pcie: Rates, net: Rates
) -> nx.DiGraph:
    """Return machines in which every GPU is linked to NVSwitches, drawn as one, and has a NIC."""
    machines = _copies(shape, n, each)
    graph = _gpus(machines, each)
    for machine in range(machines):
        graph.add_node(f"nvswitch{machine}", kind=NodeKind.HOST, host=f"host{machine}")
    for rank in range(machines * each):
        rates = Rates(nvlink_GBps * 1e9, _NVLINK_HOP_NS / 2)
        link(graph, f"r{rank}", f"nvswitch{rank // each}", rates)
    return _with_nics(graph, machines, each, pcie, net)


def _direct(
    n: int,
    shape: Shape | None,
    pairs: Pairs,
    rate_GBps: float,
    nics: int,
    pcie: Rates,
    net: Rates,
) -> nx.DiGraph:
    """Return machines of eight GPUs of which pairs are linked, by one link or more."""
    machines = _copies(shape, n, 8)
    graph = _gpus(machines, 8)
    rates = Rates(rate_GBps * 1e9, _NVLINK_HOP_NS)
    for machine in range(machines):
        for times, linked in pairs.items():
            for a, b in linked:
                link(graph, f"r{8 * machine + a}", f"r{8 * machine + b}", rates, times)
    return _with_nics(graph, machines, nics, pcie, net)


@_machine("dgx1-v100")
def dgx1_v100(n: int, shape: Shape | None) -> nx.DiGraph:
    """Return DGX-1 machines: 8 V100 in a hybrid cube mesh of NVLink 2, four EDR NICs."""
    return _direct(n, shape, _CUBE_MESH, 25, 4, _PCIE3, _net(100))


@_machine("dgx-a100")
def dgx_a100(n: int, shape: Shape | None) -> nx.DiGraph:
    """Return DGX A100 machines: 8 A100 on NVSwitch, 300 GB/s a GPU; a 200 Gbit/s NIC each."""
    return _nvswitch(n, shape, 8, 300, _PCIE4, _net(200))


@_machine("dgx-h100")
def dgx_h100(n: int, shape: Shape | None) -> nx.DiGraph:
    """Return DGX H100 machines: 8 H100 on NVSwitch, 450 GB/s a GPU; a 400 Gbit/s NIC each."""
    return _nvswitch(n, shape, 8, 450, _PCIE5, _net(400))


@_machine("dgx-b200")
def dgx_b200(n: int, shape: Shape | None) -> nx.DiGraph:
    """Return DGX B200 machines: 8 B200 on NVSwitch, 900 GB/s a GPU; a 400 Gbit/s NIC each."""
    return _nvswitch(n, shape, 8, 900, _PCIE5, _net(400))


@_machine("nvl72")
def nvl72(n: int, shape: Shape | None) -> nx.DiGraph:
    """Return racks of 72 GPUs on one NVLink domain, 900 GB/s a GPU; a 400 Gbit/s NIC each."""
    return _nvswitch(n, shape, 72, 900, _PCIE5, _net(400))


@_machine("mi250x")
def mi250x(n: int, shape: Shape | None) -> nx.DiGraph:
    """Return machines of four MI250X, 8 dies on Infinity Fabric; a 200 Gbit/s NIC a package."""
    return _direct(n, shape, _MI250X, 50, 4, _PCIE4, _net(200))


@_machine("mi300x")
def mi300x(n: int, shape: Shape | None) -> nx.DiGraph:
    """Return machines of 8 MI300X, each linked to every other; a 400 Gbit/s NIC each."""
    pairs: Pairs = {1: tuple((a, b) for a in range(8) for b in range(a + 1, 8))}
    return _direct(n, shape, pairs, 64, 8, _PCIE5, _net(400))


@_machine("pcie-x8")
def pcie(n: int, shape: Shape | None) -> nx.DiGraph:
    """Return boxes of 8 GPUs on PCIe 4: two CPUs, two PCIe switches each, two GPUs on each."""
    machines = _copies(shape, n, 8)
    graph = _gpus(machines, 8)
    for machine in range(machines):
        about = {"kind": NodeKind.HOST, "host": f"host{machine}"}
        graph.add_nodes_from([f"cpu{machine}.{k}" for k in range(2)], **about)
        graph.add_nodes_from([f"plx{machine}.{k}" for k in range(4)], **about)
        for own in range(8):
            link(graph, f"r{8 * machine + own}", f"plx{machine}.{own // 2}", _PCIE4)
        for k in range(4):
            link(graph, f"plx{machine}.{k}", f"cpu{machine}.{k // 2}", _PCIE4)
        # Two UPI links of 20.8 GB/s.
        upi = Rates(41.6e9, _PCIE_HOP_NS / 2)
        link(graph, f"cpu{machine}.0", f"cpu{machine}.1", upi)
    nics = {f"cpu{machine}.0": f"nic{machine}" for machine in range(machines)}
    add_rails(graph, nics, 1, _PCIE4, _net(100))
    return graph
