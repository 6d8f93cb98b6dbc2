"""The segment being written: one file, extended by complete groups of frames.

It is used by one thread, see :mod:`fleximq.journal.writing.writer_thread`. After an error it is neither written nor
synced again: it is unknown which part of the failed group is on disk, and a second sync could succeed without it.

Old bytes are dropped from the system's cache. On a virtual machine, which receives its pages on first use, a MiB costs
0.3 ms of system time in reused pages and 2 ms in new ones. And the cached data of other programs stays cached.
"""

from collections.abc import Iterable
from errno import ENOENT

from fleximq.journal.files.file_system import Files, writeAll
from fleximq.journal.files.segment_table import segmentName
from fleximq.journal.format.frame import Frame, FrameKind, seal

#: The last bytes that stay in the system's cache, for readers of recent records.
CACHED_BYTES = 16 << 20
#: Older bytes are dropped in steps of this size.
_PORTION = 1 << 20
#: So many bytes of frames are written at once, or one frame with more.
_WRITTEN_BYTES = 1 << 19


class ActiveSegment:
    """A new file DIR/<position>.fxj, with the random number ``id`` in all its frames. All methods raise OSError.
    ``base`` is the position of its first byte, ``end`` that after its last; ``unsynced``: bytes were written since the
    last sync. The file survives a power loss after a sync of it and of its folder.
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

    def write(self, frames: Iterable[Frame], hurry: bool) -> list[tuple[int, Frame]]:
        """Append frames, and return them with their positions; those of records lose their bodies. Each portion is
        written before the next frame is encoded, so that its memory is reused. ``hurry``: a sync follows, so the disk
        may begin with the first portions.
        """
        written: list[tuple[int, Frame]] = []
        buffers: list[bytes | memoryview] = []
        start = self.end
        self.unsynced = True
        for frame in frames:
            written.append((self.end, frame))
            sealed, self._previous = seal(frame, self.id, self.end, self._previous, self._synced)
            self._synced = False
            buffers += sealed
            self.end += frame.length
            if frame.kind is FrameKind.RECORDS:
                frame.pieces = ()
            if self.end - start >= _WRITTEN_BYTES:
                writeAll(self._files, self._descriptor, buffers, start - self.base)
                if hurry:
                    self._files.beginSync(self._descriptor, start - self.base, self.end - start)
                start = self.end
                buffers = []
        if buffers:
            writeAll(self._files, self._descriptor, buffers, start - self.base)
        return written

    def sync(self) -> None:
        """Return when all written bytes survive a power loss; after an error some may not: do not call this again."""
        self._files.sync(self._descriptor)
        self.unsynced = False
        self._synced = True
        until = self.end - self.base - CACHED_BYTES
        if until - self._forgotten >= _PORTION:
            self._files.forget(self._descriptor, self._forgotten, until - self._forgotten)
            self._forgotten = until

    def checkThere(self) -> None:
        """Raise FileNotFoundError if the file was deleted: writes to it would be lost at the end of the process."""
        if self._files.isGone(self._descriptor):
            raise FileNotFoundError(ENOENT, "the journal's files were deleted")

    def cut(self, end: int) -> None:
        """Remove the bytes of a failed group from this position on. Raises OSError if they remain in the file."""
        self._files.truncate(self._descriptor, end - self.base)

    def close(self) -> None:
        """Close the file."""
        if not self.unsynced:
            self._files.forget(self._descriptor, self._forgotten, 0)
        self._files.close(self._descriptor)
