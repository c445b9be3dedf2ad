"""Counting that recorders leave to readers, on whole columns."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


def ordinals(*keys: npt.NDArray[np.generic]) -> Ints:
    """Return for each row how many rows before it have the same keys.

    Args:
        keys: Arrays of equal length.

    Example:
        >>> ordinals(np.array([7, 8, 7, 7])).tolist()
        [0, 0, 1, 2]
    """
    n = len(keys[0])
    order = np.lexsort(keys)  # stable: rows of equal keys stay in order
    is_new = np.ones(n, np.bool_)
    if n:
        is_new[1:] = np.any([key[order][1:] != key[order][:-1] for key in keys], axis=0)
    first = np.flatnonzero(is_new)
    lengths = np.diff(np.append(first, n))
    result = np.empty(n, np.int64)
    result[order] = np.arange(n) - np.repeat(first, lengths)
    return result


def lookup(wanted: Ints, keys: Ints) -> Ints:
    """Return where each wanted number stands in sorted keys, -1 where it does not.

    Example:
        >>> lookup(np.array([5, 4]), np.array([3, 5])).tolist()
        [1, -1]
    """
    if not len(keys):
        return np.full(len(wanted), -1, np.int64)
    at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[at] == wanted, at, -1).astype(np.int64)
