"""Measures the processor time of a call, for bounds of what hostile input costs; they are ten times what is usual."""

import time
from collections.abc import Callable

TRIES = 3


def processorSeconds(call: Callable[[], object]) -> float:
    """Return the least processor time of three calls in seconds, which no pause of the garbage collector raises."""
    found = []
    for _ in range(TRIES):
        began = time.process_time()
        call()
        found.append(time.process_time() - began)
    return min(found)
