"""The memory that a job may use."""

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from fleximq.limits import GIBIBYTE

#: Minimum and maximum memory; it is a quarter of the machine's.
_MIN_MEMORY, _MAX_MEMORY = GIBIBYTE, 4 * GIBIBYTE


def shareOfMemory(limits: Sequence[str] = ("/sys/fs/cgroup/memory.max",)) -> int:
    """Return the memory for the rows of a query, in bytes; ``limits`` are files with limits of this process."""
    ours = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for file in limits:
        with suppress(OSError, ValueError):
            ours = min(ours, int(Path(file).read_text()))
    return min(max(ours // 4, _MIN_MEMORY), _MAX_MEMORY)
