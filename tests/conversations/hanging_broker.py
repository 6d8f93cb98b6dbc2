"""Runs ``twistd`` with a broker that hangs where a file in its folder says so, for as long as the file is there.

``hang-start``: while the journal is recovered. ``hang-writer``: the thread that writes the journal, at its next
commit. ``hang-reactor``: the reactor, when SIGUSR2 comes. Started with a Python and its arguments, which it replaces.
"""

import os
import runpy
import sys
import time
from collections.abc import Callable
from typing import Any

from fleximq.journal import journal_folder as module
from fleximq.journal.disk_writing import DiskWriting
from fleximq.journal.writing.writer_thread import CommitWriter


def hanging(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
    """Return the same call, which waits first while a file of this name is there."""

    def wait(*arguments: Any, **more: Any) -> Any:
        if os.path.exists(name):
            print("hanging:", name, flush=True)
        while os.path.exists(name):
            time.sleep(0.01)
        return call(*arguments, **more)

    return wait


def main() -> None:
    """Run what the arguments name behind a Python."""
    faults: Any = module
    faults.recover = hanging("hang-start", faults.recover)
    log: Any = CommitWriter
    log.carryOut = hanging("hang-writer", log.carryOut)
    journal: Any = DiskWriting
    journal.reopen = hanging("hang-reactor", journal.reopen)
    sys.argv = sys.argv[2:]
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
