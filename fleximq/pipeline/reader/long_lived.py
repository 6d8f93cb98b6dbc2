"""Settles Spark's Python processes, which serve one task after the other, for a long life.

They collect garbage behind each task, which takes 20 ms where Spark, pyarrow and numpy are imported, and nothing of
them is garbage. And memory for a portion of frames or a batch of rows is given back to the system when it is done with,
only to be asked for anew: 16,000 page faults in a query over two million rows, which are 30 ms of its processor time.
"""

import ctypes
import gc
import os
from contextlib import suppress
from functools import cache
from itertools import count

import pyarrow as pa

from fleximq.limits import MEBIBYTE

#: What Spark sets in the environment of processes that serve more than one task.
_SERVES_MANY = "SPARK_REUSE_WORKER"
#: Parameters of glibc's mallopt, and their values: so much free memory is kept, and smaller blocks are taken from it.
_KEPT = {-1: 64 * MEBIBYTE, -3: 32 * MEBIBYTE}
#: Who has set one of these has chosen otherwise.
_CHOSEN = ("ARROW_DEFAULT_MEMORY_POOL", "MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_")
#: So many calls do something.
_CALLS = 2
_calls = count()


def settle() -> None:
    """Let imports alone and keep memory, if this is one of Spark's processes.

    Called where a task begins. The second call lets alone what the first task has imported: pyarrow imports pandas
    where it is installed, once it is given numpy's arrays.
    """
    if _SERVES_MANY not in os.environ or next(_calls) >= _CALLS:
        return
    gc.collect()
    gc.freeze()
    _keepMemory()


@cache
def _keepMemory() -> None:
    if any(name in os.environ for name in _CHOSEN):
        return
    with suppress(AttributeError, OSError):  # where the C library is another one
        mallopt = ctypes.CDLL(None).mallopt
        for parameter, value in _KEPT.items():
            mallopt(parameter, value)
        pa.set_memory_pool(pa.system_memory_pool())
