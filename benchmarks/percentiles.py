"""Percentiles by the nearest rank: every one is a value that was measured."""

import math
from collections.abc import Sequence
from statistics import median

__all__ = ["median", "percentile"]


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the smallest value that so many percent of all values do not exceed.

    :raises IndexError: if there are no values.
    """
    return sorted(values)[max(0, math.ceil(len(values) * percent / 100) - 1)]
