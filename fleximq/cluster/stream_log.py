"""Appends the commits of a shard's owner to its stream, in place of the journal's own file (/explanation/cluster).

Up to :data:`MOST` commits are under way. The frames of each are sealed once, chained to those of the one before; every
repetition appends the same bytes with the same expected sequence, so they can reach one slot of the stream only,
however late a copy of a request arrives. The slot alone decides the outcome of a request:

- the answer names the expected sequences, or the slot has these bytes: it is committed;
- the slot has other bytes: another owner has the shard, and this one stops and answers no client;
- the slot seems empty: the outcome is unknown, since reads may be old. The request is repeated until it is known.

A refusal is passed on only if no earlier copy of the request can still arrive, and no later commit was sent: that one
expects a message which would never be stored. The copy in the node's folder is written after the stream has the commit
and all before it, and the result is reported after that.

The requests of a deposed owner that still travel expect sequences up to that of its last commit. A late one would fit
after the first frame of the next owner, and break the chain. So this frame is stored in :data:`FENCE` messages at once,
more than all that may be expected by then: an owner sends no commit while those before it have so many messages.
"""

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from inspect import isawaitable
from itertools import pairwise
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from zope.interface import implementer

from fleximq.cluster.interfaces import HEADROOM, MOST_PIECES, ClusterError, Deposed, ICluster, Piece, Refused, Unknown
from fleximq.cluster.stream_replica import ReplicaError, StreamReplica
from fleximq.journal.format.control_frames import SegmentStart, encodeSegment, encodeStateRecords
from fleximq.journal.format.frame import HEADER_BYTES, Frame, FrameKind, seal
from fleximq.journal.writing.commit import Commit, ICommitLog
from fleximq.journal.writing.writer_thread import IWorker, reasonOf
from fleximq.limits import MEBIBYTE

#: The largest number of commits under way.
MOST = 4
#: The number of messages of the first frame of a term. All commits under way but the last have fewer together.
FENCE = 16
#: Seconds between two requests for the same slot.
RETRY = 0.35
#: Publications leave at least this many bytes of the stream free, or an eighth of it if that is less.
_RESERVE = 64 * MEBIBYTE
#: A copy that lacks more messages than this reads them in large batches before the stream is fenced.
_MANY = 50
#: After so many looks in succession in which the stream ends before the copy, it counts as set back.
_LOOKS = 8
#: Bytes of a message in the stream without its data; at least as many as the store counts.
_OVERHEAD = 200


@dataclass(slots=True)
class _Sealing:
    """The segment that is extended: frames receive their positions and check sums here."""

    base: int
    end: int
    id: int
    previous: int = 0

    def seal(self, frame: Frame) -> list[bytes | memoryview]:
        """Return a frame's bytes. Flag 1 is never set: it speaks of the disk of one node."""
        buffers, self.previous = seal(frame, self.id, self.end, self.previous)
        self.end += frame.length
        return buffers


@implementer(ICommitLog)
class StreamLog:
    """The end of a shard's stream, for one owner in one term.

    :param copy: the copy in this node's folder; while this log is in use, only it writes there.
    :param journal: the id of the journal, needed for an empty stream only.
    :param now: microseconds since 1970.
    :param randomId: returns 64 random bits.
    :param confirmed: called with the time at which an append was sent that the stream has accepted.
    :param heard: called with each message of another owner that :meth:`fence` reads.
    :param mayHurry: returns whether each node would begin a term with :data:`FENCE` messages, which earlier versions do
        not; otherwise one commit is under way.
    """

    def __init__(
        self,
        cluster: ICluster,
        shard: int,
        copy: StreamReplica,
        *,
        node: str,
        term: int,
        journal: str,
        clock: IReactorTime,
        now: Callable[[], int],
        randomId: Callable[[], int],
        confirmed: Callable[[float], None] = lambda sent: None,
        heard: Callable[[], None] = lambda: None,
        mayHurry: Callable[[], bool] = lambda: True,
    ) -> None:
        self._cluster = cluster
        self._shard = shard
        self._copy = copy
        self._owner = {"node": node, "term": term}
        self._journal = journal
        self._clock = clock
        self._now = now
        self._randomId = randomId
        self._confirmed = confirmed
        self._heard = heard
        self._mayHurry = mayHurry
        #: The end of the stream when all commits under way are stored: the segment, and the last sequence.
        self._segment = _Sealing(0, 0, 0)
        self._expected = 0
        #: The number of messages under way; ``_last`` fires when the last commit under way is stored.
        self._under = 0
        self._last: Deferred[None] | None = None
        #: Why a commit was refused, and all later ones are; another node takes the shard then.
        self._refusal: str | None = None
        self._stopped = False
        self._limit = self._left = self._opened = 0
        #: The looks in succession in which the stream had less than the copy.
        self._less = 0
        #: The last message of the stream when a message was not found there.
        self._streamEnd = 0
        #: How many messages of the stream have been lost there, and the one that is read next to see whether it is.
        self.lost = self._checked = 0
        self._unreadable: set[int] = set()

    def now(self) -> int:
        """Return the time, but never one before that of the stream's last frame: reads search by time."""
        return max(self._now(), self._copy.time)

    def stop(self) -> None:
        """Send no request any more: pending calls fail with :class:`Deposed`."""
        self._stopped = True

    # -- the room in the stream --------------------------------------------------------------------

    async def look(self) -> None:
        """Look how many bytes the stream may still have, whether it has all of the copy, and whether the next of its
        messages can be read, if the store answers; it may not know that its files are damaged. Raises ReplicaError if
        the stream was set back.
        """
        with suppress(Unknown, Refused):
            sequence = self._copy.sequence
            bounds = await self._cluster.bounds(self._shard)
            self._less = self._less + 1 if bounds.last < sequence else 0
            if self._less >= _LOOKS:
                raise ReplicaError(f"the stream ends with message {bounds.last}, but this copy has {sequence}")
            self._limit, self._left = bounds.limit, bounds.limit - bounds.bytes
            self._checked = self._checked + 1 if bounds.first <= self._checked < bounds.last else bounds.first
            checked, isEmpty = self._checked, bounds.last < bounds.first
            if isEmpty or await self._cluster.slot(self._shard, checked) is not None:
                self._unreadable.discard(checked)
            elif (await self._cluster.bounds(self._shard)).first <= checked:
                self._unreadable.add(checked)
            self._unreadable = {each for each in self._unreadable if each >= bounds.first}
            self.lost = bounds.last if isEmpty else max(bounds.lost, len(self._unreadable))

    @property
    def left(self) -> int | None:
        """The bytes that the stream may still have; None without a limit."""
        return self._left if self._limit else None

    def hasRoom(self, size: int) -> bool:
        """Whether publications of so many bytes leave the reserve in the stream. Without it, a full stream could get no
        first frame of another owner, no checkpoint, and no state records, which let messages expire.
        """
        return not self._limit or self._left - size > self._reserve

    @property
    def _reserve(self) -> int:
        return max(min(_RESERVE, self._limit // 8), 3 * self._opened)

    @property
    def most(self) -> int:
        """See :class:`ICommitLog`. One if the stream may become full: a refusal must be certain."""
        isRoomy = not self._limit or self._left > 2 * self._reserve
        return MOST if isRoomy and self._mayHurry() else 1

    # -- taking over -------------------------------------------------------------------------------

    async def fence(self) -> None:
        """Read the stream to its end, and append the first frame of this term there.

        Then no request of an earlier owner can be accepted any more, and the copy has all commits.

        :raises Deposed: :meth:`stop` was called; or the stream was trimmed beyond the end of the copy.
        :raises Refused: the stream has no room.
        :raises ReplicaError: the copy cannot be read on to the end of the stream, or has more than it.
        """
        copy = self._copy
        await self._readOn()
        while True:
            held = await self._slot(copy.received + 1)
            if held is None and not copy.incomplete:
                if not copy.usable:
                    raise ReplicaError("this copy has more than the stream")
                time = self.now()
                segment = _Sealing(copy.end, copy.end, self._randomId())
                start = SegmentStart(copy.journal or self._journal, time)
                data = b"".join(segment.seal(encodeSegment(start, copy.next, self._owner)))
                pieces = _fencePieces(data, segment.end, copy.next)
                held = await self._settle(copy.sequence, pieces, isFence=True)
                if held is None:
                    copy.write(copy.sequence + len(pieces), data, segment.end, copy.next)
                    self._segment, self._expected = segment, copy.sequence
                    await self.look()
                    self._checkStopped()
                    return
            if held is None:
                await self._sleep()
            else:
                self._heard()
                copy.receive(copy.received + 1, held)

    async def _readOn(self) -> None:
        """Read on to the present end of the stream if the copy lacks many messages."""
        copy, last = self._copy, 0
        with suppress(ClusterError):
            last = (await self._cluster.bounds(self._shard)).last
        if last - copy.received <= _MANY:
            return
        ended: Deferred[None] = Deferred()

        def received(messages: Sequence[tuple[int, Piece]]) -> None:
            if ended.called:
                return
            try:
                self._checkStopped()
                self._heard()
                copy.receiveAll(messages)
            except (Deposed, ReplicaError) as error:
                ended.errback(error)
                return
            if copy.received >= last:
                ended.callback(None)

        stop = self._cluster.follow(self._shard, copy.received + 1, received)
        try:
            await ended
        finally:
            stop()

    # -- commits -----------------------------------------------------------------------------------

    async def carryOut(self, commit: Commit) -> None:
        """Append a commit and fill in its result. Raises Deposed if another owner has the shard, and ReplicaError if
        the commit is stored, but not in the copy; no outcome may be reported then.
        """
        began, before, stored = self._clock.seconds(), self._last, Deferred[None]()
        expected, ahead = self._expected, self._under
        if self._refusal is not None:
            commit.reason = self._refusal
            return
        try:
            segment, data = self._sealed(commit)
            pieces = self._pieces(data, segment.end, commit.next)
        except Exception as error:
            commit.error, self._refusal = error, reasonOf(error)
            commit.reason = self._refusal
            return
        last = expected + len(pieces)
        self._segment, self._expected, self._last = segment, last, stored
        self._under += len(pieces)
        if before is not None and ahead >= FENCE:
            await before
        try:
            other = await self._settle(expected, pieces, before)
        except Refused as error:
            if self._expected != last:
                raise Deposed("the stream is full, and later commits are under way") from error
            commit.reason = self._refusal = reasonOf(error)
            return
        if other is not None:
            raise Deposed(f"message {expected + 1} of the stream is of another owner")
        if before is not None:
            await before
        self._copy.write(last, data, segment.end, commit.next)
        self._under -= len(pieces)
        self._left -= len(data) + len(pieces) * _OVERHEAD
        if commit.opening is not None:
            self._opened = sum(each.length for _, each in commit.written if each.kind is FrameKind.CHECKPOINT)
        commit.end = segment.end
        commit.length = segment.end - segment.base
        commit.seconds = self._clock.seconds() - began
        if self._last is stored:
            self._last = None
        stored.callback(None)

    def _sealed(self, commit: Commit) -> tuple[_Sealing, bytes]:
        """Return the frames of a commit, an empty NOTES frame if it has none, and the segment as they leave it. So each
        commit is an append, which shows whether this node still owns the shard.
        """
        segment = replace(self._segment)
        if commit.opening is not None:
            commit.opening.owner = self._owner
            segment = _Sealing(segment.end, segment.end, self._randomId())
            commit.begun = segment.base, segment.id
        buffers: list[bytes | memoryview] = []

        def add(frame: Frame) -> None:
            commit.written.append((segment.end, frame))
            buffers.extend(segment.seal(frame))
            if frame.kind is FrameKind.RECORDS:
                frame.pieces = ()

        for frame in commit.frames(segment):
            add(frame)
        if not buffers:
            add(encodeStateRecords([], commit.next, self.now()))
        return segment, b"".join(buffers)

    def _pieces(self, data: bytes, end: int, nextOffset: int) -> Sequence[Piece]:
        """Return a commit as messages of the stream. Raises ValueError if it is too large for the store."""
        most = self._cluster.maxPayload - HEADROOM
        parts = [data[at : at + most] for at in range(0, len(data), most)]
        if len(parts) > MOST_PIECES:
            raise ValueError(f"a commit of {len(data)} bytes is too large for the cluster")
        return [Piece(part, end, nextOffset, len(parts) - number) for number, part in enumerate(parts, 1)]

    async def put(self, expected: int, data: bytes, end: int, nextOffset: int) -> int:
        """Append sealed frames, not to the copy; return the last sequence. Raises Deposed and Refused."""
        pieces = self._pieces(data, end, nextOffset)
        if await self._settle(expected, pieces) is not None:
            raise Deposed(f"message {expected + 1} of the stream is of another node")
        return expected + len(pieces)

    # -- requests ----------------------------------------------------------------------------------

    async def _settle(
        self, expected: int, pieces: Sequence[Piece], before: "Deferred[None] | None" = None, isFence: bool = False
    ) -> Piece | None:
        """Append until the slot is decided; return None if it has these pieces, else the message of another owner. They
        are sent at once, but repeated only after ``before`` has fired: the messages before them are stored then.

        :raises Deposed: see :meth:`fence`; or the store has put these pieces into another slot.
        :raises Refused: the store has no room, and no copy of this request can arrive any more.
        :raises ReplicaError: a fence does not fit, since the stream ends before the copy.
        """
        uncertain, looks = False, 0
        while True:
            self._checkStopped()
            sent = self._clock.seconds()
            try:
                last = await self._cluster.append(self._shard, expected, pieces)
            except Refused:
                self._checkStopped()
                if not uncertain:
                    raise
            except Unknown:
                uncertain = True
            else:
                self._checkStopped()
                if last != expected + len(pieces):
                    raise Deposed(f"the stream has put message {expected + 1} at {last - len(pieces) + 1}")
                self._confirmed(sent)
                return None
            if before is not None:
                await before
            held = await self._slot(expected + 1)
            if held is not None:
                return None if held.data == pieces[0].data else held
            looks = looks + 1 if isFence and self._streamEnd < expected else 0
            if looks >= _LOOKS:
                raise ReplicaError(f"the stream ends with message {self._streamEnd}, but this copy has {expected}")
            await self._sleep()

    async def _slot(self, sequence: int) -> Piece | None:
        """Return a message, None if unknown. Raises Deposed if it was removed since, or :meth:`stop` was called."""
        self._checkStopped()
        held, first, self._streamEnd = None, 0, sequence
        with suppress(Unknown, Refused):
            held = await self._cluster.slot(self._shard, sequence)
            if held is None:
                bounds = await self._cluster.bounds(self._shard)
                first, self._streamEnd = bounds.first, bounds.last
        self._checkStopped()
        if first > sequence:
            raise Deposed(f"message {sequence} was removed from the stream, which begins with {first}")
        return held

    async def _sleep(self) -> None:
        await deferLater(self._clock, RETRY)
        self._checkStopped()

    def _checkStopped(self) -> None:
        if self._stopped:
            raise Deposed("this node does not own the shard any more")


def _fencePieces(data: bytes, end: int, nextOffset: int) -> Sequence[Piece]:
    """Return the first frame of a term as :data:`FENCE` messages; the first one has its header, by which followers know
    it.
    """
    rest = len(data) - HEADER_BYTES
    cuts = [0, *(HEADER_BYTES + rest * number // (FENCE - 1) for number in range(FENCE))]
    parts = [data[begin:to] for begin, to in pairwise(cuts)]
    return [Piece(part, end, nextOffset, FENCE - number) for number, part in enumerate(parts, 1)]


@dataclass(slots=True, eq=False)
class _Work:
    """Work under way: ``done`` is called when it, and all before it, is done."""

    done: Callable[[], None]
    isDone: bool = False


@implementer(IWorker)
class StreamWorker:
    """Does the work of an owner's :class:`StreamLog` at once, and reports it in order, on the reactor's thread, as an
    ``IWorker``.

    :param ended: called once, with the error that ends the work for good: from then on no result is reported.
    """

    def __init__(self, clock: IReactorTime, ended: Callable[[Exception], None]) -> None:
        self._clock = clock
        self._ended = ended
        self._under: deque[_Work] = deque()
        self._running = 0
        self._stopped = False

    def start(self) -> None:
        """No thread is needed."""

    def hand(self, work: Callable[[], object], done: Callable[[], None]) -> None:
        """See :class:`IWorker`; the work may return an awaitable."""
        if not self._stopped:
            self._under.append(each := _Work(done))
            Deferred.fromCoroutine(self._run(work, each)).addErrback(self._failed)

    def remind(self, seconds: float, call: Callable[[], None]) -> None:
        """See :class:`IWorker`."""
        self._clock.callLater(seconds, self._remindNow, call)

    def _remindNow(self, call: Callable[[], None]) -> None:
        if not self._stopped:
            call()

    def drain(self, seconds: float = 0.0) -> bool:
        """Return False: finished work has been reported already, and more cannot be waited for."""
        return False

    def stop(self, seconds: float) -> bool:
        """Report no further result; False if an append is under way."""
        self._stopped = True
        return not self._running

    async def _run(self, work: Callable[[], object], each: _Work) -> None:
        self._running += 1
        try:
            result = work()
            if isawaitable(result):
                await result
        finally:
            self._running -= 1
        each.isDone = True
        while self._under and self._under[0].isDone and not self._stopped:
            self._under.popleft().done()

    def _failed(self, failure: Any) -> None:
        if not self._stopped:
            self._stopped = True
            self._ended(failure.value)
