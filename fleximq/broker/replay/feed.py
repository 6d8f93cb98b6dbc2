"""A feed: delivers the journal to one connection, first stored records in order, then live runs, without gap or
duplicate.

A feed reads in chunks, the next one after its connection has taken the last. At the end of the journal it is live: it
passes on runs as they are committed. When its connection is overloaded it reads again, so it uses little memory however
slow the connection is.

One feed serves all subscriptions of a connection that need the journal; each has a range of topics from an offset on.
It reads once for all of them, in the order of offsets, so it delivers each message once.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from enum import Enum, auto
from functools import partial
from typing import Any, Protocol

from zope.interface import implementer

from fleximq.broker.envelope import Envelope
from fleximq.broker.topics.topic_table import Topic
from fleximq.errors import BrokerError, NoLongerKept
from fleximq.interfaces import IForm, IJournalRead, ISubscriber, ISubscriberProxy
from fleximq.values.records import StoredBatch, TopicBounds
from fleximq.values.transitions import Transitions

#: So many bytes are read at a time where single messages are looked for.
SEARCH_BYTES = 1 << 16


class FeedState(Enum):
    """What a feed does at present; IDLE: its next step is scheduled, or a range has no start yet."""

    IDLE = auto()
    READING = auto()
    WAITING_FOR_SPACE = auto()
    LIVE = auto()
    FAILING = auto()
    CLOSED = auto()


class FeedEvent(Enum):
    """What changes a feed's state; FELL_BEHIND: publications must be read from the journal."""

    READ = auto()
    READ_ENDED = auto()
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
        [(FeedState.CLOSED, each) for each in (FeedEvent.READ_ENDED, FeedEvent.RELIEVED, FeedEvent.RANGES_ENDED)],
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
        """Return the run without rendering it."""
        return DeferredRun(self._form, envelope, body, count)


class Outlet(Protocol):
    """The connection's side of a feed; its dialect makes it.

    ``form`` is one object for all connections that receive the same bytes, ``subscriber`` is what the feed replaces for
    topics in its ranges, ``chunkBytes`` about how many bytes to read at a time.
    """

    form: DeferredForm
    subscriber: ISubscriber
    chunkBytes: int

    @property
    def full(self) -> bool:
        """Whether the connection has too much unsent output."""

    def whenRelieved(self, call: Callable[[], None]) -> None:
        """Call once it is not full any more; never, if the connection ends."""

    def soon(self, call: Callable[[], None]) -> None:
        """Call in a later reactor turn."""

    def send(self, rendered: Any) -> None:
        """Send a run; it does not count as unread output of a slow consumer."""

    def sendBatches(self, batches: Sequence[StoredBatch]) -> None:
        """Send records, likewise."""

    def failed(self, error: BrokerError, name: str) -> None:
        """Report that the subscription of this name has ended."""

    def close(self) -> None:
        """End the output."""


class FeedRange:
    """The topics of one subscription, from an offset on; ``start`` is None while the offset is looked up.

    ``known`` are the bounds of these topics when it was made.
    """

    __slots__ = ("known", "literal", "matches", "name", "start")

    def __init__(
        self, name: str, literal: bool, matches: Callable[[str], bool], start: int | None, known: dict[str, TopicBounds]
    ) -> None:
        self.name = name
        self.literal = literal
        self.matches = matches
        self.start = start
        self.known = known

    def accepts(self, topic: Topic) -> bool:
        """Tell whether the feed delivers publications to a topic; a pattern covers durable topics only."""
        return (self.literal or topic.durable) and self.matches(topic.name)

    def missed(self, position: int, bounds: Callable[[str], TopicBounds | None]) -> int | None:
        """Return the first remaining offset of a topic that lost messages from this position on, or None."""
        for name, known in tuple(self.known.items()):
            if known.last < position:
                del self.known[name]  # all records that could be lost were read
                continue
            now = bounds(name)
            if now is None:
                return known.last + 1
            if now.first > max(position, known.first):
                return now.first
        return None


@implementer(ISubscriberProxy)
class Feed:
    """Follows the journal for one connection.

    :param permanent: the feed stays when it is live; otherwise it waits for pending deliveries, calls ``done``, and the
        connection's own subscriptions take over.
    :param alive: removes expired messages.
    :param coveredElsewhere: tells whether another feed of the connection delivers a topic.
    :param waits: returns whether committed publications wait for delivery, and if so calls after it.
    :param lost: called with a range's name and the error that ended it.
    """

    def __init__(
        self,
        journal: IJournalRead,
        outlet: Outlet,
        permanent: bool,
        alive: Callable[[Sequence[StoredBatch]], Sequence[StoredBatch]],
        coveredElsewhere: Callable[[str], bool],
        waits: Callable[[Callable[[], None]], bool],
        done: Callable[[], None],
        lost: Callable[[str, BrokerError], None],
    ) -> None:
        self.form = outlet.form
        self.permanent = permanent
        self.outlet = outlet
        self.ranges: dict[str, FeedRange] = {}
        self._journal = journal
        self._alive = alive
        self._coveredElsewhere = coveredElsewhere
        self._waits = waits
        self._done = done
        self._lost = lost
        self._singles: deque[tuple[int, str]] = deque()
        self._state = FeedState.IDLE
        self._round = 0  # results of reads started in an earlier round are ignored
        self._position = 0  # while it is live: all before this was delivered

    # -- ranges --------------------------------------------------------------------------------------

    def addRange(self, feedRange: FeedRange, singles: Iterable[tuple[int, str]] = ()) -> None:
        """Deliver a range from its start on; one of the same name restarts.

        :param singles: offsets and topics of single messages to deliver first.
        """
        self._fallBehind()
        self.ranges[feedRange.name] = feedRange
        self._singles = deque(sorted({*self._singles, *singles}))
        self._proceed()

    def place(self, feedRange: FeedRange, start: int) -> None:
        """Start a range at the offset that was looked up; a no-op if it was removed."""
        if self.ranges.get(feedRange.name) is feedRange:
            self._fallBehind()
            feedRange.start = start
            self._proceed()

    def removeRange(self, name: str) -> bool:
        """Stop delivering a range; False if it does not exist."""
        if self.ranges.pop(name, None) is None:
            return False
        self.readAgain()
        return True

    def accepts(self, topic: Topic) -> bool:
        """Tell whether this feed delivers publications to a topic."""
        return any(feedRange.accepts(topic) for feedRange in self.ranges.values())

    def covers(self, name: str) -> bool:
        """Tell whether this feed delivers the journal's records of a topic."""
        return any(feedRange.matches(name) for feedRange in self.ranges.values())

    def readAgain(self) -> None:
        """Read publications from the journal that were not delivered."""
        self._fallBehind()
        self._proceed()

    def narrow(self) -> None:
        """Forget topics that the ranges do not match any more, and read undelivered records again."""
        for feedRange in self.ranges.values():
            feedRange.known = {name: kept for name, kept in feedRange.known.items() if feedRange.matches(name)}
        self.readAgain()

    def close(self) -> None:
        """Stop permanently."""
        self.ranges.clear()
        self._singles.clear()
        self._enter(FeedEvent.CLOSE)
        self._round += 1
        self.outlet.close()

    # -- live --------------------------------------------------------------------------------------

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

    # -- reading -----------------------------------------------------------------------------------

    def _proceed(self) -> None:
        """Start the next step when idle and all starts are known."""
        starts = [feedRange.start for feedRange in self.ranges.values()]
        places = [start for start in starts if start is not None]
        if self._state is not FeedState.IDLE or not starts or len(places) < len(starts):
            return
        if self.outlet.full:
            self._enter(FeedEvent.OUTLET_FULL)
            self.outlet.whenRelieved(self._relieved)
        elif self._singles:
            offset = self._singles[0][0]
            names = {name for _, name in self._singles}
            self._read(offset, names.__contains__, SEARCH_BYTES, self._foundSingles)
        elif min(places) >= self._journal.end:
            self._caughtUp(min(places))
        else:
            position = min(places)
            matching = tuple(
                feedRange.matches for feedRange in self.ranges.values() if (feedRange.start or 0) <= position
            )
            ahead = min((start for start in places if start > position), default=0)
            found = partial(self._found, position, ahead)
            self._read(position, lambda name: any(matches(name) for matches in matching), self.outlet.chunkBytes, found)

    def _relieved(self) -> None:
        self._enter(FeedEvent.RELIEVED)
        self._proceed()

    def _read(
        self, offset: int, wanted: Callable[[str], bool], most: int, found: Callable[[Sequence[StoredBatch], int], None]
    ) -> None:
        self._enter(FeedEvent.READ)
        round = self._round

        def read(batches: Sequence[StoredBatch], next: int) -> None:
            self._enter(FeedEvent.READ_ENDED)
            if round == self._round:
                found(batches, next)
            else:
                self._proceed()

        try:
            self._journal.read(offset, wanted, most, read)
        except BrokerError as error:
            self._fail(error)

    def _found(self, position: int, ahead: int, batches: Sequence[StoredBatch], next: int) -> None:
        if next <= position:
            self._fail(BrokerError("the journal cannot be read"))
            return
        if self._overtaken(position):
            return
        if ahead and next > ahead:
            batches = _before(batches, ahead)
            next = ahead
        self._send(batches)
        for feedRange in self.ranges.values():
            if feedRange.start is not None and feedRange.start <= position:
                feedRange.start = next
        self.outlet.soon(self._proceed)

    def _foundSingles(self, batches: Sequence[StoredBatch], next: int) -> None:
        singles = self._singles
        offset = singles[0][0]
        wanted = {offset for offset, name in singles if self.covers(name)}
        self._send([_those(batch, wanted) for batch in batches])
        while singles and singles[0][0] < max(next, offset + 1):
            singles.popleft()
        self.outlet.soon(self._proceed)

    def _send(self, batches: Sequence[StoredBatch]) -> None:
        if not self.permanent:
            batches = [batch.only(lambda name: not self._coveredElsewhere(name)) for batch in batches]
        batches = [batch for batch in self._alive(batches) if len(batch)]
        if batches:
            self.outlet.sendBatches(batches)

    def _caughtUp(self, position: int) -> None:
        if not self.permanent and self._waits(self._proceed):
            return
        self._enter(FeedEvent.CAUGHT_UP)
        self._position = position
        if not self.permanent:
            self._done()

    def _overtaken(self, position: int) -> bool:
        """End the ranges that lost records to retention before they were read; True if any did."""
        bounds = self._journal.bounds()
        overtaken = False
        for feedRange in tuple(self.ranges.values()):
            first = feedRange.missed(position, bounds.get)
            if first is not None and self.permanent:
                overtaken = True
                self._lost(feedRange.name, NoLongerKept(first))
        return overtaken

    def _fail(self, error: BrokerError) -> None:
        self._enter(FeedEvent.FAILED)  # ending one range must not make the others read again
        for name in tuple(self.ranges):
            self._lost(name, error)
        self._enter(FeedEvent.RANGES_ENDED)

    def _enter(self, event: FeedEvent) -> None:
        self._state = FEED_TRANSITIONS[self._state, event]


def _before(batches: Sequence[StoredBatch], offset: int) -> list[StoredBatch]:
    """Return the records before an offset."""
    return [batch.pick(range(bisect_left(batch.offsets, offset))) for batch in batches]


def _those(batch: StoredBatch, offsets: set[int]) -> StoredBatch:
    """Return the records that have one of these offsets."""
    return batch.pick([place for place, offset in enumerate(batch.offsets) if offset in offsets])
