"""Jitter: how much longer each message takes, drawn from who sends it to whom and from a seed.

A draw depends on nothing else, so that another message more or less leaves it as it is.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from .compiled import kernel, run

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]
Words = npt.NDArray[np.uint64]


def draws(seed: int, pair: Array, ends: Array, channel: Array) -> Floats:
    """Return a number for each message, uniform from 0 to below 1, (messages,).

    Args:
        seed: Which draws.
        pair: Pair of places that each message goes between, (messages,).
        ends: Places of each pair, (2, pairs).
        channel: Channel of each message, (messages,).

    Source: G. L. Steele, D. Lea and C. H. Flood, "Fast splittable pseudorandom number generators",
    2014: its finalizer over seed, source, destination, channel and the message's number there.

    Example:
        >>> ends, none = np.array([[0, 1], [1, 0]]), np.zeros(2, np.int64)
        >>> draws(7, np.array([0, 1]), ends, none).round(3).tolist()
        [0.017, 0.197]
    """
    n_channels = int(channel.max(initial=0)) + 1
    number = np.empty(len(pair), np.uint64)
    seen = np.zeros(ends.shape[1] * n_channels, np.int64)
    run(_count, len(pair))(pair, channel, n_channels, seen, number)
    src, dst = ends.astype(np.uint64)
    root = _mixed(np.array([seed], np.uint64))
    of_pair = _mixed(_mixed(root ^ src) ^ dst)
    number |= channel.astype(np.uint64) << np.uint64(40)
    number ^= of_pair[pair]
    return (_mixed(number) >> np.uint64(11)).astype(np.float64) * 2.0**-53


@kernel
def _count(pair: Array, channel: Array, n_channels: int, seen: Array, number: Words) -> None:
    """Number the messages between the same two places on the same channel."""
    for m in range(len(pair)):
        at = pair[m] * n_channels + channel[m]
        number[m] = seen[at]
        seen[at] += 1


def _mixed(words: Words) -> Words:
    """Return splitmix64's next word for each word."""
    with np.errstate(over="ignore"):
        words = words + np.uint64(0x9E3779B97F4A7C15)
        words ^= words >> np.uint64(30)
        words *= np.uint64(0xBF58476D1CE4E5B9)
        words ^= words >> np.uint64(27)
        words *= np.uint64(0x94D049BB133111EB)
        words ^= words >> np.uint64(31)
        return words
