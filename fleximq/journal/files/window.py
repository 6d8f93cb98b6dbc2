"""A part of a segment's file in memory that moves with the reads.

All positions are positions in the journal; the file begins at ``base``.
"""

from fleximq.journal.files.file_system import Files, readUpTo

#: Bytes of one read for sequential scans.
LARGE = 4 << 20
#: Bytes of one read for single frames.
SMALL = 128 << 10


class Window:
    """One open file, up to ``end``.

    :param base: the position of the file's first byte.
    :param end: the position of the first byte that must not be read.
    :param size: the minimum number of bytes of one read.
    """

    __slots__ = ("_descriptor", "_files", "_from", "_held", "_size", "base", "end")

    def __init__(self, files: Files, descriptor: int, base: int, end: int, size: int = LARGE) -> None:
        self._files = files
        self._descriptor = descriptor
        self._size = size
        self._from = base
        self._held = b""
        self.base = base
        self.end = end

    def at(self, position: int, length: int) -> memoryview:
        """Return bytes from a position, fewer than ``length`` at the end of the file or of the window.

        The result stays valid after later calls.

        :raises OSError: the file cannot be read.
        """
        length = min(length, self.end - position)
        if length <= 0:
            return memoryview(b"")
        start = position - self._from
        if start < 0 or start + length > len(self._held):
            selected = min(max(length, self._size), self.end - position)
            self._held = readUpTo(self._files, self._descriptor, selected, position - self.base)
            self._from = position
            start = 0
        return memoryview(self._held)[start : start + length]

    def find(self, bytes: bytes, start: int) -> int | None:
        """Return the first position of these bytes from ``start`` on, None if they do not occur.

        :raises OSError: the file cannot be read.
        """
        while start < self.end:
            self.at(start, min(len(bytes), self.end - start))
            found = self._held.find(bytes, start - self._from)
            if found >= 0:
                return self._from + found if self._from + found + len(bytes) <= self.end else None
            behind = self._from + len(self._held) - len(bytes) + 1
            if behind <= start:
                return None
            start = behind
        return None
