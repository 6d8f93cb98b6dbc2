"""Starts Spark's Python workers on this machine, as ``pyspark.daemon`` does, but without a traceback for each worker
whose reader is gone: after a LIMIT, or after an error, whose sentence the job prints itself.
"""

import sys
import traceback
from types import SimpleNamespace

from pyspark import daemon


def printError() -> None:
    """Print the traceback of the error that ends a worker, unless its output has no reader any more."""
    if not isinstance(sys.exception(), ConnectionError):
        traceback.print_exc()


if __name__ == "__main__":
    vars(daemon)["traceback"] = SimpleNamespace(print_exc=printError, format_exc=traceback.format_exc)
    daemon.manager()
