"""Keeps Python's collector of garbage from looking at what was imported.

Spark's Python processes serve one task after the other and collect behind each, which takes 20 ms where Spark, pyarrow
and numpy are imported, and nothing of them is garbage.
"""

import gc
import os
from functools import cache

#: What Spark sets in the environment of processes that serve more than one task.
_SERVES_MANY = "SPARK_REUSE_WORKER"


@cache
def passOverImports() -> None:
    """Let the collector leave alone what is there now, if this is one of Spark's processes; the first call counts."""
    if _SERVES_MANY in os.environ:
        gc.collect()
        gc.freeze()
