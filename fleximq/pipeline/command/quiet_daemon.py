"""What Spark starts its Python processes from where its log is not shown: as ever, but without their last words.

When a task fails, Spark stops listening to the others at once, and each of their processes would print how it met the
closed connection; so it would when Ctrl-C ends all. That tells nothing beyond what the job says in its one sentence.
Whatever else ends a process is printed as ever, and so is all that a task itself writes.
"""

import sys
import traceback
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


def main() -> None:
    """Start processes until Spark has no need of more."""
    vars(daemon)["traceback"] = _Words()
    daemon.manager()


if __name__ == "__main__":
    main()
