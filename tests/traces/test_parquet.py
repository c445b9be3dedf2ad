"""The Parquet form: one table that anything reads, and damage is never a crash."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import chunkscope
from chunkscope.errors import TraceFormatError
from chunkscope.traces.schema import EVENTS
from chunkscope.traces.trace import Meta, Trace, encode

SMALL = Trace.build(
    {"kind": ["send", "recv"], "provenance": ["executed"] * 2, "rank": [0, None], "slot": [3, 4]},
    {
        "event": [1, 1],
        "dtype": ["float32"] * 2,
        "shape": [[2], [0]],
        "data": [encode([1, 2], "float32"), b""],
    },
    Meta(world_size=2, notes=("a note",)),
)


def rewritten(path: Path, table: pa.Table) -> Path:
    pq.write_table(table, path)
    return path


@pytest.fixture
def small(tmp_path: Path) -> Path:
    chunkscope.write(SMALL, tmp_path / "t.parquet")
    return tmp_path / "t.parquet"


def test_any_reader_of_parquet_reads_it(small: Path) -> None:
    table = pq.read_table(small)
    assert table.column_names == [*(spec.name for spec in EVENTS), "states"]
    assert table["kind"].to_pylist() == ["send", "recv"]
    assert table["rank"].to_pylist() == [0, None]
    assert table["states"].to_pylist()[0] == []
    assert [state["data"] for state in table["states"].to_pylist()[1]] == [b"\0\0\x80?\0\0\0@", b""]
    assert b'"world_size":2' in table.schema.metadata[b"chunkscope"]


def test_it_is_written_the_same_every_time(small: Path, tmp_path: Path) -> None:
    chunkscope.write(chunkscope.read(small), tmp_path / "again.parquet")
    assert small.read_bytes() == (tmp_path / "again.parquet").read_bytes()


def test_several_row_groups_and_plain_text_columns_read_the_same(tmp_path: Path) -> None:
    n = 300
    trace = Trace.build(
        {
            "kind": ["send", "recv"] * (n // 2),
            "provenance": ["executed"] * n,
            "error": [None if k % 3 else str(k) for k in range(n)],
        },
        {"event": list(range(n)), "first": [bytes([k % 7] * (k % 5)) for k in range(n)]},
    )
    chunkscope.write(trace, tmp_path / "t.parquet")
    table = pq.read_table(tmp_path / "t.parquet")
    at = table.column_names.index("error")
    table = table.set_column(at, "error", table["error"].cast(pa.string()))
    pq.write_table(table, tmp_path / "u.parquet", row_group_size=70)
    assert chunkscope.read(tmp_path / "u.parquet") == trace


def test_a_large_trace_is_written_in_groups_of_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chunkscope.traces.parquet._GROUP_BYTES", 64)
    trace = Trace.build(
        {"kind": ["send"] * 9, "provenance": ["executed"] * 9},
        {"event": [1, 1, 2, 3, 8], "data": [bytes(n) for n in (10, 50, 30, 200, 1)]},
    )
    chunkscope.write(trace, tmp_path / "t.parquet")
    assert pq.ParquetFile(tmp_path / "t.parquet").num_row_groups > 2
    assert chunkscope.read(tmp_path / "t.parquet") == trace


def test_a_missing_column_reads_as_nulls(small: Path) -> None:
    table = pq.read_table(small).drop_columns(["slot", "states"])
    trace = chunkscope.read(rewritten(small, table))
    assert trace.events["slot"].to_list() == [None, None]
    assert len(trace.states) == 0


def test_other_tables_newer_versions_and_wrong_columns_are_refused(small: Path) -> None:
    table = pq.read_table(small)
    bare = table.replace_schema_metadata({})
    with pytest.raises(TraceFormatError, match="a Parquet file, but no trace"):
        chunkscope.read(rewritten(small, bare))
    newer = table.replace_schema_metadata({"chunkscope": '{"schema_version": 9}'})
    with pytest.raises(TraceFormatError, match=r"schema_version 9, this chunkscope reads up to 1"):
        chunkscope.read(rewritten(small, newer))
    broken = table.replace_schema_metadata({"chunkscope": "{"})
    with pytest.raises(TraceFormatError, match="metadata key 'chunkscope'"):
        chunkscope.read(rewritten(small, broken))
    extra = table.append_column("colour", pa.array(["red", "blue"]))
    with pytest.raises(TraceFormatError, match=r"\$\.colour: unknown column"):
        chunkscope.read(rewritten(small, extra))
    at = table.column_names.index("rank")
    wrong = table.set_column(at, "rank", pa.array(["a", "b"]))
    with pytest.raises(TraceFormatError, match=r"\$\.rank: found string, expected int"):
        chunkscope.read(rewritten(small, wrong))
    at = table.column_names.index("states")
    flat = table.set_column(at, "states", pa.array([1, 2]))
    with pytest.raises(TraceFormatError, match=r"\$\.states: found int64, expected a list"):
        chunkscope.read(rewritten(small, flat))
    at = table.column_names.index("kind")
    word = table.set_column(at, "kind", pa.array(["send", "throw"]))
    with pytest.raises(TraceFormatError, match=r"\$\.events\[1\]\.kind: found 'throw', expected"):
        chunkscope.read(rewritten(small, word))


@settings(deadline=None)
@given(data=st.data())
def test_a_cut_or_flipped_file_gives_a_clear_error_or_the_trace(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("damage") / "t.parquet"
    chunkscope.write(SMALL, path)
    whole = bytearray(path.read_bytes())
    size = data.draw(st.integers(4, len(whole)))
    damaged = whole[:size]
    if size == len(whole):
        at = data.draw(st.integers(4, len(whole) - 1))
        damaged[at] ^= data.draw(st.integers(1, 255))
    path.write_bytes(damaged)
    try:
        trace = chunkscope.read(path)
    except TraceFormatError as error:
        message = str(error)
    else:  # the flipped bit was in what nobody reads, or in a word of the metadata
        message = str(path) if size == len(whole) and len(trace) == len(SMALL) else "wrong trace"
    assert str(path) in message
    assert "\n" not in message


def test_without_pyarrow_the_pip_line_is_named(small: Path) -> None:
    code = (
        "import sys; sys.modules['pyarrow'] = None\n"
        "import chunkscope\n"
        f"try: chunkscope.read({str(small)!r})\n"
        "except ImportError as error: print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "Parquet files need pyarrow: pip install 'chunkscope[parquet]'\n"


def test_empty_lists_and_nulls_stay_apart(tmp_path: Path) -> None:
    trace = Trace.build(
        {"kind": ["send"] * 3, "provenance": ["wire"] * 3, "splits": [[], None, [0]]},
        {"event": [0, 1], "data": [b"", None], "min": [float("nan"), None]},
    )
    chunkscope.write(trace, tmp_path / "t.parquet")
    back = chunkscope.read(tmp_path / "t.parquet")
    assert back == trace
    assert back.states["data"].to_list() == [b"", None]
    assert np.isnan(back.states["min"][0])
