"""A trace's metadata as plain JSON values, the same in every file form.

meta_to_json(Meta(world_size=4))                      # {"world_size": 4}
meta_from_json({"world_size": 4}, "run.jsonl")        # Meta(world_size=4)
"""

from __future__ import annotations

import math
from dataclasses import asdict, replace
from typing import Any

import msgspec

from ..errors import TraceFormatError
from .schema import SCHEMA_VERSION
from .trace import Meta

_ODD_FLOATS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def meta_to_json(meta: Meta) -> dict[str, Any]:
    """Return metadata as JSON values, without nulls, empty entries and the schema version."""
    entries = asdict(meta)
    del entries["schema_version"]
    model = entries.pop("model")
    pruned = {
        name: _without_nulls(entry)
        for name, entry in entries.items()
        if entry is not None and entry != () and entry != {}
    }
    # A null in the model is the model's own, and stays.
    return {**pruned, "model": _plain(model)} if model else pruned


def meta_from_json(
    entries: dict[str, Any], file: str, line: int | None = None, version: int = SCHEMA_VERSION
) -> Meta:
    """Return metadata from JSON values; the reverse of `meta_to_json`.

    Raises:
        TraceFormatError: An entry is unknown, or has the wrong type.
    """
    known = Meta.__dataclass_fields__
    unknown = [name for name in entries if name not in known]
    if unknown:
        raise TraceFormatError(
            f"found an unknown entry, expected {', '.join(known)}",
            file=file,
            line=line,
            field=f"$.meta.{unknown[0]}",
        )
    try:
        meta = msgspec.convert({**entries, "schema_version": version}, Meta)
    except (msgspec.ValidationError, RecursionError) as error:
        message, _, where = str(error).partition(" - at ")
        field = where.strip("`").replace("$", "$.meta", 1) or None
        raise TraceFormatError(message, file=file, line=line, field=field) from None
    return replace(meta, model=_odd_floats(meta.model))


def encodable(text: str) -> str:
    """Return a text as UTF-8 can hold it: what cannot be encoded is escaped.

    Example:
        >>> encodable("a\\udcff")
        'a\\\\udcff'
    """
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(item) for name, item in value.items() if item is not None}
    if isinstance(value, list | tuple):
        return [_without_nulls(item) for item in value]
    return _plain(value)


def _plain(value: Any) -> Any:
    """Return JSON values that every parser reads: odd floats as strings, texts in UTF-8."""
    if isinstance(value, dict):
        return {encodable(str(name)): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return encodable(value) if isinstance(value, str) else value


def _odd_floats(value: Any) -> Any:
    """Return the model's values with the strings of odd floats turned back."""
    if isinstance(value, dict):
        return {name: _odd_floats(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_odd_floats(item) for item in value]
    return _ODD_FLOATS.get(value, value) if isinstance(value, str) else value
