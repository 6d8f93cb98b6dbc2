"""The unsent bytes of one connection, in order.

Appending stores a reference, because other connections wait meanwhile. The backlog of a slow reader is copied into its
own memory sheets after all writes of the turn: references would hold the whole reads of which the chunks are parts. The
system gets a sheet back at once. Allocating one takes up to 25 us for 64 KiB.
"""

import mmap
from collections import deque

#: Bytes to send; a view avoids copying them out of the read they are part of.
Chunk = bytes | memoryview

#: Bytes that may be held by reference before they are copied.
_SHARED = 1 << 20
#: Estimated cost of a referenced chunk without its bytes.
_REFERENCE = 100
#: Larger chunks stay references: they are most of their reads, and copying would cost too much.
_REFERENCED_BYTES = 1 << 17
_SHEET = 1 << 16
#: Smaller chunks are joined for sending, to at most so many bytes.
_JOINED = 1 << 15
#: Private memory; where the system cannot populate a whole sheet at once, it does so page by page.
_FLAGS = {"flags": mmap.MAP_PRIVATE | getattr(mmap, "MAP_POPULATE", 0)} if hasattr(mmap, "MAP_PRIVATE") else {}
_NONE = memoryview(b"")


class WriteBacklog:
    """A queue of bytes; true while it has any."""

    __slots__ = ("_begin", "_end", "_loose", "_ready", "_sheet", "_weight")

    def __init__(self) -> None:
        self._ready: deque[Chunk] = deque()  # order: these, then the sheet from begin to end, then the loose chunks
        self._sheet = _NONE
        self._begin = self._end = 0
        self._loose: list[Chunk] = []
        self._weight = 0

    def __bool__(self) -> bool:
        """Return whether any bytes are queued."""
        return bool(self._loose or self._ready or self._begin < self._end)

    def append(self, chunk: Chunk) -> bool:
        """Append a chunk; return True if :meth:`pack` is due."""
        if chunk:
            self._loose.append(chunk)
            self._weight += len(chunk) + _REFERENCE
        return self._weight >= _SHARED or self._sheet is not _NONE

    def pack(self) -> None:
        """Copy referenced chunks into sheets, except large ones."""
        loose, self._loose = self._loose, []
        self._weight = 0
        for chunk in loose:
            if len(chunk) < _REFERENCED_BYTES:
                self._copy(memoryview(chunk))
            else:
                self._closeSheet()
                self._ready.append(chunk)

    def _copy(self, rest: memoryview) -> None:
        while rest:
            space = len(self._sheet) - self._end
            if not space:
                self._turnOver()
                space = _SHEET
            size = min(space, len(rest))
            self._sheet[self._end : self._end + size] = rest[:size]
            self._end += size
            rest = rest[size:]

    def _turnOver(self) -> None:
        self._closeSheet()
        self._sheet = memoryview(mmap.mmap(-1, _SHEET, **_FLAGS))
        self._begin = self._end = 0

    def _closeSheet(self) -> None:
        """Move the filled part of the sheet to the ready chunks."""
        if self._begin < self._end:
            self._ready.append(self._sheet[self._begin : self._end])
            self._begin = self._end

    def takeView(self, maximum: int) -> Chunk:
        """Remove and return at most so many bytes from the front: a view of a large chunk, or a few small ones joined.

        Copying more takes longer than sending twice.
        """
        if not self._ready:
            self._makeReady()
        ready = self._ready
        if not ready or len(ready[0]) < _JOINED:
            return self.take(min(maximum, _JOINED))
        chunk = ready.popleft()
        if len(chunk) <= maximum:
            return chunk
        view = memoryview(chunk)
        ready.appendleft(view[maximum:])
        return view[:maximum]

    def putBack(self, chunk: Chunk) -> None:
        """Insert a removed chunk at the front again."""
        self._ready.appendleft(chunk)

    def take(self, maximum: int) -> bytes:
        """Remove and return at most so many bytes from the front."""
        ready, chunks = self._ready, []
        while maximum:
            if not ready:
                self._makeReady()
                if not ready:
                    break
            chunk = ready.popleft()
            if len(chunk) > maximum:
                view = memoryview(chunk)
                chunk = view[:maximum]
                ready.appendleft(view[maximum:])
            chunks.append(chunk)
            maximum -= len(chunk)
        return b"".join(chunks)

    def _makeReady(self) -> None:
        """Make sheet and loose chunks ready, and drop the sheet when it is empty."""
        self._closeSheet()
        if not self._ready:
            if self._loose:
                self._ready.extend(self._loose)
                self._loose = []
            self._weight = self._begin = self._end = 0
            self._sheet = _NONE

    def clear(self) -> deque[Chunk]:
        """Empty the backlog. Returns the sheets, because freeing them all at once may take long."""
        ready, self._ready = self._ready, deque()
        self._loose = []
        self._weight = self._begin = self._end = 0
        self._sheet = _NONE
        return ready
