"""The segment that is being written: one file, to whose end whole groups of frames are added.

It is used by one thread, see :mod:`fleximq.journal.writing.writer_thread`. After an error nothing more is written to it
or synced:
what the disk holds of the failed group is unknown, and a second sync could say that all is well when it is not.

What was written is not left to fill the system's memory: on a virtual machine, which gets its pages when it first uses
them, a MiB costs 0.3 ms of system time in pages that are used again and again and 2 ms in ever new ones. And what
others have in memory stays there.
"""

from collections.abc import Iterable
from errno import ENOENT

from fleximq.journal.files.file_system import Files, writeAll
from fleximq.journal.files.segment_table import segmentName
from fleximq.journal.format.frame import Frame, seal

#: So many bytes behind the end stay in the system's memory, for those who read what has just come.
CACHED_BYTES = 16 << 20
#: What is older is forgotten in portions of this size.
_PORTION = 1 << 20


class ActiveSegment:
    """A new file DIR/<position>.fxj; it outlives a power loss once it and its folder were synced.

    ``base`` and ``end`` are the positions in the journal of its first byte and behind its last; ``unsynced`` tells
    whether something was written since the last sync.

    :param id: the random number that all its frames carry.
    :raises OSError: the file cannot be made.
    """

    def __init__(self, files: Files, folder: str, position: int, id: int) -> None:
        self._files = files
        self._descriptor = files.create(f"{folder}/{segmentName(position)}")
        self.id = id
        self._previous = 0
        self._synced = True
        self._forgotten = 0
        self.base = self.end = position
        self.unsynced = False

    def write(self, frames: Iterable[Frame]) -> list[int]:
        """Add frames, and return the position of each.

        :raises OSError: some of the bytes could not be written.
        """
        buffers: list[bytes] = []
        positions: list[int] = []
        end, previous, synced = self.end, self._previous, self._synced
        for frame in frames:
            positions.append(end)
            sealed, previous = seal(frame, self.id, end, previous, synced)
            buffers += sealed
            end += frame.length
            synced = False
        self.unsynced = True
        writeAll(self._files, self._descriptor, buffers, self.end - self.base)
        self.end, self._previous, self._synced = end, previous, synced
        return positions

    def sync(self) -> None:
        """Return when all that was written outlives a power loss.

        :raises OSError: it may not; it must not be called again.
        """
        self._files.sync(self._descriptor)
        self.unsynced = False
        self._synced = True
        until = self.end - self.base - CACHED_BYTES
        if until - self._forgotten >= _PORTION:
            self._files.forget(self._descriptor, self._forgotten, until - self._forgotten)
            self._forgotten = until

    def checkThere(self) -> None:
        """See that the file is still in a folder: what is written to one that was deleted is lost with the process.

        :raises FileNotFoundError: it was deleted.
        """
        if self._files.isGone(self._descriptor):
            raise FileNotFoundError(ENOENT, "the journal's files were deleted")

    def cut(self, end: int) -> None:
        """Take back what a group that failed left behind this position.

        :raises OSError: it is still there.
        """
        self._files.truncate(self._descriptor, end - self.base)

    def close(self) -> None:
        """Close the file."""
        if not self.unsynced:
            self._files.forget(self._descriptor, self._forgotten, 0)
        self._files.close(self._descriptor)
