"""Connections through the tap, in this process: what comes in goes out, and what cannot, breaks."""

from __future__ import annotations

import resource
import socket
import threading
from pathlib import Path

import pytest

from chunkscope.traces.record.folder import claim_new
from chunkscope.traces.record.wire import relay
from chunkscope.traces.record.wire.decoder import PREAMBLE, SEND_UNBOUND
from chunkscope.traces.record.wire.log import WireLog
from chunkscope.traces.record.wire.messages import Ends, Keep, Link
from chunkscope.traces.record.wire.proxy import has_room
from chunkscope.traces.record.wire.relay import Relay

LIMIT_S = 60


def open_relay(folder: Path, port: int) -> tuple[Relay, socket.socket]:
    """Return a relay to a port, and the end at which a rank would be."""
    log = WireLog(folder, claim_new(folder))
    link = Link(log, Ends(log.group((0, 1), 0, "0"), (1, 0), 0), Keep.of("64"))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        rank = socket.create_connection(listener.getsockname(), LIMIT_S)
        accepted, _ = listener.accept()
    return Relay(accepted, socket.AF_INET, ("127.0.0.1", port), link), rank


def test_peer_that_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A rank learns soon, by a broken connection, that nobody listens where it connects."""
    monkeypatch.setattr(relay, "DIAL_AGAIN_S", 0.0)
    monkeypatch.setattr(relay, "DIAL_FOR_S", float("inf"))
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # bound and not listening: refuses
        port = unused.getsockname()[1]
        one, rank = open_relay(tmp_path / "run", port)
        with rank:
            rank.sendall(bytes(8))
            one.run()
            with pytest.raises(ConnectionResetError):
                rank.recv(1)
    assert f"cannot reach a rank at 127.0.0.1 port {port}" in capsys.readouterr().err


def test_no_descriptors_for_a_pipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Long payloads that nobody looks at go through where the system gives no pipe."""

    def none() -> relay.Pipe:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(relay, "Pipe", none)
    payload = bytes(range(256)) * 1000
    sent = bytes(8) + PREAMBLE.pack(48 + len(payload), SEND_UNBOUND, 5, 0, len(payload), 0)
    with socket.create_server(("127.0.0.1", 0)) as peer:
        one, rank = open_relay(tmp_path / "run", peer.getsockname()[1])
        thread = threading.Thread(target=one.run)
        thread.start()
        accepted, _ = peer.accept()
        with accepted, accepted.makefile("rb") as file, rank:
            writer = threading.Thread(target=rank.sendall, args=(sent + payload,))
            writer.start()
            assert file.read(len(sent) + len(payload)) == sent + payload
            writer.join()
        thread.join(LIMIT_S)
    assert not thread.is_alive()


@pytest.mark.parametrize(("wire", "most"), [("digest", 39), ("64", 13)])
def test_room(monkeypatch: pytest.MonkeyPatch, wire: str, most: int) -> None:
    """No pair is promised a place that the limit of open files does not leave."""
    monkeypatch.setattr(resource, "getrlimit", lambda what: (110, 110))
    assert has_room(most - 1, Keep.of(wire))
    assert not has_room(most, Keep.of(wire))
