"""What a rank reads of others through the tapped store: addresses, and who connects to whom."""

from __future__ import annotations

import os
import socket
import struct
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402

from chunkscope.traces.record.wire.client import (  # noqa: E402
    Address,
    TappedStore,
    WireHooks,
    parse,
    rewritten,
)


def blob(family: int, host: str, port: int, scope: int = 0) -> bytes:
    """Return what a rank of gloo tells of itself."""
    name = b"some-host"
    address = struct.pack("=H", family) + struct.pack("!H", port)
    if family == socket.AF_INET:
        address += socket.inet_pton(family, host)
    else:
        address += bytes(4) + socket.inet_pton(family, host) + struct.pack("=I", scope)
    address = address.ljust(128, b"\0") + struct.pack("=q", -1)
    pairs = struct.pack("=3q", 5, 6, 7)
    return struct.pack("=Q", len(name)) + name + struct.pack("=Q", len(address)) + address + pairs


@pytest.mark.parametrize(
    ("family", "host", "scope", "nothing"),
    [
        (socket.AF_INET, "10.1.2.3", 0, "0.0.0.0"),
        (socket.AF_INET6, "fe80::1:2", 3, "::"),
    ],
)
def test_rewriting_changes_the_address_alone(
    family: int, host: str, scope: int, nothing: str
) -> None:
    before = blob(family, host, 0x1234, scope)
    address = parse(before)
    assert address is not None
    assert address.target[:2] == [host, 0x1234]
    assert address.target[3:] == ([] if family == socket.AF_INET else [scope])
    assert rewritten(before, address, 77) == blob(family, nothing, 77)


@pytest.mark.parametrize("text", [b"", b"abc", b"\xff" * 8, b"\xff" * 300, bytes(400)])
def test_other_values_are_left_alone(text: bytes) -> None:
    assert parse(text) is None


def store_of(own: bytes, peers: dict[int, bytes], rank: int) -> tuple[Any, list[int]]:
    base = dist.HashStore()
    for peer, value in peers.items():
        base.set(f"0/{peer}", value)
    asked: list[int] = []

    def listen(peer: int, address: Address) -> int:
        asked.append(peer)
        return 999

    store = TappedStore(base, rank, listen)
    store.set(f"0/{rank}", own)
    assert base.get(f"0/{rank}") == own  # others read the truth
    return store, asked


def test_the_larger_address_connects() -> None:
    """Ports are compared as they stand in memory: 0x0201 is read as 0x0102."""
    me = blob(socket.AF_INET, "10.0.0.2", 0x0302)
    smaller = blob(socket.AF_INET, "10.0.0.1", 0xFFFF)
    larger = blob(socket.AF_INET, "10.0.0.3", 1)
    port_larger = blob(socket.AF_INET, "10.0.0.2", 0x0103)
    port_smaller = blob(socket.AF_INET, "10.0.0.2", 0x0401)
    store, asked = store_of(me, {0: smaller, 2: larger, 3: port_larger, 4: port_smaller}, 1)
    found = store.multi_get([f"0/{peer}" for peer in (0, 2, 3, 4)])
    assert found == [
        blob(socket.AF_INET, "0.0.0.0", 999),
        larger,
        port_larger,
        blob(socket.AF_INET, "0.0.0.0", 999),
    ]
    assert asked == [0, 4]
    assert store.get("0/1") == me


def test_other_keys_go_through() -> None:
    store, asked = store_of(blob(socket.AF_INET, "10.0.0.2", 1), {}, 1)
    store.set("7", b"seven")
    assert store.get("7") == b"seven"
    assert store.add("count", 2) == 2
    assert store.check(["7"])
    assert not store.check(["8"])
    assert store.compare_set("7", b"seven", b"eight") == b"eight"
    store.wait(["7"])
    assert store.delete_key("7")
    assert asked == []


def test_trouble_is_one_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    base = dist.HashStore()
    peer = blob(socket.AF_INET, "10.0.0.1", 1)
    base.set("0/0", peer)

    def listen(peer: int, address: Address) -> int:
        raise ConnectionRefusedError(f"no tap here, process {os.getpid()}")

    store = TappedStore(base, 1, listen)
    store.set("0/1", blob(socket.AF_INET, "10.0.0.2", 1))
    with pytest.warns(RuntimeWarning, match="a connection is not tapped: no tap here"):
        assert store.get("0/0") == peer
    assert store.get("0/0") == peer


def test_without_a_tap_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHUNKSCOPE_WIRE", "digest")
    monkeypatch.delenv("CHUNKSCOPE_TAP", raising=False)
    hooks = WireHooks([])
    with pytest.warns(RuntimeWarning, match="no tap runs"):
        hooks.patch()
    hooks.unpatch()
