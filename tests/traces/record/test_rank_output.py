"""Lines of ranks: each whole, with its rank before it, and not a byte lost."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from chunkscope.traces.record import rank_output
from chunkscope.traces.record.rank_output import RankOutput


@contextmanager
def piped(target: int) -> Iterator[tuple[int, RankOutput]]:
    """Yield a descriptor to write into, and the output of rank 2 that reads from it."""
    source, into = os.pipe()
    try:
        yield into, RankOutput(source, target, b"[rank 2] ")
    finally:
        os.close(source)


@pytest.mark.parametrize(
    ("chunks", "expected"),
    [
        (["one\ntwo\n"], "[rank 2] one\n[rank 2] two\n"),
        (["on", "e\nt", "wo"], "[rank 2] one\n[rank 2] two\n"),
        (["", "\n\n"], "[rank 2] \n[rank 2] \n"),
        (["10%\r", "20%\r", "done\n"], "[rank 2] 10%\r[rank 2] 20%\r[rank 2] done\n"),
        (["dos\r", "\nend"], "[rank 2] dos\r\n[rank 2] end\n"),
        (["bar\r"], "[rank 2] bar\r"),
        ([], ""),
    ],
)
def test_lines(chunks: list[str], expected: str, tmp_path: os.PathLike[str]) -> None:
    path = os.path.join(tmp_path, "out")
    with open(path, "wb") as out, piped(out.fileno()) as (into, output):
        for chunk in filter(None, chunks):
            os.write(into, chunk.encode())
            assert output.pump()
        os.close(into)
        assert not output.pump()
    with open(path, "rb") as found:
        assert found.read().decode() == expected


def test_characters_are_never_cut(tmp_path: os.PathLike[str]) -> None:
    text = "ü€😀" * 3
    path = os.path.join(tmp_path, "out")
    with open(path, "wb") as out, piped(out.fileno()) as (into, output):
        for byte in text.encode():
            os.write(into, bytes([byte]))
            output.pump()
        os.close(into)
        output.pump()
    with open(path, "rb") as found:
        assert found.read().decode() == f"[rank 2] {text}\n"


@pytest.mark.parametrize("limit", [16, 17, 18, 19])
def test_an_endless_line_is_cut_between_characters(
    limit: int, tmp_path: os.PathLike[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rank_output, "LONGEST_LINE_BYTES", limit)
    text = "😀" * 40
    path = os.path.join(tmp_path, "out")
    with open(path, "wb") as out, piped(out.fileno()) as (into, output):
        for at in range(0, len(text.encode()), 3):
            os.write(into, text.encode()[at : at + 3])
            output.pump()
        os.close(into)
        output.pump()
    with open(path, "rb") as found:
        lines = found.read().decode().splitlines()
    assert len(lines) > 3
    assert "".join(line.removeprefix("[rank 2] ") for line in lines) == text
