"""Machines that can be bought, by name: ``dgx-h100``, or four of them, ``dgx-h100x4``.

Rates are those of the makers' data sheets, each way. Latencies are those of NCCL's model for its
protocol LL (src/graph/tuning.cc, 2.30): 0.6 µs a hop over NVLink and Infinity Fabric, 1 µs over
PCIe, 2.7 µs over the network. A hop is from GPU to GPU: two links where a switch lies between, one
where none does. What a real machine reaches is less; `chunkscope fit` measures it.

Source: NCCL 2.30, src/graph/tuning.cc (latencies); PCI-SIG, "PCI Express Base Specification",
revisions 3.0 to 5.0 (16 lanes of 8, 16 and 32 GT/s, 128 of 130 bits); each machine's own below.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..network import Ints, NodeKind
from .registry import Builder, Shape, preset
from .switched import add_rails, in_hosts
from .wiring import Rates, Wiring

# Pairs of GPUs of a machine, by the number of links between them.
Pairs = dict[int, tuple[tuple[int, int], ...]]

_NVLINK_HOP_NS, _PCIE_HOP_NS, _NET_HOP_NS = 600.0, 1000.0, 2700.0
_PCIE3, _PCIE4, _PCIE5 = (Rates(rate * 1e9, _PCIE_HOP_NS / 2) for rate in (15.75, 31.5, 63))
_UPI = Rates(2 * 20.8e9, _PCIE_HOP_NS / 2)

# DGX-1 V100: the hybrid cube mesh.
_CUBE_MESH: Pairs = {
    1: ((0, 1), (0, 2), (1, 3), (2, 6), (3, 7), (4, 5), (4, 6), (5, 7)),
    2: ((0, 3), (0, 4), (1, 2), (1, 5), (2, 3), (4, 7), (5, 6), (6, 7)),
}
# MI250X: eight dies, two a package.
_MI250X: Pairs = {
    1: ((0, 2), (1, 3), (4, 6), (5, 7)),
    2: ((0, 6), (1, 5), (2, 4), (3, 7)),
    4: ((0, 1), (2, 3), (4, 5), (6, 7)),
}
_MI300X: Pairs = {1: tuple((a, b) for a in range(8) for b in range(a + 1, 8))}


def _net(gbit_s: float) -> Rates:
    """Return the rates of a NIC; its way to the GPU is part of the hop."""
    return Rates(gbit_s / 8 * 1e9, (_NET_HOP_NS - _PCIE_HOP_NS) / 2)


def _machine(name: str) -> Callable[[Builder], Builder]:
    return preset(name, shape="MACHINES", example="2", sizes=(1, 1), rates=(), exact=False)


def _gpus(n: int, shape: Shape | None, each: int) -> tuple[Wiring, int, Ints]:
    """Return machines of so many GPUs: how many there are, and the GPUs, (machines, each)."""
    machines = shape[0] if shape else -(-n // each)
    net = Wiring()
    return net, machines, net.ranks(machines * each, each=each).reshape(machines, each)


def _add_nics(net: Wiring, gpu: Ints, each: int, pcie: Rates, network: Rates) -> None:
    """Add so many NICs a machine, each shared by neighbouring GPUs, on as many rails."""
    machines, gpus = gpu.shape
    names = [f"nic{machine}.{k}" for machine in range(machines) for k in range(each)]
    nic = add_rails(net, names, machines, network).reshape(machines, each)
    net.link(gpu, nic[:, np.arange(gpus) * each // gpus], pcie)


def _nvswitch(
    n: int, shape: Shape | None, each: int, nvlink_GBps: float, pcie: Rates, network: Rates
) -> Wiring:
    """Return machines in which every GPU is linked to NVSwitches, drawn as one, and has a NIC."""
    net, machines, gpu = _gpus(n, shape, each)
    switch = in_hosts(net, "nvswitch", machines)
    net.link(gpu, switch[:, None], Rates(nvlink_GBps * 1e9, _NVLINK_HOP_NS / 2))
    _add_nics(net, gpu, each, pcie, network)
    return net


def _direct(
    n: int,
    shape: Shape | None,
    pairs: Pairs,
    link_GBps: float,
    nics: int,
    pcie: Rates,
    network: Rates,
) -> Wiring:
    """Return machines of eight GPUs of which pairs are linked, by one link or more."""
    net, _, gpu = _gpus(n, shape, 8)
    rates = Rates(link_GBps * 1e9, _NVLINK_HOP_NS)
    for times, linked in pairs.items():
        a, b = np.transpose(linked)
        net.link(gpu[:, a], gpu[:, b], rates, times)
    _add_nics(net, gpu, nics, pcie, network)
    return net


@_machine("dgx1-v100")
def dgx1_v100(n: int, shape: Shape | None) -> Wiring:
    """Return DGX-1 machines: 8 V100 in a hybrid cube mesh of NVLink 2, four EDR NICs.

    Source: NVIDIA, "DGX-1 with Tesla V100 System Architecture", white paper WP-08437, 2017 (six
    NVLinks a GPU, 25 GB/s each way a link).
    """
    return _direct(n, shape, _CUBE_MESH, 25, 4, _PCIE3, _net(100))


@_machine("dgx-a100")
def dgx_a100(n: int, shape: Shape | None) -> Wiring:
    """Return DGX A100 machines: 8 A100 on NVSwitch, 300 GB/s a GPU; a 200 Gbit/s NIC each.

    Source: NVIDIA, "DGX A100" data sheet, 2020 (twelve NVLinks a GPU, 25 GB/s each way a link).
    """
    return _nvswitch(n, shape, 8, 12 * 25, _PCIE4, _net(200))


@_machine("dgx-h100")
def dgx_h100(n: int, shape: Shape | None) -> Wiring:
    """Return DGX H100 machines: 8 H100 on NVSwitch, 450 GB/s a GPU; a 400 Gbit/s NIC each.

    Source: NVIDIA, "DGX H100" data sheet, 2022 (18 NVLinks a GPU, 25 GB/s each way a link).
    """
    return _nvswitch(n, shape, 8, 18 * 25, _PCIE5, _net(400))


@_machine("dgx-b200")
def dgx_b200(n: int, shape: Shape | None) -> Wiring:
    """Return DGX B200 machines: 8 B200 on NVSwitch, 900 GB/s a GPU; a 400 Gbit/s NIC each.

    Source: NVIDIA, "DGX B200" data sheet, 2024 (18 NVLinks a GPU, 50 GB/s each way a link).
    """
    return _nvswitch(n, shape, 8, 18 * 50, _PCIE5, _net(400))


@_machine("nvl72")
def nvl72(n: int, shape: Shape | None) -> Wiring:
    """Return racks of 72 GPUs on one NVLink domain, 900 GB/s a GPU; a 400 Gbit/s NIC each.

    Source: NVIDIA, "GB200 NVL72" data sheet, 2024 (18 NVLinks a GPU, 50 GB/s each way a link).
    """
    return _nvswitch(n, shape, 72, 18 * 50, _PCIE5, _net(400))


@_machine("mi250x")
def mi250x(n: int, shape: Shape | None) -> Wiring:
    """Return machines of four MI250X, 8 dies on Infinity Fabric; a 200 Gbit/s NIC a package.

    Links of 50 GB/s each way: four within a package, two or one between packages, as in the nodes
    of Frontier and LUMI (HPE Cray EX235a).

    Source: OLCF, "Frontier User Guide" (200, 100 and 50 GB/s; Slingshot NICs); ROCm RCCL,
    src/graph/rome_models.cc, model 63 (which dies are linked, and which have a NIC); C. Pearson,
    "Interconnect Bandwidth Heterogeneity on AMD MI250x and Infinity Fabric", arXiv 2302.14827,
    2023 (how many links each pair has).
    """
    return _direct(n, shape, _MI250X, 50, 4, _PCIE4, _net(200))


@_machine("mi300x")
def mi300x(n: int, shape: Shape | None) -> Wiring:
    """Return machines of 8 MI300X, each linked to every other; a 400 Gbit/s NIC each.

    Source: AMD, "Instinct MI300X Platform" data sheet, 2023 (896 GB/s a GPU, both ways, over seven
    links).
    """
    return _direct(n, shape, _MI300X, 64, 8, _PCIE5, _net(400))


@_machine("pcie-x8")
def pcie(n: int, shape: Shape | None) -> Wiring:
    """Return boxes of 8 GPUs on PCIe 4: two CPUs (NUMA nodes), two switches a CPU, two GPUs each.

    GPUs of different CPUs meet over two UPI links between them; the NIC, of 100 Gbit/s, is on the
    first CPU.

    Source: Intel, "Xeon Scalable Platform" product brief, 2017 (UPI: 10.4 GT/s, 20.8 GB/s each way
    a link); the box itself is nobody's, its shape is common.
    """
    net, machines, gpu = _gpus(n, shape, 8)
    host = [f"host{k}" for k in range(machines)]
    cpu, plx = (
        net.add(
            NodeKind.HOST,
            (f"{name}{machine}.{k}" for machine in range(machines) for k in range(count)),
            [each for each in host for _ in range(count)],
        ).reshape(machines, count)
        for name, count in (("cpu", 2), ("plx", 4))
    )
    net.link(gpu, np.repeat(plx, 2, axis=1), _PCIE4)
    net.link(plx, np.repeat(cpu, 2, axis=1), _PCIE4)
    net.link(cpu[:, 0], cpu[:, 1], _UPI)
    nic = add_rails(net, [f"nic{machine}" for machine in range(machines)], machines, _net(100))
    net.link(cpu[:, 0], nic, _PCIE4)
    return net
