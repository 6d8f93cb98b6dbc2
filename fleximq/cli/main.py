"""Entry point of the command ``fleximq``: Control-C and a closed output end it quietly.

The commands are imported inside :func:`main`, so that Control-C is handled during these imports too.
"""

import os
import signal
import sys
from collections.abc import Sequence

INTERRUPTED, PIPE_CLOSED = 128 + signal.SIGINT, 128 + signal.SIGPIPE  #: Exit codes after Control-C and a closed pipe.


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line, by default that of the process, and return the exit code: 0 for success.

    :raises SystemExit: the command line is invalid (1), or help or version were printed (0).
    """
    try:
        from fleximq.cli.commands import run

        code = run(sys.argv[1:] if arguments is None else arguments)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # so that the final flush succeeds
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return PIPE_CLOSED
