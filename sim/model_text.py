"""The step model's parameters as people write them: the options of the command line.

OPTIONS["jitter"].read(("10%",))    # 0.1
words(model)                        # ["--jitter", "10%", "--seed", "7"]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf, isinf
from typing import TYPE_CHECKING, Any

from ..units import parse_Bps, parse_bytes, parse_ns
from .changes import factor_text, parse_change, parse_factor, parse_of_rank, rate_text, time_text

if TYPE_CHECKING:
    from .model import Model

Read = Callable[[str], Any]
Write = Callable[[Any], str]


@dataclass(frozen=True, slots=True)
class Option:
    """How a parameter of the model is written.

    Attributes:
        flag: Its option.
        metavar: What follows.
        help: What it does.
        read_one: Returns the value in a text; raises ValueError.
        write_one: Returns the text of a value.
        gather: Makes one value of several, where the option may be given several times.
        spread: Returns the several values of one.
    """

    flag: str
    metavar: str
    help: str
    read_one: Read
    write_one: Write
    gather: Callable[[Any], Any] | None = None
    spread: Callable[[Any], Any] | None = None

    def read(self, texts: Sequence[str]) -> Any:
        """Return the value in the texts that follow the option, one unless there may be several.

        Raises:
            ValueError: A text cannot be read.
        """
        values = [self.read_one(text) for text in texts]
        return values[-1] if self.gather is None else self.gather(values)

    def write(self, value: Any) -> list[str]:
        """Return the words of a command line."""
        values = [value] if self.spread is None else self.spread(value)
        return [word for each in values for word in (self.flag, self.write_one(each))]


def _or_none(read: Read) -> Read:
    return lambda text: inf if text == "none" else read(text)


def _share(text: str) -> float:
    try:
        return float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        raise ValueError(f"{text!r} is no share, expected 10% or 0.1") from None


def _whole(text: str) -> int:
    if not text.isdecimal():
        raise ValueError(f"{text!r} is no whole number")
    return int(text)


def _percent(share: float) -> str:
    text = f"{share * 100:g}%"
    return text if _share(text) == share else repr(share)


def _size(text: str) -> float:
    try:
        return float(text)  # what was fitted may be no whole number
    except ValueError:
        return parse_bytes(text)


def _bytes(size: float) -> str:
    return "none" if isinf(size) else f"{size:g}" if size == int(size) < 1e6 else repr(size)


def _rate(rate_Bps: float) -> str:
    return "none" if isinf(rate_Bps) else rate_text(rate_Bps)


def _by_rank(flag: str, metavar: str, help: str, read: Read, write: Write) -> Option:
    return Option(
        flag,
        metavar,
        help,
        lambda text: parse_of_rank(text, metavar, read),
        lambda pair: f"{pair[0]}:{write(pair[1])}",
        dict,
        Mapping.items,
    )


# By the names of Model's fields.
OPTIONS: dict[str, Option] = {
    "changes": Option(
        "--link",
        "A-B:WHAT[@TIME]",
        "A link that changes: r0-switch:fails@2ms, r0-r1:x4 (4 times slower), r0-r1:10GB/s.",
        parse_change,
        str,
        tuple,
        list,
    ),
    "slow": _by_rank(
        "--slow-rank",
        "RANK:xTIMES",
        "A rank that takes longer, as 3:x2.",
        parse_factor,
        factor_text,
    ),
    "delay_ns": _by_rank(
        "--delay", "RANK:TIME", "A rank that comes late, as 2:1ms.", parse_ns, time_text
    ),
    "jitter": Option(
        "--jitter", "SHARE", "Each message takes up to so much longer, as 10%.", _share, _percent
    ),
    "seed": Option("--seed", "N", "Which draws of jitter.", _whole, str),
    "ports": Option(
        "--ports", "N", "Messages that a rank sends, and receives, at once.", _whole, str
    ),
    "duplex": Option(
        "--duplex", "full|half", "half: both directions of a link share its rate.", str, str
    ),
    "segment_bytes": Option(
        "--segment", "SIZE", "Longer messages travel as several.", parse_bytes, _bytes
    ),
    "message_ns": Option(
        "--message-cost", "TIME", "Fixed cost of a message, as 300ns.", parse_ns, time_text
    ),
    "header_bytes": Option(
        "--header", "SIZE", "Bytes that each message carries besides its data.", _size, _bytes
    ),
    "rendezvous_bytes": Option(
        "--rendezvous",
        "SIZE",
        "From so many bytes on, a message waits for its receiver's notice; none for never.",
        _or_none(_size),
        _bytes,
    ),
    "reduce_Bps": Option(
        "--reduce-rate",
        "RATE",
        "How fast a rank reduces or copies, as 50GB/s; none for no cost.",
        _or_none(parse_Bps),
        _rate,
    ),
    "burst_bytes": Option(
        "--burst", "SIZE", "Bytes that an idle link saves up and passes at once.", _size, _bytes
    ),
}


def words(model: Model) -> list[str]:
    """Return the words of a command line for what a model has other than by default."""
    usual = type(model)()
    found = [] if model.policy == usual.policy else ["--policy", model.policy]
    if not model.sharing:
        found.append("--no-sharing")
    for name, option in OPTIONS.items():
        value = getattr(model, name)
        if value != getattr(usual, name):
            found += option.write(value)
    return found
