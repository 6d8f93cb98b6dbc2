"""A segment's file seen through a window: parts of it are in memory, and are fetched as they are looked at.

Places are positions of the whole journal, as everywhere in this room; the file begins at ``base``.
"""

from fleximq.journal.files.file_system import Files, readUpTo

#: How much is read at once where much is read in order.
LARGE = 4 << 20
#: How much is read at once where a few frames are looked for.
SMALL = 128 << 10


class Window:
    """One open file, of which no byte from ``end`` on is seen.

    :param base: the position of the file's first byte.
    :param end: where it ends, as far as whoever looks may know it.
    :param size: how many bytes are fetched at once, at least.
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
        """Return the bytes from a position on, fewer than ``length`` where the file or what may be seen ends.

        What was returned stays as it is, whatever is looked at later.

        :raises OSError: the file cannot be read.
        """
        length = min(length, self.end - position)
        if length <= 0:
            return memoryview(b"")
        start = position - self._from
        if start < 0 or start + length > len(self._held):
            wanted = min(max(length, self._size), self.end - position)
            self._held = readUpTo(self._files, self._descriptor, wanted, position - self.base)
            self._from = position
            start = 0
        return memoryview(self._held)[start : start + length]

    def find(self, bytes: bytes, start: int) -> int | None:
        """Return the first position from ``start`` on at which these bytes stand, None if there is none.

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
