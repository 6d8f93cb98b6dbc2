"""What one peer has left unread, in order.

Appending costs a reference, for it happens while others wait for their deliveries. Of a reader that is only a little
behind, nothing more is done: what it shares with others stays shared. What a slow one leaves is copied into sheets of
memory of its own, behind everybody's writes. References alone would keep whole reads alive, of which they are parts,
and the memory between; sheets weigh what is in them, whatever else comes and goes, and the system has them back at
once. It is the system's giving that takes time: 25 us for 64 KiB page by page, less for a whole sheet at once.
"""

import mmap
from collections import deque

#: Bytes to send; a view where they need not be copied out of what was read.
Chunk = bytes | memoryview

#: So much may be held by reference.
_SHARED = 1 << 20
#: What a chunk weighs besides its bytes while it is held so.
_REFERENCE = 100
#: Chunks of this size are held so in any case: they are most of their reads, and copies would cost too much.
_LARGE = 1 << 17
_SHEET = 1 << 16
#: Memory of this process alone; where the system cannot give a whole sheet at once, it does page by page.
_FLAGS = {"flags": mmap.MAP_PRIVATE | getattr(mmap, "MAP_POPULATE", 0)} if hasattr(mmap, "MAP_PRIVATE") else {}
_NONE = memoryview(b"")


class WriteBacklog:
    """Bytes that wait; true while there are any."""

    __slots__ = ("_begin", "_end", "_loose", "_ready", "_sheet", "_weight")

    def __init__(self) -> None:
        self._ready: deque[Chunk] = deque()  # first come these, then the sheet from begin to end, then what is loose
        self._sheet = _NONE
        self._begin = self._end = 0
        self._loose: list[Chunk] = []
        self._weight = 0

    def __bool__(self) -> bool:
        """Tell whether any chunk waits."""
        return bool(self._loose or self._ready or self._begin < self._end)

    def append(self, chunk: Chunk) -> bool:
        """Keep a chunk behind all others; True says that :meth:`pack` is due."""
        if chunk:
            self._loose.append(chunk)
            self._weight += len(chunk) + _REFERENCE
        return self._weight >= _SHARED or self._sheet is not _NONE

    def pack(self) -> None:
        """Copy what is held by reference, unless it is large."""
        loose, self._loose = self._loose, []
        self._weight = 0
        for chunk in loose:
            if len(chunk) < _LARGE:
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
        """Begin a new sheet."""
        self._closeSheet()
        self._sheet = memoryview(mmap.mmap(-1, _SHEET, **_FLAGS))
        self._begin = self._end = 0

    def _closeSheet(self) -> None:
        """Let what is on the sheet be taken."""
        if self._begin < self._end:
            self._ready.append(self._sheet[self._begin : self._end])
            self._begin = self._end

    def takeView(self, most: int) -> Chunk:
        """Take the first bytes out, at most so many; of a large chunk fewer, but they are not copied."""
        if not self._ready:
            self._makeReady()
        ready = self._ready
        if not ready or len(ready[0]) < _LARGE:
            return self.take(most)
        chunk = ready.popleft()
        if len(chunk) <= most:
            return chunk
        view = memoryview(chunk)
        ready.appendleft(view[most:])
        return view[:most]

    def putBack(self, chunk: Chunk) -> None:
        """Keep a chunk before all others: one that was taken out."""
        self._ready.appendleft(chunk)

    def take(self, most: int) -> bytes:
        """Take the first bytes out, at most so many."""
        ready, portion = self._ready, []
        while most:
            if not ready:
                self._makeReady()
                if not ready:
                    break
            chunk = ready.popleft()
            if len(chunk) > most:
                view = memoryview(chunk)
                chunk = view[:most]
                ready.appendleft(view[most:])
            portion.append(chunk)
            most -= len(chunk)
        return b"".join(portion)

    def _makeReady(self) -> None:
        """Let what else there is be taken, and leave the sheet when nothing is on it any more."""
        self._closeSheet()
        if not self._ready:
            self._ready.extend(self._loose)
            self._loose = []
            self._weight = self._begin = self._end = 0
            self._sheet = _NONE

    def clear(self) -> deque[Chunk]:
        """Forget everything, and return the sheets, which may take long to be freed all at once."""
        ready, self._ready = self._ready, deque()
        self._loose = []
        self._weight = self._begin = self._end = 0
        self._sheet = _NONE
        return ready
