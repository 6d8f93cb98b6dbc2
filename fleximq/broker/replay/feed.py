"""A feed: delivers the journal to one connection, first stored records, then live runs, without gap or duplicate.

A feed reads in chunks, the next one after its connection has taken the last. At the end of the journal it is live and
passes on runs as they are committed. When its connection is overloaded it reads again, so it uses little memory however
slow the connection is. One feed serves all subscriptions of a connection that need the journal; each has a range of
topics from an offset on. It reads once for all of them, in the order of offsets, so it delivers each message once.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import partial
from heapq import heappop, heappush
from typing import Any

from zope.interface import Attribute, Interface, implementer

from fleximq.broker.envelope import Envelope
from fleximq.broker.replay.expiry import RecordExpiry
from fleximq.broker.topics.topic_table import Topic
from fleximq.broker.topics.wildcard_tree import Wildcards
from fleximq.errors import BrokerError, NoLongerKept
from fleximq.interfaces import IForm, IJournalRead, ISubscriberProxy
from fleximq.values.records import StoredBatch
from fleximq.values.transitions import Transitions

#: So many bytes are read at a time where single messages are looked for.
SEARCH_BYTES = 1 << 16
#: So many bytes, or one record, are rendered in a slice: converting hostile payloads takes 0.3 us for each byte.
_SLICE_BYTES = 1 << 15
#: A record without payload counts as this many.
_RECORD_BYTES = 32
#: Ranges that start within so many offsets are read together, as a read costs the same for any number of ranges.
_TOGETHER = 1 << 16
#: So many removals are compared with ranges in one turn of the reactor, about 1 ms.
_COMPARED_AT_ONCE = 2000
#: An offset that no record has.
_NEVER = 1 << 64
#: With more ranges, looking at the start of each takes longer than adding one.
_FEW = 64


class FeedState(Enum):
    """What a feed does at present; IDLE: its next step is scheduled, or a range has no start yet."""

    IDLE = auto()
    READING = auto()
    SENDING = auto()
    WAITING_FOR_SPACE = auto()
    LIVE = auto()
    FAILING = auto()
    CLOSED = auto()


class FeedEvent(Enum):
    """What changes a feed's state; FELL_BEHIND: publications must be read from the journal."""

    READ = auto()
    READ_ENDED = auto()
    FOUND = auto()
    SENT = auto()
    OUTLET_FULL = auto()
    RELIEVED = auto()
    CAUGHT_UP = auto()
    FELL_BEHIND = auto()
    FAILED = auto()
    RANGES_ENDED = auto()
    CLOSE = auto()


#: A running read continues after a change of ranges; its result is discarded.
FEED_TRANSITIONS: Transitions[FeedState, FeedEvent] = Transitions(
    {
        (FeedState.IDLE, FeedEvent.READ): FeedState.READING,
        (FeedState.READING, FeedEvent.READ_ENDED): FeedState.IDLE,
        (FeedState.IDLE, FeedEvent.FOUND): FeedState.SENDING,
        (FeedState.SENDING, FeedEvent.SENT): FeedState.IDLE,
        (FeedState.IDLE, FeedEvent.OUTLET_FULL): FeedState.WAITING_FOR_SPACE,
        (FeedState.WAITING_FOR_SPACE, FeedEvent.RELIEVED): FeedState.IDLE,
        (FeedState.IDLE, FeedEvent.CAUGHT_UP): FeedState.LIVE,
        (FeedState.LIVE, FeedEvent.FELL_BEHIND): FeedState.IDLE,
        (FeedState.IDLE, FeedEvent.FAILED): FeedState.FAILING,
        (FeedState.READING, FeedEvent.FAILED): FeedState.FAILING,
        (FeedState.FAILING, FeedEvent.RANGES_ENDED): FeedState.IDLE,
    }
    | {(state, FeedEvent.FELL_BEHIND): state for state in FeedState if state is not FeedState.LIVE}
    | {(state, FeedEvent.CLOSE): FeedState.CLOSED for state in FeedState}
    | dict.fromkeys(
        [
            (FeedState.CLOSED, each)
            for each in (FeedEvent.READ_ENDED, FeedEvent.SENT, FeedEvent.RELIEVED, FeedEvent.RANGES_ENDED)
        ],
        FeedState.CLOSED,
    )
)


class DeferredRun:
    """A run that is rendered when the first feed sends it, since many feeds may still be reading earlier records."""

    __slots__ = ("_body", "_envelope", "_form", "_rendered", "count", "offset")

    def __init__(self, form: IForm, envelope: Envelope, body: Any, count: int) -> None:
        self.offset = envelope.offset
        self.count = count
        self._form = form
        self._envelope = envelope
        self._body = body
        self._rendered: Any = None

    def rendered(self) -> Any:
        """Return the rendered run."""
        if self._rendered is None:
            self._rendered = self._form.render(self._envelope, self._body, self.count)
        return self._rendered


@implementer(IForm)
class DeferredForm:
    """The form of feeds: runs with their offsets, rendered in another form when they are sent."""

    def __init__(self, form: IForm) -> None:
        self._form = form

    def render(self, envelope: Envelope, body: Any, count: int) -> DeferredRun:
        return DeferredRun(self._form, envelope, body, count)


class IOutlet(Interface):
    """The connection's side of a feed; its dialect makes it."""

    form = Attribute("""The :class:`DeferredForm`, one for all connections that receive the same bytes.""")
    subscriber = Attribute("""The :class:`fleximq.interfaces.ISubscriber` that the feed replaces in its ranges.""")
    chunkBytes = Attribute("""About how many bytes to read at a time.""")
    slices = Attribute("""The :class:`Slices` that render records if that can be slow; None: at once.""")
    full = Attribute("""Whether the connection has too much unsent output.""")

    def whenRelieved(call: Callable[[], None]) -> None:
        """Call once it is not full any more; never, if the connection ends."""

    def soon(call: Callable[[], None]) -> None:
        """Call in a later reactor turn."""

    def send(rendered: Any) -> None:
        """Send a run; it does not count as unread output of a slow consumer."""

    def sendBatches(batches: Sequence[StoredBatch]) -> None:
        """Send records, likewise."""

    def failed(error: BrokerError, name: str) -> None:
        """Report that the subscription of this name has ended."""

    def close() -> None:
        """End the output."""


@dataclass(slots=True, eq=False, repr=False)
class FeedRange:
    """The topics of one subscription, from an offset on; ``start`` is None while the offset is looked up.

    ``since`` is the number of removals (:meth:`fleximq.interfaces.IJournalRead.removedSince`) before it was made.
    Records that were older than their retention at the time ``made``, in microseconds, are left out. A record that
    becomes too old later, before it is delivered, ends the range with an error. With a ``made`` of 0, as for a start at
    an offset, every record that is too old does.
    """

    name: str
    literal: bool
    matches: Callable[[str], bool]
    since: int
    made: int
    start: int | None = None


@implementer(ISubscriberProxy)
@dataclass(eq=False, repr=False)
class Feed:
    """Follows the journal for one connection.

    :param permanent: the feed stays when it is live; otherwise it waits for pending deliveries, calls ``done``, and the
        connection's own subscriptions take over.
    :param expiry: tells which records are not to be delivered any more.
    :param coveredElsewhere: tells whether another feed of the connection delivers a topic.
    :param waits: returns whether committed publications wait for delivery, and if so calls after it.
    :param lost: called with a range's name and the error that ended it.
    """

    _journal: IJournalRead
    outlet: IOutlet
    permanent: bool
    _expiry: RecordExpiry
    _coveredElsewhere: Callable[[str], bool]
    _waits: Callable[[Callable[[], None]], bool]
    _done: Callable[[], None]
    _lost: Callable[[str, BrokerError], None]
    ranges: dict[str, FeedRange] = field(default_factory=dict)
    _patterns: Wildcards = field(default_factory=Wildcards)
    _singles: list[tuple[int, str]] = field(default_factory=list)  # a heap
    _singleTopics: Counter[str] = field(default_factory=Counter)
    _compared: int = 0  # so many removals were compared with the ranges
    _state: FeedState = FeedState.IDLE
    _willProceed: bool = False
    _round: int = 0  # results of reads started in an earlier round are ignored
    _position: int = 0  # while it is live: all before this was delivered

    def __post_init__(self) -> None:
        self.form = self.outlet.form

    @property
    def isLive(self) -> bool:
        """Whether everything in the journal was delivered."""
        return self._state is FeedState.LIVE

    def addRange(self, feedRange: FeedRange) -> None:
        """Deliver a range from its start on; one of the same name restarts."""
        if not self.ranges:
            self._compared = feedRange.since
        self._fallBehind()
        self._drop(feedRange.name)
        self.ranges[feedRange.name] = feedRange
        if not feedRange.literal:
            self._patterns.add(feedRange, feedRange.name)
        self._proceedSoon()

    def addSingles(self, feedRange: FeedRange, singles: Iterable[tuple[int, str]]) -> bool:
        """Deliver single messages, offsets with their topics, before a range without a start; False: it was removed."""
        if self.ranges.get(feedRange.name) is not feedRange:
            return False
        for offset, name in singles:
            heappush(self._singles, (offset, name))
            self._singleTopics[name] += 1
        return True

    def place(self, feedRange: FeedRange, start: int) -> None:
        """Start a range at the offset that was looked up; a no-op if it was removed."""
        if self.ranges.get(feedRange.name) is feedRange:
            self._fallBehind()
            feedRange.start = start
            self._proceedSoon()

    def failRange(self, feedRange: FeedRange, error: BrokerError) -> None:
        """End a range with an error; a no-op if it was removed."""
        if self.ranges.get(feedRange.name) is feedRange:
            self._lost(feedRange.name, error)

    def removeRange(self, name: str) -> bool:
        """Stop delivering a range; False if it does not exist."""
        if not self._drop(name):
            return False
        self.readAgain()
        return True

    def accepts(self, topic: Topic) -> bool:
        """Tell whether this feed delivers publications to a topic; a pattern covers durable topics only."""
        return self._coversLiterally(topic.name) or (topic.durable and self._matches(topic.name))

    def covers(self, name: str) -> bool:
        """Tell whether this feed delivers the journal's records of a topic."""
        return self._coversLiterally(name) or self._matches(name)

    def _coversLiterally(self, name: str) -> bool:
        found = self.ranges.get(name)
        return found is not None and found.literal and found.matches(name)

    def _matches(self, name: str) -> bool:
        return bool(self._patterns) and any(each.matches(name) for each in self._patterns.matching(name))

    def _drop(self, name: str) -> bool:
        feedRange = self.ranges.pop(name, None)
        if feedRange is not None and not feedRange.literal:
            self._patterns.remove(feedRange, name)
        return feedRange is not None

    def readAgain(self) -> None:
        """Read publications from the journal that were not delivered."""
        self._fallBehind()
        self._proceedSoon()

    def close(self) -> None:
        """Stop permanently."""
        self.ranges.clear()
        self._patterns = Wildcards()
        self._singles.clear()
        self._enter(FeedEvent.CLOSE)
        self._round += 1
        self.outlet.close()

    def deliver(self, run: DeferredRun, count: int) -> None:
        """Send a volatile run, or a committed one unless it is still to be read, or was read already."""
        if not run.offset:
            self.outlet.send(run.rendered())
        elif self._state is FeedState.LIVE and run.offset + count > self._position:
            if self.outlet.full or run.offset < self._position:
                self.readAgain()
            else:
                self._position = run.offset + count
                self.outlet.send(run.rendered())

    def _fallBehind(self) -> None:
        """Stop sending live runs; later ones have to be read."""
        self._round += 1
        wasLive = self._state is FeedState.LIVE
        self._enter(FeedEvent.FELL_BEHIND)
        if wasLive:
            for feedRange in self.ranges.values():
                if feedRange.start is not None:
                    feedRange.start = max(feedRange.start, self._position)

    def _proceedSoon(self) -> None:
        """Start the next step after a change of ranges; if they are many, once for all changes of this turn."""
        if len(self.ranges) <= _FEW:
            self._proceed()
        elif not self._willProceed:
            self._willProceed = True
            self.outlet.soon(self._proceed)

    def _proceed(self) -> None:
        """Start the next step when idle and all starts are known."""
        self._willProceed = False
        if self._state is not FeedState.IDLE:
            return
        starts = [feedRange.start for feedRange in self.ranges.values()]
        places = [start for start in starts if start is not None]
        if not starts or len(places) < len(starts):
            return
        if self.outlet.full:
            self._enter(FeedEvent.OUTLET_FULL)
            self.outlet.whenRelieved(self._relieved)
        elif self._singles:
            offset = self._singles[0][0]
            self._read(offset, self._singleTopics.__contains__, SEARCH_BYTES, self._foundSingles)
        elif min(places) >= self._journal.end:
            self._caughtUp(min(places))
        else:
            position = min(places)
            until = position + _TOGETHER
            near = [feedRange for feedRange in self.ranges.values() if (feedRange.start or 0) <= until]
            ahead = min((start for start in places if start > until), default=0)
            found = partial(self._found, position, ahead)
            self._read(position, _topicsOf(near), self.outlet.chunkBytes, found)

    def _relieved(self) -> None:
        self._enter(FeedEvent.RELIEVED)
        self._proceed()

    def _read(
        self, offset: int, wanted: Callable[[str], bool], most: int, found: Callable[[Sequence[StoredBatch], int], None]
    ) -> None:
        self._enter(FeedEvent.READ)
        self._round += 1
        sendRound = self._round

        def read(batches: Sequence[StoredBatch], nextOffset: int) -> None:
            self._enter(FeedEvent.READ_ENDED)
            if sendRound == self._round:
                found(batches, nextOffset)
            else:
                self._proceed()

        try:
            self._journal.read(offset, wanted, most, read)
        except BrokerError as error:
            self._fail(error)

    def _found(self, position: int, ahead: int, batches: Sequence[StoredBatch], nextOffset: int) -> None:
        if nextOffset <= position:
            self._fail(BrokerError("the journal cannot be read"))
            return
        if not self._comparesRemovals(position, partial(self._found, position, ahead, batches, nextOffset)):
            return
        kept = self._notTooOld(batches)
        if kept is None:
            return
        batches = kept
        if ahead and nextOffset > ahead:
            batches = [batch.pick(range(bisect_left(batch.offsets, ahead))) for batch in batches]
            nextOffset = ahead
        if any((feedRange.start or 0) > position for feedRange in self.ranges.values()):
            batches = [self._begun(batch) for batch in batches if len(batch)]
        self._sendAll(batches, nextOffset, self._advance)

    def _notTooOld(self, batches: Sequence[StoredBatch]) -> Sequence[StoredBatch] | None:
        """Return the records that are not older than their retention. If a range had to deliver older ones, end it and
        return None.
        """
        kept: list[StoredBatch] = []
        missed: dict[str, tuple[str, int]] = {}
        for batch in batches:
            old = self._expiry.tooOld(batch)
            if old:
                if self.permanent:
                    missed |= self._missedBy(batch, old)
                batch = batch.pick(sorted(set(range(len(batch))).difference(old)))
            kept.append(batch)
        for name, (topic, offset) in missed.items():
            self._endMissed(self.ranges[name], topic, offset)
        return None if missed else kept

    def _missedBy(self, batch: StoredBatch, old: Sequence[int]) -> dict[str, tuple[str, int]]:
        """Return the ranges that should have delivered some of these records, each with the topic and offset of one."""
        missed: dict[str, tuple[str, int]] = {}
        for place in old:
            topic, offset, time = batch.topics[batch.topicOf[place]], batch.offsets[place], batch.timestamps[place]
            for each in self._rangesOf(topic):
                if offset >= (each.start or 0) and time >= self._expiry.oldest(topic, each.made):
                    missed[each.name] = topic, offset
        return missed

    def _endMissed(self, feedRange: FeedRange, topic: str, offset: int) -> None:
        """End a range with the offset of the first record that is not too old; the feed waits until that is found."""
        feedRange.start = None

        def found(first: int) -> None:
            self.failRange(feedRange, NoLongerKept(max(first, offset + 1)))

        self._journal.offsetAt(self._expiry.oldest(topic, self._expiry.now()), found)

    def _begun(self, batch: StoredBatch) -> StoredBatch:
        """Return the records at or after the start of a range."""
        starts = [self._startOf(name) for name in batch.topics]
        if max(starts) <= batch.offsets[0]:
            return batch
        columns = enumerate(zip(batch.topicOf, batch.offsets, strict=True))
        return batch.pick([place for place, (topic, offset) in columns if offset >= starts[topic]])

    def _startOf(self, name: str) -> int:
        return min((each.start or 0 for each in self._rangesOf(name)), default=_NEVER)

    def _rangesOf(self, name: str) -> list[FeedRange]:
        ranges = [self.ranges[name]] if self._coversLiterally(name) else []
        return ranges + [each for each in self._patterns.matching(name) if each.matches(name)]

    def _advance(self, nextOffset: int) -> None:
        for feedRange in self.ranges.values():
            if feedRange.start is not None:
                feedRange.start = max(feedRange.start, nextOffset)

    def _foundSingles(self, batches: Sequence[StoredBatch], nextOffset: int) -> None:
        until = max(nextOffset, self._singles[0][0] + 1)
        wanted = {offset for offset, name in self._singles if offset < until and self.covers(name)}
        found = [batch.pick([at for at, offset in enumerate(batch.offsets) if offset in wanted]) for batch in batches]
        self._sendAll(found, until, self._advanceSingles)

    def _advanceSingles(self, nextOffset: int) -> None:
        singles, topics = self._singles, self._singleTopics
        while singles and singles[0][0] < nextOffset:
            name = heappop(singles)[1]
            topics[name] -= 1
            if not topics[name]:
                del topics[name]

    def _sendAll(self, batches: Sequence[StoredBatch], nextOffset: int, advance: Callable[[int], None]) -> None:
        """Send records, and call ``advance`` with the offset after those sent; a change of ranges ends it early."""
        self._enter(FeedEvent.FOUND)
        slices, sendRound = self.outlet.slices, self._round

        def steps() -> Iterator[None]:
            for part, end in [(batches, nextOffset)] if slices is None else _slicesOf(batches, nextOffset):
                # What is left is read again. Only slices can be interrupted.
                if sendRound != self._round or (slices is not None and self.outlet.full):
                    break
                self._send(part)
                advance(end)
                yield
            self._enter(FeedEvent.SENT)
            self.outlet.soon(self._proceed)

        if slices is None:
            for _ in steps():
                pass
        else:
            slices.run(steps())

    def _send(self, batches: Sequence[StoredBatch]) -> None:
        if not self.permanent:
            batches = [batch.only(lambda name: not self._coveredElsewhere(name)) for batch in batches]
        batches = [batch for batch in self._expiry.alive(batches) if len(batch)]
        if batches:
            self.outlet.sendBatches(batches)

    def _caughtUp(self, position: int) -> None:
        if not self.permanent and self._waits(self._proceed):
            return
        self._enter(FeedEvent.CAUGHT_UP)
        self._position = position
        if not self.permanent:
            self._done()

    def _comparesRemovals(self, position: int, again: Callable[[], None]) -> bool:
        """End the ranges that lost records from this position on to retention; return whether there are none, or False
        if very many are compared in later turns.
        """
        if not self.permanent:
            return True
        journal, sendRound = self._journal, self._round
        number, removed = journal.removedSince(self._compared, max(1, _COMPARED_AT_ONCE // len(self.ranges)))
        self._compared, first = number, number - len(removed)
        lost: dict[str, int] = {}
        for place, (topic, last) in enumerate(removed, first):
            if last >= position:
                for feedRange in self.ranges.values():
                    if place >= feedRange.since and (not topic or feedRange.matches(topic)):
                        lost.setdefault(feedRange.name, last + 1)
        for name, offset in lost.items():
            self._lost(name, NoLongerKept(offset))
        if lost or not removed:
            return not lost
        self.outlet.soon(lambda: again() if sendRound == self._round else None)
        return False

    def _fail(self, error: BrokerError) -> None:
        self._enter(FeedEvent.FAILED)  # ending one range must not make the others read again
        for name in tuple(self.ranges):
            self._lost(name, error)
        self._enter(FeedEvent.RANGES_ENDED)

    def _enter(self, event: FeedEvent) -> None:
        self._state = FEED_TRANSITIONS[self._state, event]


def _topicsOf(ranges: Iterable[FeedRange]) -> Callable[[str], bool]:
    """Return whether a topic is in one of these ranges, for the reading thread."""
    literals = {each.name: each.matches for each in ranges if each.literal}
    patterns = [each.matches for each in ranges if not each.literal]

    def wanted(name: str) -> bool:
        return (name in literals and literals[name](name)) or any(matches(name) for matches in patterns)

    return wanted


def _slicesOf(batches: Sequence[StoredBatch], nextOffset: int) -> Iterator[tuple[list[StoredBatch], int]]:
    """Yield records in slices, each with the offset after it; the last one is ``nextOffset``."""
    part: list[StoredBatch] = []
    size = 0
    for batch in batches:
        start = 0
        for place, payload in enumerate(batch.payloads):
            if size and size + len(payload) > _SLICE_BYTES:
                yield [*part, batch.pick(range(start, place))], batch.offsets[place]
                part, start, size = [], place, 0
            size += len(payload) + _RECORD_BYTES
        part.append(batch.pick(range(start, len(batch))))
    yield part, nextOffset
