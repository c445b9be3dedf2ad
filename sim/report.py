"""A replay told to a person in a few lines, in detail, or as plain data.

print(*summary(replay), sep="\\n")
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from ..traces.trace import JSON
from ..units import format_Bps, format_bytes, format_ns
from .activity import STATES
from .critical import PARTS, Stage
from .model_text import words

if TYPE_CHECKING:
    from .cuts import Cut
    from .replay import Replay

# Transfers up to which a summary says who waits: that takes a look at every moment.
_MOMENTS_UP_TO = 200_000
# Links, ranks and waits that `details` names, and `facts`.
_MOST, _MOST_FACTS = 16, 10_000
# Stages of the chain that `details` shows at each end.
_ENDS = 8
# Hops that a summary writes out of a chain.
_HOPS = 4
# Share of the time that is worth a word.
_LONG = 0.01


def summary(replay: Replay) -> Iterator[str]:
    """Yield what a replay came to: time, bounds, busiest link, what decided the end, who waits."""
    bounds, took = replay.bounds, format_ns(replay.duration_ns)
    busbw, algbw = format_Bps(replay.busbw_Bps), format_Bps(replay.algbw_Bps)
    yield (
        f"{took} (lower bound {format_ns(bounds.time_ns)}{_ratio(replay)}), "
        f"algbw {algbw}, busbw {busbw}"
    )
    if unusual := words(replay.parameters.on(replay.topology)):
        yield f"With {' '.join(unusual)}"
    if bounds.time_ns > 0:
        yield f"The bound: {bounds.text}"
    if (links := _links_in_short(replay)) is not None:
        yield links
    if replay.chain:
        yield _chain_in_short(replay)
    if len(replay.schedule) <= _MOMENTS_UP_TO and (waits := _waits_in_short(replay)) is not None:
        yield waits


def details(replay: Replay) -> Iterator[str]:
    """Yield tables: the bounds, the busiest links, the chain that decides, what ranks did."""
    yield "Lower bounds"
    yield f"  latency    {format_ns(replay.bounds.latency_ns)}"
    for name, cut in (("bandwidth", replay.bounds.bandwidth), ("cut", replay.bounds.cut)):
        if cut is not None:
            yield f"  {name:<9}  {format_ns(cut.time_ns)}: {cut.text}"
    yield "Busiest links"
    used = [load for load in replay.links.busiest(_MOST) if load.size_bytes]
    for load in used:
        size, busy = format_bytes(load.size_bytes), f"{load.utilisation:.1%}"
        yield f"  {load.src} → {load.dst}: {size}, {busy} of what it could carry"
    yield "The chain that decides the end"
    chain = replay.chain
    for k, stage in enumerate(chain):
        if k < _ENDS or k >= len(chain) - _ENDS:
            yield f"  {_stage_in_words(replay, stage)}"
        elif k == _ENDS:
            yield f"  ... {len(chain) - 2 * _ENDS} more"
    yield "What ranks did, in percent of the time"
    activity = replay.activity
    longest = np.argsort(-activity.idle_ns, kind="stable")[:_MOST].tolist()
    table = list(activity.table())
    yield "  " + "  ".join(["rank", *STATES])
    for rank in sorted(longest):
        times = table[rank]
        shares = [
            f"{100 * times[state] / max(replay.exact_duration_ns, 1e-9):{len(state)}.0f}"
            for state in STATES
        ]
        yield "  " + "  ".join([f"{rank:4}", *shares])
    if len(table) > len(longest):
        yield f"  ... {len(table) - len(longest)} ranks that were idle less"
    for wait in activity.waits[:_MOST]:
        on = replay.schedule.place_name(wait.on)
        yield f"  rank {wait.rank} waited {format_ns(wait.time_ns)} for {on}"


def facts(replay: Replay) -> dict[str, JSON]:
    """Return the same as plain data."""
    bounds = replay.bounds
    chain = [
        {
            **asdict(stage),
            "src": int(replay.schedule.src[stage.row]),
            "dst": int(replay.schedule.dst[stage.row]),
        }
        for stage in replay.chain
    ]
    found: dict[str, Any] = {
        "duration_ns": replay.duration_ns,
        "algbw_Bps": replay.algbw_Bps,
        "busbw_Bps": replay.busbw_Bps,
        "lower_bound_ns": round(bounds.time_ns),
        "bounds": {
            "latency_ns": bounds.latency_ns,
            "bandwidth": _cut_facts(bounds.bandwidth),
            "cut": _cut_facts(bounds.cut),
            "decides": bounds.text,
        },
        "links": [load._asdict() for load in replay.links.busiest(_MOST_FACTS)],
        "chain": chain,
        "ranks": list(replay.activity.table()),
        "waits": [wait._asdict() for wait in replay.activity.waits[:_MOST_FACTS]],
        "model": replay.model,
    }
    return found


def _cut_facts(cut: Cut | None) -> dict[str, JSON] | None:
    if cut is None:
        return None
    return {**asdict(cut), "ranks": list(cut.ranks), "time_ns": cut.time_ns, "text": cut.text}


def _ratio(replay: Replay) -> str:
    bound = replay.bounds.time_ns
    return f", {replay.exact_duration_ns / bound:.2f} ×" if bound > 0 else ""


def _links_in_short(replay: Replay) -> str | None:
    """Return the busiest link in words; None where nothing crossed one."""
    busiest = replay.links.busiest(1)
    if not busiest or not busiest[0].size_bytes:
        return None
    first = busiest[0]
    use = replay.links.utilisation
    alike = int(np.count_nonzero(use >= first.utilisation * (1 - 1e-9)))
    others = f" ({alike} links alike)" if alike > 1 else ""
    size = format_bytes(first.size_bytes)
    return f"Busiest link {first.src} → {first.dst}: {size}, {first.utilisation:.0%} busy{others}"


def _chain_in_short(replay: Replay) -> str:
    """Return the chain in words: how long, where it leads, what took its time, what it waited for.

    The parts add up to the whole duration.
    """
    chain = replay.chain
    parts = {part: sum(getattr(stage, f"{part}_ns") for stage in chain) for part in PARTS}
    total = sum(parts.values())
    shares = [
        f"{time / total:.0%} {_PART_WORDS[part]}"
        for part, time in sorted(parts.items(), key=lambda item: -item[1])
        if total and time / total >= _LONG / 2
    ]
    steps = f"{len(chain)} transfer{'s in a row decide' if len(chain) > 1 else ' decides'} the end"
    text = f"{steps}: {_way(replay)}; {', '.join(shares)}"
    links = Counter(stage.link for stage in chain if stage.link is not None)
    if links and "sharing" in text:
        (a, b), _ = links.most_common(1)[0]
        text += f", most on {a} → {b}"
    return text


_PART_WORDS = {
    "late": "late ranks",
    "notice": "notices",
    "latency": "latency",
    "bytes": "bytes",
    "shared": "sharing links",
    "write": "reducing",
}


def _way(replay: Replay) -> str:
    """Return where the chain leads: "r0 → r1 → r2", or "r0 → r1 (30 ×)" where it stays."""
    schedule = replay.schedule
    names = [f"r{rank}" for rank in range(schedule.group_size)] + list(schedule.helpers)
    rows = [stage.row for stage in replay.chain]
    hops = [
        (names[src], names[dst], len(list(same)))
        for (src, dst), same in groupby(
            zip(schedule.src[rows].tolist(), schedule.dst[rows].tolist(), strict=True)
        )
    ]
    if len(hops) > 2 * _HOPS:
        return f"{_joined(hops[:_HOPS])} ... {_joined(hops[-_HOPS // 2 :])}"
    return _joined(hops)


def _joined(hops: list[tuple[str, str, int]]) -> str:
    text, at = "", None
    for src, dst, times in hops:
        text += " → " if src == at else f"{', ' * bool(text)}{src} → "
        text += f"{dst} ({times} ×)" if times > 1 else dst
        at = dst
    return text


def _stage_in_words(replay: Replay, stage: Stage) -> str:
    parts = ", ".join(
        f"{format_ns(time)} {_PART_WORDS[part]}"
        for part in PARTS
        if (time := getattr(stage, f"{part}_ns")) >= 0.5
    )
    where = f" on {stage.link[0]} → {stage.link[1]}" if stage.link else ""
    row = replay.schedule.row_text(stage.row)
    return f"{format_ns(stage.begin_ns)}: {row} waited for {stage.waited_for}; {parts}{where}"


def _waits_in_short(replay: Replay) -> str | None:
    """Return who waited most, and for whom, in words; None where nobody did for long."""
    activity = replay.activity
    shares = activity.waiting_ns / max(replay.exact_duration_ns, 1.0)
    waiting, rank = int(np.count_nonzero(shares >= _LONG)), int(shares.argmax())
    if not waiting:
        return None
    on = next(wait.on for wait in activity.waits if wait.rank == rank)
    name = replay.schedule.place_name(on)
    of = f"{waiting} of {replay.schedule.group_size} ranks wait"
    return f"{of}, rank {rank} longest: {shares[rank]:.0%} of the time, most of it for {name}"
