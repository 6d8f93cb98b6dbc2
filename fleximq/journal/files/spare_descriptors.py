"""Open file descriptors in reserve, so that a journal can end a segment when the process has no other left."""

import os
from contextlib import suppress
from weakref import finalize

#: Enough to end a segment while the reader's thread and the cleaner write an index or a segment.
SPARE = 4


class SpareDescriptors:
    """Up to ``number`` open descriptors, for use by several threads. ``close()`` closes them."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._open: list[int] = []
        self.close = finalize(self, _closeAll, self._open)
        self.fill()

    def fill(self) -> None:
        """Open those that are missing, as far as the system permits."""
        with suppress(OSError):
            while len(self._open) < self._number:
                self._open.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))

    def giveUpOne(self) -> bool:
        """Close one, so that another file can be opened; False if none is left."""
        with suppress(IndexError):
            os.close(self._open.pop())
            return True
        return False


def _closeAll(descriptors: list[int]) -> None:
    while descriptors:
        os.close(descriptors.pop())
