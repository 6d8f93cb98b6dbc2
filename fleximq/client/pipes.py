"""Standard input and output as a connection, in a program that the broker has started (FlexiMQ document 6.4)."""

import os

from fleximq.errors import SettingError

#: What the broker gives to the programs that it starts.
VARIABLE = "FLEXIMQ_CLIENT_ID"
_taken = False


def ownPipes() -> tuple[int, int]:
    """Return descriptors to read from and to write to, which belong to the caller.

    From then on the program's own standard input is empty, and what it prints goes to standard error, so that it cannot
    get between the messages.

    :raises SettingError: no broker has started this program, or somebody else has them already.
    """
    global _taken
    if VARIABLE not in os.environ:
        raise SettingError(f"stdio:// is for programs that a broker has started, but {VARIABLE} is not set")
    if _taken:
        raise SettingError("standard input and output are in use already: there is one connection over them")
    _taken = True
    reading, writing = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return reading, writing


class PipeSocket:
    """Two pipes, in the place of one socket that does not block."""

    def __init__(self, reading: int, writing: int) -> None:
        self._reading, self._writing = reading, writing

    def setblocking(self, blocks: bool) -> None:
        """Let reading and writing wait, or not."""
        os.set_blocking(self._reading, blocks)
        os.set_blocking(self._writing, blocks)

    def fileno(self) -> int:
        """Return the descriptor to read from."""
        return self._reading

    def writeFileno(self) -> int:
        """Return the descriptor to write to."""
        return self._writing

    def recv(self, size: int) -> bytes:
        """Read so many bytes, or fewer; none at the end."""
        return os.read(self._reading, size)

    def send(self, data: bytes | memoryview) -> int:
        """Write as much as goes, and return how much that was."""
        return os.write(self._writing, data)

    def shutdown(self, how: int) -> None:
        """Do nothing: pipes end when they are closed."""

    def close(self) -> None:
        """Close both."""
        os.close(self._reading)
        os.close(self._writing)
