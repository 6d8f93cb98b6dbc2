"""What Spark starts its Python processes from where its log is not shown: as ever, but without their last words.

When a task fails, Spark stops listening to the others at once, and each of their processes would print how it met the
closed connection; so would those that plan, after a minute without work, and all when Spark or Ctrl-C ends them. That
tells nothing beyond what the job says in its one sentence. Whatever else ends a process is printed as ever, and so is
all that a task itself writes.

Spark has a setting for what its tasks are started from and none for what plans, so it is given a Python that starts
this in the place of Spark's own.
"""

import shlex
import sys
import traceback
from pathlib import Path
from typing import Any

from pyspark import daemon

#: What a process meets that is not needed any more.
_ENDED = (ConnectionError, KeyboardInterrupt)


class _Words:
    """The module ``traceback`` for Spark's daemon, which prints only what tells something."""

    def __getattr__(self, name: str) -> Any:
        return getattr(traceback, name)

    @staticmethod
    def print_exc() -> None:
        """Print the error that is being told of, unless it is but the end."""
        if not isinstance(sys.exc_info()[1], _ENDED):
            traceback.print_exc()


def pythonFor(python: str, file: str) -> str:
    """Write the Python that Spark is given, and return its file.

    :param python: the one that it stands for.
    :raises OSError: it cannot be written.
    """
    script = Path(file)
    script.write_text(
        "#!/bin/sh\n"
        f'case $1$2 in -m{daemon.__name__}) shift 2; set -- -m {__name__} "$@" ;; esac\n'
        f'exec {shlex.quote(python)} "$@"\n'
    )
    script.chmod(0o755)
    return file


def main() -> None:
    """Start processes until Spark has no need of more."""
    vars(daemon)["traceback"] = _Words()
    daemon.manager()


if __name__ == "__main__":
    main()
