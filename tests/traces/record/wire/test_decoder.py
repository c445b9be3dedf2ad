"""The tap's decoder, address rewriting and file, without any process."""

from __future__ import annotations

import json
import os
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chunkscope.traces.record.folder import claim_new
from chunkscope.traces.record.reader import read_recording
from chunkscope.traces.record.wire.decoder import (
    PREAMBLE,
    RECV_READY,
    SEND_READY,
    SEND_UNBOUND,
    Decoder,
)
from chunkscope.traces.record.wire.log import WireLog
from chunkscope.traces.record.wire.messages import Ends, Keep, Link
from chunkscope.traces.trace import Trace

SLOT = 4 << 56 | 7 << 24


def notice(opcode: int, slot: int, size: int) -> bytes:
    return PREAMBLE.pack(PREAMBLE.size, opcode, slot, 0, size, 0)


def sent(slot: int, payload: bytes) -> bytes:
    return PREAMBLE.pack(48 + len(payload), SEND_UNBOUND, slot, 0, len(payload), 0) + payload


def open_link(folder: Path, wire: str = "digest") -> tuple[Link, WireLog]:
    log = WireLog(folder, claim_new(folder))
    ends = Ends(log.group((4, 5), 2, "7"), (1, 0), 3)
    return Link(log, ends, Keep.of(wire)), log


def cell(trace: Trace, name: str, row: int) -> object:
    return trace.events[name].to_list()[row]


def read(link: Link, log: WireLog, folder: Path) -> Trace:
    link.close()
    log.close()
    return read_recording(folder)


@given(st.lists(st.integers(0, 250), max_size=12), st.data())
def test_any_cut(
    tmp_path_factory: pytest.TempPathFactory, cuts: list[int], data: st.DataObject
) -> None:
    """However the bytes are cut, the messages are the same; empty ones are messages, too."""
    folder = tmp_path_factory.mktemp("cut") / "run"
    link, log = open_link(folder)
    payloads = [b"", b"abcd", bytes(range(30))]
    forth = b"\x05" * 8 + b"".join(
        notice(SEND_READY, SLOT + k, len(p)) + sent(SLOT + k, p) for k, p in enumerate(payloads)
    )
    back = b"".join(notice(RECV_READY, SLOT + k, len(p)) for k, p in enumerate(payloads))
    decoder = Decoder(link, 0, 8)
    before = data.draw(st.booleans())  # the other direction has a thread of its own
    if before:
        Decoder(link, 1).feed(memoryview(back), 5)
    at = 0
    for time_ns, end in enumerate([*sorted(cuts), len(forth)], 10):
        decoder.feed(memoryview(forth)[at:end], time_ns)
        at = max(at, end)
    if not before:
        Decoder(link, 1).feed(memoryview(back), 5)
    trace = read(link, log, folder)
    sends = trace.where(kind="send")
    assert [cell(trace, "size_bytes", int(row)) for row in sends] == [0, 4, 30]
    kept = [trace.states_of(int(row)) for row in sends]
    assert [trace.states["data"].to_list()[int(states[0])] for states in kept] == payloads


def test_rows_of_a_message(tmp_path: Path) -> None:
    link, log = open_link(tmp_path)
    Decoder(link, 1).feed(memoryview(notice(SEND_READY, SLOT, 8)), 100)
    Decoder(link, 0).feed(memoryview(notice(RECV_READY, SLOT, 8)), 110)
    sender = Decoder(link, 1)
    sender.feed(memoryview(sent(SLOT, b"12345678")[:50]), 120)
    sender.feed(memoryview(sent(SLOT, b"12345678")[50:]), 130)
    trace = read(link, log, tmp_path)
    rows = {
        kind: {name: cell(trace, name, int(trace.where(kind=kind)[0])) for name in NAMES}
        for kind in ("send", "recv")
    }
    common = {"provenance": "wire", "t_start_ns": 120, "t_end_ns": 130, "attempt": 3}
    common |= {"tag": SLOT, "size_bytes": 8, "status": "ok", "group": 0}
    assert rows["send"] == common | {"rank": 4, "group_rank": 0, "place": 0, "peer": 5} | {
        "peer_group_rank": 1,
        "seq": 0,
        "t_issue_ns": 100,
    }
    assert rows["recv"] == common | {"rank": 5, "group_rank": 1, "place": 1, "peer": 4} | {
        "peer_group_rank": 0,
        "seq": 1,
        "t_issue_ns": 110,
    }
    assert trace.meta.groups[0].ranks == (4, 5)
    assert trace.meta.groups[0].ordinal == 2
    [tap] = trace.meta.processes
    assert tap.rank is None
    assert tap.closed


NAMES = ("provenance", "rank", "group", "group_rank", "place", "peer", "peer_group_rank", "tag")
NAMES += ("size_bytes", "status", "seq", "t_issue_ns", "t_start_ns", "t_end_ns", "attempt")


def test_what_nobody_received(tmp_path: Path) -> None:
    """An end that was not seen has no row; a payload that did not come whole has no state."""
    link, log = open_link(tmp_path)
    forth = notice(SEND_READY, 1, 8) + notice(SEND_READY, 2, 8) + sent(2, b"12345678")[:-1]
    Decoder(link, 0).feed(memoryview(forth), 5)
    Decoder(link, 1).feed(memoryview(notice(RECV_READY, 2, 8) + notice(RECV_READY, 3, 9)), 6)
    trace = read(link, log, tmp_path)
    found = sorted(
        (cell(trace, "tag", row), cell(trace, "kind", row), cell(trace, "status", row))
        for row in range(len(trace.events))
    )
    assert found == [
        (1, "send", "begun"),
        (2, "recv", "begun"),
        (2, "send", "begun"),
        (3, "recv", "begun"),
    ]
    assert len(trace.states) == 0


@pytest.mark.parametrize(
    ("wire", "size", "data", "first", "has_digest"),
    [
        ("digest", 65536, True, 0, False),
        ("digest", 65537, False, 64, True),
        ("whole", 200_000, True, 0, False),
        ("16", 17, False, 16, False),
        ("16", 16, True, 0, False),
        ("0", 5, False, 0, False),
    ],
)
def test_what_is_kept(
    tmp_path: Path, wire: str, size: int, data: bool, first: int, has_digest: bool
) -> None:
    payload = bytes(k * 7 % 251 for k in range(size))
    link, log = open_link(tmp_path, wire)
    Decoder(link, 0).feed(memoryview(notice(SEND_READY, 1, size)), 1)
    Decoder(link, 1).feed(memoryview(notice(RECV_READY, 1, size)), 1)
    decoder, stream = Decoder(link, 0), sent(1, payload)
    for at in range(0, len(stream), 1000):
        part = stream[at : at + 1000]
        if decoder.payload_left and not link.wants_payload(0):
            decoder.skip(len(part), 2)
        else:
            decoder.feed(memoryview(part), 2)
    trace = read(link, log, tmp_path)
    for row in range(2):
        cells = {name: trace.states[name].to_list()[row] for name in ("data", "first", "digest")}
        assert cells["data"] == (payload if data else None)
        assert (cells["first"] or b"") == payload[:first]
        assert cells["digest"] == (zlib.crc32(payload) if has_digest else None)


def test_other_bytes_pass_undecoded(tmp_path: Path) -> None:
    link, log = open_link(tmp_path)
    decoder = Decoder(link, 0)
    decoder.feed(memoryview(b"\x16\x03\x01" * 100), 1)
    assert decoder.is_lost
    assert len(read(link, log, tmp_path).events) == 0


def test_file_cut_anywhere_opens(tmp_path: Path) -> None:
    link, log = open_link(tmp_path / "run")
    for slot in range(3):
        Decoder(link, 0).feed(memoryview(notice(SEND_READY, slot, 4) + sent(slot, b"abcd")), 1)
        Decoder(link, 1).feed(memoryview(notice(RECV_READY, slot, 4)), 1)
    link.close()
    log.close()
    [path] = (tmp_path / "run").glob("wire-*.jsonl")
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        trace = read_recording(tmp_path / "run")
        complete = [json.loads(line) for line in whole[:size].split(b"\n")[:-1]]
        assert len(trace.events) >= 2 * sum(record["r"] == "message" for record in complete)


def test_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Payload bytes that the disk did not take are not there, though later ones are: no zeros."""
    folder = tmp_path / "run"
    link, log = open_link(folder, "whole")
    write, fails = os.pwrite, [True, False, True, False]

    def full(fd: int, data: bytes, at: int) -> int:
        if fails and fails.pop(0):
            raise OSError(28, "No space left on device")
        return write(fd, data, at)

    monkeypatch.setattr(os, "pwrite", full)
    payload = bytes(range(250)) * 400
    decoder, back = Decoder(link, 0), Decoder(link, 1)
    for slot in (1, 2, 3):  # of the first two the disk did not take a part
        data = notice(SEND_READY, slot, len(payload)) + sent(slot, payload)
        back.feed(memoryview(notice(RECV_READY, slot, len(payload))), 1)
        decoder.feed(memoryview(data[:50_000]), 2)
        decoder.feed(memoryview(data[50_000:]), 3)
    trace = read(link, log, folder)
    assert trace.events["tag"].to_list() == [1, 1, 2, 2, 3, 3]
    kept = trace.states["data"].to_list()
    events = trace.states["event"].to_list()
    assert [(row, data) for row, data in zip(events, kept, strict=True) if data is not None] == [
        (4, payload),
        (5, payload),
    ]
    assert capsys.readouterr().err.count("No space left") == 1
