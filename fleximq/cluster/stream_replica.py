"""A journal folder with the frames of a shard's stream at the same positions (/explanation/cluster, Copies).

The owner writes its copy after the stream has stored a commit, a follower when it receives it; so no copy has a frame
that the stream lacks. Bytes are synced only when a segment is sealed: after a loss of power the missing ones are read
from the stream again. So opening a copy cuts its end at the first damage, and reports no loss.

DIR/stream is one line: ``fleximq-stream``, the version 1, the shard, the stream's creation time, a sequence and a
position, and the CRC-32 of all before it as 8 hexadecimal digits; separated by blanks. All messages up to this sequence
are on disk, and end at this position. Reading continues after it, and passes over frames that the copy has.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from zlib import crc32

from fleximq.cluster.interfaces import ClusterError, Piece, StreamBounds
from fleximq.errors import JournalError, systemReason
from fleximq.journal.files.file_system import Files, readFile, replaceFile, writeAll
from fleximq.journal.files.folder_files import (
    ASIDE,
    IDENTITY,
    LOCK,
    STREAM,
    DurableEnd,
    Lock,
    checkFolder,
    identify,
    readIdentity,
)
from fleximq.journal.files.frame_scan import CompleteFrame, DamagedRange, Window, framesOf
from fleximq.journal.files.segment_index import indexName, writeIndex
from fleximq.journal.files.segment_table import SegmentTable, segmentBases, segmentName
from fleximq.journal.format.control_frames import decodeGap, decodeRemoved, decodeSegment
from fleximq.journal.format.frame import HEADER_BYTES, MAGIC, FrameError, FrameKind, completeFrame, readHeader
from fleximq.journal.recovery.recovery import recover

_MAGIC = "fleximq-stream 1"
#: Messages with so many bytes are written at once.
_TOGETHER = 1 << 20


class ReplicaError(ClusterError):
    """A message of the stream does not continue this copy, or the copy cannot be written."""


class StreamBehind(ClusterError):
    """The stream has less than this copy: it is another or an older stream, or the answer was old."""


class StreamReplica:
    """The copy of one shard in one folder. ``end`` is the position after its last frame, ``next`` the offset after its
    last record, ``time`` the latest time of its frames. ``sequence`` is that of its last complete commit, ``received``
    that of the last message, perhaps a piece of an incomplete commit.
    """

    def __init__(self, files: Files, folder: str, shard: int) -> None:
        self._files = files
        self._folder = folder
        self._shard = shard
        self.journal = ""
        #: What readers need to find records, from :meth:`load` on; while this node owns the shard, its journal adds to
        #: it, and ``isOwned`` is true.
        self.segments: SegmentTable | None = None
        self.isOwned = False
        #: Called with frames that were added while another node owns the shard; not None while clients read the copy.
        self.added: Callable[[Sequence[CompleteFrame]], None] | None = None
        self.end = self.time = self.sequence = self.received = self.created = 0
        self.next = 1
        #: The position after the commit of ``sequence``; smaller than ``end`` while known messages are read again.
        self._reached = 0
        self._bases: list[int] = []
        self._descriptor: int | None = None
        self._segment = self._previous = self._known = 0
        self._pieces: list[bytes] = []
        self._broken = self._isDamaged = self._mayLeap = False
        self._durableEnd: DurableEnd | None = None

    def open(self) -> None:
        """Lock and check the folder, and cut its end at the first damage; blocks. Raises JournalError."""
        files, folder = self._files, self._folder
        checkFolder(files, folder)
        files.reserve()
        self._lock = Lock(files, folder)
        try:
            if files.exists(f"{folder}/{IDENTITY}"):
                self.journal = readIdentity(files, folder)
            self._bases = segmentBases(files.names(folder))
            while self._bases and not self._openLast(self._bases[-1]):
                self._bases.pop()
            self.created, sequence, position = self._readStream()
            if position <= self.end:
                self.sequence = self.received = sequence
                self._reached = position
            self._known = self.end
            self._publish()
        except OSError as error:
            self._lock.release()
            raise JournalError(f"the copy in {folder} cannot be opened: {systemReason(error)}") from error
        except BaseException:
            self._lock.release()
            raise

    def _openLast(self, base: int) -> bool:
        """Open the last segment after cutting it at the first damage; False: it had no frame and was removed."""
        path = f"{self._folder}/{segmentName(base)}"
        descriptor = self._files.open(path, write=True)
        size = self._files.size(descriptor)
        last = None
        for each in framesOf(Window(self._files, descriptor, base, base + size), None, base, atHead=True):
            if isinstance(each, DamagedRange):
                self._files.truncate(descriptor, each.position - base)
                self._files.sync(descriptor)
                break
            last = each.header
            self.end = endOf(each)
            self.next = max(self.next, nextOf(each))
            self.time = max(self.time, last.lastTime)
        if last is None:
            self._files.close(descriptor)
            self._files.remove(path)
            self._files.syncFolder(self._folder)
            return False
        self._segment, self._previous, self._descriptor = last.segment, last.crc, descriptor
        return True

    def load(self, log: Callable[[str], None]) -> None:
        """Read the segments, from their indexes if possible; blocks. ``log`` gets failures that do not prevent it.
        Raises JournalError if a segment cannot be read.
        """
        self.segments = recover(self._files, self._folder, self.journal, log).segments

    def close(self) -> None:
        """Close all files, and release the lock."""
        if self._descriptor is not None:
            with suppress(OSError):
                self._seal()
        if self._durableEnd is not None:
            self._durableEnd.close()
        self._lock.release()

    def _publish(self) -> None:
        """Announce the end of this copy to other processes; a folder without an identity is no journal yet."""
        if self._durableEnd is None and self.journal:
            self._durableEnd = DurableEnd(self._files, self._folder)
        if self._durableEnd is not None:
            self._durableEnd.publish(self.end, self.next, self.time)

    @property
    def start(self) -> int:
        """The position of the first frame."""
        return self._bases[0] if self._bases else 0

    def size(self) -> dict[str, int]:
        """Return the numbers of bytes and segments."""
        return {"bytes": self.end - self._bases[0] if self._bases else 0, "segments": len(self._bases)}

    def framesFrom(self, position: int) -> Iterator[CompleteFrame]:
        """Yield the frames from a position on. Raises ReplicaError if a part is damaged, or cannot be read."""
        for base, until in pairwise([*self._bases, self.end]):
            if until > position:
                yield from (each for each in self._framesOf(base, until) if each.header.position >= position)

    def _framesOf(self, base: int, until: int) -> Iterator[CompleteFrame]:
        path = f"{self._folder}/{segmentName(base)}"
        try:
            with self._files.closing(self._files.open(path)) as descriptor:
                for each in framesOf(Window(self._files, descriptor, base, until), None, base, atHead=True):
                    if isinstance(each, DamagedRange):
                        raise ReplicaError(f"{path} is damaged at position {each.position}: {each.reason}")
                    yield each
        except OSError as error:
            raise ReplicaError(f"{path} cannot be read: {systemReason(error)}") from error

    def join(self, bounds: StreamBounds, end: int = 0) -> int:
        """Return the sequence to read the stream from. ``end``: the position at which the stream ends. If it was
        created again, or set back, and reaches as far as this copy, all of it is read again and compared: it was filled
        from a copy. Raises StreamBehind if the stream has less than this copy, which is not changed.
        """
        isOther = self.created not in (0, bounds.created)
        isEmpty = bounds.last < bounds.first  # a stream that was trimmed has its last segment
        if (isOther or isEmpty or bounds.last < self.sequence) and end < self.end:
            if isOther:
                raise StreamBehind("the stream was created again, and this copy is of the one before")
            if isEmpty and bounds.last:
                raise StreamBehind(f"the stream has lost all of its {bounds.last} messages")
            raise StreamBehind(f"the stream ends with message {bounds.last}, but this copy has {self.sequence}")
        if isOther or bounds.last < self.sequence:
            self.readAgain()
        self.created = bounds.created
        self._pieces.clear()
        self.received = self.sequence = max(self.sequence, bounds.first - 1)
        self._mayLeap = self.received == bounds.first - 1
        return self.received + 1

    def readAgain(self) -> None:
        """Compare all of the stream with this copy, after the next :meth:`join`."""
        self.sequence = self._reached = 0
        self._known = self.end
        self._broken = self._isDamaged

    @property
    def usable(self) -> bool:
        """Whether this copy equals the stream up to ``sequence``, so that its node may own the shard."""
        return not self._broken and not self._pieces and self._reached == self.end

    @property
    def ahead(self) -> bool:
        """Whether this copy has frames that were not read from the stream again since it was opened."""
        return not self._broken and self._reached < self._known

    def receive(self, sequence: int, piece: Piece) -> Sequence[CompleteFrame]:
        """Take the message after ``received``; return the frames that became complete by it. Raises ReplicaError."""
        with self._reported(sequence):
            begins = piece.data[:4] == MAGIC and piece.data[6] == FrameKind.SEGMENT
            if sequence != self.received + 1:
                if not begins:
                    raise FrameError(f"the last one here is {self.received}")
                self._pieces.clear()
                self._mayLeap = True
            if self._mayLeap and begins and readHeader(piece.data).position > self.end:
                self._moveAside()
            self._mayLeap = False
        self._pieces.append(piece.data)
        self.received = sequence
        if piece.left:
            return ()
        data = b"".join(self._pieces)
        self._pieces.clear()
        return self.write(sequence, data, piece.end, piece.next)

    def receiveAll(self, messages: Sequence[tuple[int, Piece]]) -> None:
        """As :meth:`receive` for each of these messages; small ones that follow each other are written together."""
        waiting: list[bytes] = []
        size, last, nextOffset, end = 0, self.received, 0, self._reached

        def write() -> None:
            nonlocal waiting, size
            together, waiting, size = b"".join(waiting), [], 0
            if together:
                self.write(last, together, end, nextOffset)

        for sequence, piece in messages:
            data = piece.data
            follows = sequence == last + 1 and piece.end == end + len(data) and not piece.left
            if not follows or data[6] == FrameKind.SEGMENT or self._pieces or self._mayLeap or size > _TOGETHER:
                write()
                self.receive(sequence, piece)
            else:
                waiting.append(data)
                size += len(data)
            last, nextOffset, end = sequence, piece.next, piece.end
        write()

    @property
    def incomplete(self) -> bool:
        """Whether further pieces of the last commit are missing."""
        return bool(self._pieces)

    def _moveAside(self) -> None:
        """Rename all segments: the stream begins later, with a checkpoint. Raises FrameError if clients read them."""
        if self.added is not None:
            raise FrameError("the stream has no more what would continue this copy")
        if self._descriptor is not None:
            self._files.close(self._descriptor)
            self._descriptor = None
        for base in self._bases:
            path = f"{self._folder}/{segmentName(base)}"
            self._files.rename(path, path + ASIDE)
        self._bases.clear()
        if self.segments is not None:
            self.segments = SegmentTable()

    def setAside(self) -> None:
        """Rename all files, for a new copy that is opened here; this one is of no use then. Raises OSError."""
        self._broken = self._isDamaged = True
        # Segments come first: a folder with segments must have an identity.
        for name in sorted(self._files.names(self._folder)):
            if name != LOCK and not name.endswith(ASIDE):
                self._files.rename(f"{self._folder}/{name}", f"{self._folder}/{name}{ASIDE}")
        self._files.syncFolder(self._folder)

    def write(self, sequence: int, data: bytes, end: int, nextOffset: int) -> Sequence[CompleteFrame]:
        """Write the frames of the commit that ends with this sequence, and return those that were missing. ``end``: the
        position after its last frame; ``nextOffset``: the offset after its last record. Raises ReplicaError if they do
        not continue this copy, or cannot be written.
        """
        with self._reported(sequence):
            new = self._continued(data)
            if new and new[0].header.kind == FrameKind.SEGMENT:
                self._begin(new[0])
            if new:
                last = new[-1].header
                assert self._descriptor is not None  # its last frame is chained to a SEGMENT frame
                place = new[0].header.position - self._bases[-1]
                writeAll(self._files, self._descriptor, [each.frame for each in new], place)
                self.end, self._previous = endOf(new[-1]), last.crc
                self.time = max(self.time, *(each.header.lastTime for each in new))
            if self.segments is not None and not self.isOwned:
                for each in new:
                    self.segments.received(each)
        self.sequence = self.received = sequence
        self._reached = end
        self.next = max(self.next, nextOffset)
        self._publish()
        if new and self.added is not None and not self.isOwned:
            self.added(new)
        return new

    @contextmanager
    def _reported(self, sequence: int) -> Iterator[None]:
        """Turn errors into a :class:`ReplicaError`; after one this copy must be opened, or compared, again."""
        if self._broken:
            raise ReplicaError(f"the copy in {self._folder} has failed before")
        self._broken = True
        try:
            yield
            self._broken = False
        except FrameError as error:
            raise ReplicaError(f"message {sequence} of the stream does not continue this copy: {error}") from error
        except OSError as error:
            self._isDamaged = True
            raise ReplicaError(f"the copy in {self._folder} cannot be written: {systemReason(error)}") from error

    def _continued(self, data: bytes) -> list[CompleteFrame]:
        """Return the checked frames of a commit that this copy lacks. Raises FrameError if they do not continue it."""
        end, previous, segment, at = self.end, self._previous, self._segment, 0
        new: list[CompleteFrame] = []
        while at < len(data):
            each = CompleteFrame(*completeFrame(data, at))
            header = each.header
            at += header.length
            if header.position + header.length <= self._known:
                self._checkKnown(each)
                continue
            if header.kind == FrameKind.SEGMENT:
                if new:
                    raise FrameError("a segment begins within a commit")
                previous, segment = 0, header.segment
                end = end if self._bases else header.position
            found = header.position, header.previous, header.segment
            if found != (end, previous, segment):
                raise FrameError(f"position, previous crc and segment are {found}, not {(end, previous, segment)}")
            end, previous = endOf(each), header.crc
            new.append(each)
        return new

    def _checkKnown(self, each: CompleteFrame) -> None:
        """Check that a frame that was read again is the one in the last segment; earlier ones may be rewritten."""
        place = each.header.position - self._bases[-1] if self._bases else -1
        if place >= 0 and self._descriptor is not None:
            if self._files.read(self._descriptor, HEADER_BYTES, place) != each.frame[:HEADER_BYTES]:
                raise FrameError(f"at position {each.header.position} this copy has another frame")

    def _begin(self, each: CompleteFrame) -> None:
        """Seal the last segment and begin a new one, for this SEGMENT frame."""
        header, start = each.header, decodeSegment(*each)
        self.journal = identify(self._files, self._folder, lambda: start.journal)
        if self.journal != start.journal:
            raise FrameError(f"it is of the journal {start.journal}, not {self.journal}")
        self._seal()
        self._descriptor = self._files.create(f"{self._folder}/{segmentName(header.position)}")
        self._files.syncFolder(self._folder)
        self._bases.append(header.position)
        self._segment = header.segment
        self.end = header.position

    def _seal(self) -> None:
        """Sync and close the last segment, and note in DIR/stream how far the copy is on disk."""
        if self._descriptor is not None:
            self._files.sync(self._descriptor)
            self._files.close(self._descriptor)
            self._descriptor = None
            if self.segments is not None and not self.isOwned:
                writeIndex(self._files, self._folder, self.segments.all[-1])
            if not self.created:
                return  # it has not joined a stream
            text = f"{_MAGIC} {self._shard} {self.created} {self.sequence} {self._reached} "
            replaceFile(self._files, self._folder, STREAM, f"{text}{crc32(text.encode()):08x}\n".encode())

    def _readStream(self) -> tuple[int, int, int]:
        """Return creation time, sequence and position of DIR/stream; zeros if it is missing or damaged."""
        try:
            text, _, crc = readFile(self._files, f"{self._folder}/{STREAM}").decode("ascii", "replace").rpartition(" ")
        except FileNotFoundError:
            return 0, 0, 0
        fields = text.removeprefix(_MAGIC).split()
        if crc.strip() != f"{crc32(f'{text} '.encode()):08x}" or len(fields) != 4:
            return 0, 0, 0
        shard, created, sequence, position = map(int, fields)
        if shard != self._shard:
            raise JournalError(f"{self._folder} is a copy of shard {shard}, not {self._shard}")
        return created, sequence, position

    def trim(self, position: int) -> None:
        """Remove the segments before this position, where the stream begins now. Raises OSError."""
        for base, until in list(pairwise(self._bases)):
            if until > position:
                break
            if self.segments is not None:
                self.segments.remove(base)  # first, so that readers do not look for it
            for name in (segmentName(base), indexName(base)):
                if self._files.exists(f"{self._folder}/{name}"):
                    self._files.remove(f"{self._folder}/{name}")
            self._bases.remove(base)
            self._files.syncFolder(self._folder)  # before the next: a later file must never vanish first


def endOf(each: CompleteFrame) -> int:
    """Return the position of the next frame."""
    header = each.header
    return decodeRemoved(*each) if header.kind == FrameKind.REMOVED else header.position + header.length


def nextOf(each: CompleteFrame) -> int:
    """Return the offset of the next record; too small for rewritten frames, which are never the stream's last."""
    header = each.header
    if header.kind == FrameKind.GAP:
        return decodeGap(*each).next
    return header.baseOffset + header.count * (header.kind in (FrameKind.RECORDS, FrameKind.TRANSACTION))
