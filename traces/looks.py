"""What a file that is no trace looks like, so that a message can say it."""

from __future__ import annotations

from pathlib import Path

_MAGIC: tuple[tuple[bytes, str], ...] = (
    (b"\x1f\x8b", "a gzip file: unpack it first"),
    (b"\x28\xb5\x2f\xfd", "a zstd file: unpack it first"),
    (b"PK\x03\x04", "a zip file, or a PyTorch checkpoint"),
    (b"\x80", "a pickle, which is never opened because it can run code"),
    (b"\x89PNG", "a PNG picture"),
    (b"GIF8", "a GIF animation"),
    (b"%PDF", "a PDF document"),
    (b"\x7fELF", "a program"),
    (b"SQLite format 3", "an SQLite database"),
    (b"version https://git-lfs", "a Git LFS pointer: fetch the file with `git lfs pull`"),
)
_TEXT: tuple[tuple[bytes, str], ...] = (
    (b"<!doctype html", "a web page"),
    (b"<html", "a web page"),
    (b"<svg", "an SVG picture"),
    (b"<?xml", "an XML file"),
)


def looks_like(path: Path, head: bytes) -> str:
    """Return one sentence: what a file or folder looks like, and what was expected.

    Args:
        path: The file or folder, which no format has recognised.
        head: Its first bytes; none of a folder.
    """
    expected = "expected a recording folder, .jsonl or .parquet"
    if path.is_dir():
        return _folder(path, expected)
    if not head:
        return f"the file is empty; {expected}"
    if path.name.endswith(".rec.jsonl"):
        return f"one process's part of a recording: open its folder, {path.parent}"
    return f"it looks like {_guess(path, head)}; {expected}"


def _folder(path: Path, expected: str) -> str:
    names = sorted(item.name for item in path.iterdir())
    if not names:
        return f"the folder is empty; {expected}"
    shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    return f"the folder holds no recording (*.rec.jsonl), but {shown}; {expected}"


def _guess(path: Path, head: bytes) -> str:
    for magic, name in _MAGIC:
        if head.startswith(magic):
            return name
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    for start, name in _TEXT:
        if text[: len(start)].lower() == start:
            return name
    if b"traceEvents" in head:
        return "a Chrome trace, such as the PyTorch profiler writes"
    if text.startswith((b"{", b"[")):
        return "JSON of another kind"
    if head.startswith(b"collective "):
        return "a schedule in text form: `chunkscope sim` and `chunkscope verify` read it"
    if b"\0" in head:
        return "a binary file of another kind"
    return f"a text file that starts with {head.splitlines()[0][:40].decode('utf-8', 'replace')!r}"
