"""A broker's journal, read through the broker; the counterpart of :mod:`fleximq.pipeline.files.journal_files`. The
broker returns complete frames from any position on, and their offsets ascend. So an offset or time is found by
bisection, with a dozen requests for a GiB; visited positions are cached.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import pairwise
from platform import machine
from typing import Any, NamedTuple

import pyarrow as pa

from fleximq.journal.files.record_distance import Distance
from fleximq.journal.files.segment_summary import assignOffsets
from fleximq.journal.format.control_frames import decodeGap, decodeTransaction, isJournalId
from fleximq.journal.format.frame import FrameError, FrameHeader, FrameKind, readHeader
from fleximq.limits import KIBIBYTE, MEBIBYTE
from fleximq.pipeline.broker_link import Behind, BrokerAddress, BrokerLink, Check
from fleximq.pipeline.errors import BrokerRefused
from fleximq.pipeline.files.folder import End
from fleximq.pipeline.files.frame_columns import RECORDS, PlacedFrame, decodeFrames, offsetsAndTimes
from fleximq.pipeline.files.journal_files import OffsetBounds
from fleximq.pipeline.files.selection import NEVER, SLICE_BYTES, SegmentRange, Selection, Slice, Topics
from fleximq.pipeline.files.slice_reader import Missing, Placed, placedFrames

#: Maximum bytes of one response.
RESPONSE_BYTES = 4 * MEBIBYTE
#: Precision of a bisection in bytes; frames before the start are skipped.
STEP = 256 * KIBIBYTE
#: Whether the processor reads unaligned numbers: frames in a response are not aligned.
_READS_UNALIGNED = machine().lower() in ("x86_64", "amd64", "aarch64", "arm64")
#: Maximum number of cached positions.
_TRIED = 10_000
#: The numbers of an answer to /journal/bounds, of one to /journal/read, and of one to /journal/advance.
_BOUNDS, _READ, _ADVANCE = ("position", "end"), ("end", "next"), ("offset", "records", "bytes")
Frame = tuple[FrameHeader, memoryview]


class Answer(NamedTuple):
    """Frames in a response: the start of each in ``data``, and the position to continue from."""

    data: memoryview
    frames: list[tuple[int, FrameHeader]]
    next: int


def ask(link: BrokerLink, journal: str, position: int, least: int, maxBytes: int = RESPONSE_BYTES) -> Answer:
    """Request the complete frames from a position on, at most so many bytes, or one frame; none at the end. A cluster's
    node is passed over if its journal ends before ``least``. Raises PipelineError as :class:`RemoteJournal`, or for a
    malformed answer.
    """
    answer = link.askLarge(
        "/journal/read", {"position": position, "most": maxBytes}, _reaching(link, "end", least, _READ)
    )
    _check(link, journal, answer.get("journal"))
    if not isinstance(answer.get("data"), bytes | memoryview):
        raise _malformed(link)
    data = memoryview(answer["data"] if _READS_UNALIGNED else bytes(answer["data"]))
    frames, at = [], 0
    try:
        while at < len(data):
            header = readHeader(data, at)
            frames.append((at, header))
            at += header.length
        if at > len(data):
            raise FrameError("the last one is cut off")
    except FrameError as error:
        raise _unreadable(link.place.url, error) from error
    # Whoever asks goes on there.
    if frames and answer["next"] <= position:
        raise _malformed(link)
    return Answer(data, frames, answer["next"])


def _unreadable(url: str, error: FrameError) -> BrokerRefused:
    return BrokerRefused(f"the broker at {url} sent frames that cannot be read: {error}")


def _malformed(link: BrokerLink) -> BrokerRefused:
    return BrokerRefused(f"the broker at {link.place.url} sent a malformed answer")


def _checkNumbers(link: BrokerLink, answer: Any, numbers: Sequence[str]) -> None:
    if not isinstance(answer, dict) or any(type(answer.get(each)) is not int for each in numbers):
        raise _malformed(link)


def _reaching(link: BrokerLink, name: str, least: int, numbers: Sequence[str]) -> Check:
    """Return a check of answers, which have a journal and these numbers; that called ``name`` is the journal's end."""

    def checked(answer: Any) -> Any:
        _checkNumbers(link, answer, numbers)
        if answer[name] < least and link.place.addresses > 1:
            raise Behind(f"its journal ends at position {answer[name]}, before {least}")
        return answer

    return checked


def _check(link: BrokerLink, journal: str, found: object) -> None:
    """Raise BrokerRefused unless a broker, which may have been restarted, still has the same journal."""
    if found != journal:
        raise BrokerRefused(
            f"the broker at {link.place.url} has the journal {str(found)[:40]} now, not {journal} any more"
        )


class RemoteJournal:
    """The journal of one broker; ``id`` is the journal's, ``path`` the broker's URL; for one thread. Every method
    raises PipelineError if the broker is away for too long, refuses the login, or has no journal.
    """

    def __init__(self, place: BrokerAddress) -> None:
        self.path = place.url
        self._link = BrokerLink(place)
        self._tried: dict[int, FrameHeader] = {}
        # The furthest end that a node has reported.
        self._least = 0
        self.id: str = self._about().get("journal", "")
        # It becomes part of the names of files.
        if not isJournalId(self.id):
            raise BrokerRefused(
                f"the id of the journal at {place.url} is {str(self.id)[:40]!r}, but must be 32 hexadecimal digits"
            )

    def close(self) -> None:
        """Close the connection; the next request opens it again."""
        self._link.close()

    def _about(self) -> dict[str, Any]:
        check = _reaching(self._link, "position", self._least, _BOUNDS)
        found: dict[str, Any] = self._link.ask("/journal/bounds", {"limit": 1, "topics": False}, check)
        self._least = found["position"]
        return found

    @property
    def mayLag(self) -> bool:
        """Whether nodes of a cluster answer, which may have less than another one."""
        return self._link.place.addresses > 1

    def end(self) -> End:
        """Return the durable end of the journal."""
        about = self._about()
        _check(self._link, self.id, about.get("journal"))
        return End(about["position"], about["end"])

    def _answers(self, position: int) -> Iterator[Answer]:
        """Request the frames from a position to the end."""
        while (answer := ask(self._link, self.id, position, self._least, STEP)).frames:
            yield answer
            position = answer.next

    def bounds(self) -> OffsetBounds:
        """Return the first retained offset and the next one; both are equal if the journal is empty."""
        end = self.end()
        for answer in self._answers(0):
            for _, header in answer.frames:
                if header.kind in (*RECORDS, FrameKind.TRANSACTION, FrameKind.GAP):
                    return OffsetBounds(min(header.baseOffset, end.offset), end.offset)
        return OffsetBounds(end.offset, end.offset)

    def offsetAt(self, time: int) -> int:
        """Return the offset of the first record of this time or later (us since 1970), or else the next. Records of a
        transaction count with the time of the transaction.
        """
        end = self.end()
        position, _ = self._search(lambda header: header.lastTime >= time, end.position)
        for answer in self._answers(position):
            for at, header in answer.frames:
                if header.lastTime < time:
                    continue
                if header.kind == FrameKind.TRANSACTION and header.count:
                    return header.baseOffset
                if header.kind in RECORDS:
                    offsets, times = next(offsetsAndTimes(answer.data, [PlacedFrame(at)]))
                    return int(offsets[(times >= time).argmax()])
        return end.offset

    def advance(self, start: int, end: int, records: int | None, size: int | None) -> Distance:
        """Do as :meth:`fleximq.pipeline.files.journal_files.JournalFiles.advance`."""
        counted = Distance(start, 0, 0)
        while counted.offset < end:
            done = (("records", records, counted.records), ("bytes", size, counted.bytes))
            limits = {name: limit - number for name, limit, number in done if limit is not None}
            if counted.records and min(limits.values(), default=1) <= 0:
                break
            asked = {name: max(limit, 1) for name, limit in limits.items()}
            found = self._link.ask("/journal/advance", {"start": counted.offset, "end": end, **asked})
            _checkNumbers(self._link, found, _ADVANCE)
            if found["offset"] <= counted.offset:
                raise _malformed(self._link)
            if counted.records and "bytes" in limits and found["bytes"] > limits["bytes"]:
                break
            counted = Distance(found["offset"], counted.records + found["records"], counted.bytes + found["bytes"])
            if not found["records"]:
                break
        return counted

    def slices(
        self,
        start: int,
        end: int,
        topics: Topics | None = None,
        parts: int = 1,
        since: int = NEVER,
        sliceBytes: int = SLICE_BYTES,
    ) -> list[Slice]:
        """Do as JournalFiles.slices, but parts are a frame or more, and none is skipped: the broker gives no index."""
        if start >= end:
            return []
        last = self.end()
        until = last.position
        if end < last.offset:
            _, behind = self._search(lambda header: header.baseOffset >= end, until)
            after = self._try(behind)
            until = until if after is None else after.position
        first = self._try(0)
        if first is not None and first.baseOffset < start:
            begin, _ = self._search(lambda header: header.baseOffset > start, last.position)
            first = self._try(begin)
        if first is None or first.position >= until:
            return []
        cuts = [(first.position, max(start, first.baseOffset))]
        number = max(parts, -(-(until - first.position) // sliceBytes))
        for part in range(1, number):
            header = self._try(first.position + (until - first.position) * part // number)
            if header is not None and cuts[-1][0] < header.position < until and header.baseOffset < end:
                cuts.append((header.position, max(start, header.baseOffset)))
        cuts.append((until, min(end, last.offset)))
        return [
            Slice(
                self.path,
                self.id,
                start,
                end,
                last.position,
                (SegmentRange(0, one[0], nextOffset[0], one[1], nextOffset[1]),),
            )
            for one, nextOffset in pairwise(cuts)
        ]

    def _search(self, holds: Callable[[FrameHeader], bool], end: int) -> tuple[int, int]:
        """Return two positions, about a step apart, between which a condition becomes true for good."""
        low, high = 0, end
        while high - low > STEP:
            middle = (low + high) // 2 // STEP * STEP
            if middle <= low:
                break
            header = self._try(middle)
            if header is None or holds(header):
                high = middle
            else:
                low = middle
        return low, high

    def _try(self, position: int) -> FrameHeader | None:
        """Return the header of the first frame from a position on; None at the end."""
        known = self._tried.get(position)
        if known is None:
            frames = ask(self._link, self.id, position, self._least, 1).frames
            if not frames:
                return None
            if len(self._tried) >= _TRIED:
                self._tried.clear()
            known = self._tried[position] = frames[0][1]
        return known


def readRemote(
    part: Slice, place: BrokerAddress, columns: Sequence[str], selection: Selection, missing: Callable[[Missing], None]
) -> Iterator[pa.RecordBatch]:
    """Yield the selected records of a slice as batches of columns, ordered by offset. Exceptions of ``missing`` end the
    read. Raises PipelineError as :class:`RemoteJournal`, or if the broker has another journal now.
    """
    selection = selection.within(part.start, part.end)
    with BrokerLink(place) as link, ThreadPoolExecutor(1) as pool:

        def request(position: int, maxBytes: int = RESPONSE_BYTES) -> Future[Answer]:
            return pool.submit(ask, link, part.journal, position, part.limit, maxBytes)

        try:
            for data, places in _RemoteReader(request, part, missing).frames():
                yield from decodeFrames(data, places, columns, part.journal, selection)
        except FrameError as error:
            raise _unreadable(part.path, error) from error


class _RemoteReader:
    """Reads a slice, once; the next frames are requested while the previous ones are decoded."""

    def __init__(self, request: Callable[..., Future[Answer]], part: Slice, missing: Callable[[Missing], None]) -> None:
        self._request = request
        self._slice = part
        self._missing = missing
        # The expected next offset; None after a frame with an unknown last offset.
        self._next: int | None = None
        self._held: dict[int, Frame] = {}

    def frames(self) -> Iterator[Placed]:
        """Yield frames with records, including those of transactions."""
        for piece in self._slice.pieces:
            self._next = piece.first
            coming: Future[Answer] | None = self._request(piece.position)
            while coming is not None:
                answer = coming.result()
                if not answer.frames or answer.frames[0][1].position >= piece.until:
                    break
                coming = self._request(answer.next) if answer.next < piece.until else None
                passed = self._passed(answer, piece.until)
                yield from placedFrames(answer.data, passed, self._slice, self._published)
            self._reached(piece.next)

    def _passed(self, answer: Answer, until: int) -> Iterator[tuple[int, FrameHeader]]:
        """Yield the frames up to a position, and note which offsets they have."""
        for at, header in answer.frames:
            if header.position >= until:
                return
            base = header.baseOffset
            self._reached(base)
            self._next = _nextOffset(header, answer.data[at : at + header.length])
            if header.kind == FrameKind.REMOVED and header.count and base < self._slice.end:
                self._missing(Missing(base, base + header.count, "retention has taken some out", lost=False))
            yield at, header

    def _reached(self, offset: int) -> None:
        """Continue at an offset, and report the missing records before it."""
        if self._next is not None:
            self._lost(self._next, offset, "the broker's journal has them no more")
        self._next = offset

    def _lost(self, first: int, nextOffset: int, why: str) -> None:
        first, nextOffset = max(first, self._slice.start), min(nextOffset, self._slice.end)
        if first < nextOffset:
            self._missing(Missing(first, nextOffset, why))

    def _published(self, header: FrameHeader, frame: memoryview) -> Iterator[Placed]:
        transaction = decodeTransaction(header, frame)
        if transaction.aborted:
            return
        positions = transaction.staged
        offset, behind = header.baseOffset, header.baseOffset + header.count
        for place, position in enumerate(positions):
            staged = self._staged(position, positions[place:])
            if staged is None or offset + staged[0].count > behind:
                yield from self._publishedInPart(positions[place:], offset, behind)
                return
            yield from self._within(staged, offset)
            offset += staged[0].count

    def _publishedInPart(self, positions: Sequence[int], offset: int, behind: int) -> Iterator[Placed]:
        """Yield those of some staged frames with known offsets, although others are gone."""
        found = [self._staged(position, positions) for position in positions]
        counts = [None if staged is None else staged[0].count for staged in found]
        offsets, gap = assignOffsets(counts, offset, behind - offset)
        if gap is not None:
            self._lost(*gap, "the records staged there are damaged or gone")
        for staged, first in zip(found, offsets, strict=True):
            if staged is not None and first is not None:
                yield from self._within(staged, first)

    def _within(self, staged: Frame, first: int) -> Iterator[Placed]:
        header, frame = staged
        if first < self._slice.end and first + header.count > self._slice.start:
            yield frame, [PlacedFrame(0, first)]

    def _staged(self, position: int, positions: Sequence[int]) -> Frame | None:
        """Return the staged frame at a position, None if it is gone; caches wanted ones from the same response."""
        if position not in self._held:
            near = any(position < each < position + RESPONSE_BYTES for each in positions)
            answer = self._request(position, maxBytes=RESPONSE_BYTES if near else 1).result()
            self._held = {
                header.position: (header, answer.data[at : at + header.length])
                for at, header in answer.frames
                if header.kind == FrameKind.STAGED
            }
        return self._held.get(position)


def _nextOffset(header: FrameHeader, frame: memoryview) -> int | None:
    if header.kind in (FrameKind.SPARSE_RECORDS, FrameKind.REMOVED):
        return None
    if header.kind in (FrameKind.RECORDS, FrameKind.TRANSACTION):
        return header.baseOffset + header.count
    return decodeGap(header, frame).next if header.kind == FrameKind.GAP else header.baseOffset
