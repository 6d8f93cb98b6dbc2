"""What brings the journal to one connection: what was kept, in order, then what comes, without gap or duplicate.

A feed reads in portions, the next one only when its connection has taken the last. What is published meanwhile is not
queued for it: it is in the journal, and read when its turn comes. Once a reading has come to the end the feed is live:
it takes runs as they are committed. When its connection falls behind it goes back to reading, so it holds little
however slow the connection is.

One feed serves all such subscriptions of a connection, each of which *covers* topics from an offset on. It reads once
for all of them, in the order of offsets, and so brings each message once.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Protocol

from zope.interface import implementer

from fleximq.broker.envelope import Envelope
from fleximq.broker.topics.topic_table import Topic
from fleximq.errors import BrokerError, NoLongerKept
from fleximq.interfaces import IForm, IJournalRead, ISubscriber, ISubscriberProxy
from fleximq.values.records import StoredBatch, TopicBounds

#: So many bytes are read at a time where single messages are looked for.
SEARCH_BYTES = 1 << 16


class DeferredRun:
    """A run that is rendered when the first feed takes it, for many may be still reading what came before it."""

    __slots__ = ("_body", "_envelope", "_form", "_rendered", "count", "offset")

    def __init__(self, form: IForm, envelope: Envelope, body: Any, count: int) -> None:
        self.offset = envelope.offset
        self.count = count
        self._form = form
        self._envelope = envelope
        self._body = body
        self._rendered: Any = None

    def rendered(self) -> Any:
        """Return the run in its form."""
        if self._rendered is None:
            self._rendered = self._form.render(self._envelope, self._body, self.count)
        return self._rendered


@implementer(IForm)
class DeferredForm:
    """The form of feeds: runs that know their offsets, and are rendered in another form when they are taken."""

    def __init__(self, form: IForm) -> None:
        self._form = form

    def render(self, envelope: Envelope, body: Any, count: int) -> DeferredRun:
        """Return the run, not rendered yet."""
        return DeferredRun(self._form, envelope, body, count)


class Outlet(Protocol):
    """The connection's side of a feed; its dialect makes it.

    ``form`` is one object for all connections that take the same bytes, ``subscriber`` the connection's own, whose
    place the feed takes in what it covers, ``portion`` about how many bytes to read at a time.
    """

    form: DeferredForm
    subscriber: ISubscriber
    portion: int

    @property
    def full(self) -> bool:
        """Whether the connection has so much left to take that it should get no more for now."""

    def whenRelieved(self, call: Callable[[], None]) -> None:
        """Call once it is not full any more; never, if the connection ends."""

    def soon(self, call: Callable[[], None]) -> None:
        """Call when others had their turn."""

    def send(self, rendered: Any) -> None:
        """Send a run; it does not count against what the connection may leave unread."""

    def sendBatches(self, batches: Sequence[StoredBatch]) -> None:
        """Send records, likewise."""

    def failed(self, error: BrokerError, name: str) -> None:
        """Say that the subscription of this name has ended."""

    def close(self) -> None:
        """Nothing more will be sent."""


class FeedRange:
    """The topics that one subscription covers, from an offset on; None while that is being looked up.

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
        """Tell whether publications to a topic come this way; a pattern covers durable topics only."""
        return (self.literal or topic.durable) and self.matches(topic.name)

    def missed(self, position: int, bounds: Callable[[str], TopicBounds | None]) -> int | None:
        """Return the first offset that is left of a topic that has lost messages at this position or behind it."""
        for name, known in tuple(self.known.items()):
            if known.last < position:
                del self.known[name]  # all that could be lost was read
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

    :param lasting: it stays when it is live; otherwise ``done`` is called then, and the connection's own subscriptions
        take over.
    :param alive: leaves out what has expired.
    :param elsewhere: tells of a topic's name that another feed of the connection brings it.
    :param waits: tells whether something that was committed is still to be brought, and calls when it was; a feed that
        does not last waits for that.
    :param lost: called with a cover's name and the error that ended it.
    """

    def __init__(
        self,
        journal: IJournalRead,
        outlet: Outlet,
        lasting: bool,
        alive: Callable[[Sequence[StoredBatch]], Sequence[StoredBatch]],
        elsewhere: Callable[[str], bool],
        waits: Callable[[Callable[[], None]], bool],
        done: Callable[[], None],
        lost: Callable[[str, BrokerError], None],
    ) -> None:
        self.form = outlet.form
        self.lasting = lasting
        self.outlet = outlet
        self.covers: dict[str, FeedRange] = {}
        self._journal = journal
        self._alive = alive
        self._elsewhere = elsewhere
        self._waits = waits
        self._done = done
        self._lost = lost
        self._singles: deque[tuple[int, str]] = deque()
        self._live = False
        self._busy = False
        self._round = 0  # a reading that was begun in an earlier one is thrown away
        self._position = 0  # while it is live: all before this was delivered

    # -- what it covers ----------------------------------------------------------------------------

    def cover(self, cover: FeedRange, singles: Iterable[tuple[int, str]] = ()) -> None:
        """Bring what this covers from its start on; one of the same name begins anew there.

        :param singles: offsets and topics of single messages that come first.
        """
        self._goBack()
        self.covers[cover.name] = cover
        self._singles = deque(sorted({*self._singles, *singles}))
        self._proceed()

    def place(self, cover: FeedRange, start: int) -> None:
        """Let a cover begin at the offset that was looked up; nothing happens if it is gone."""
        if self.covers.get(cover.name) is cover:
            self._goBack()
            cover.start = start
            self._proceed()

    def uncover(self, name: str) -> bool:
        """Bring what this covered no more; False if there was no such."""
        if self.covers.pop(name, None) is None:
            return False
        self._goBack()
        self._proceed()
        return True

    def accepts(self, topic: Topic) -> bool:
        """Tell whether publications to a topic come this way."""
        return any(cover.accepts(topic) for cover in self.covers.values())

    def brings(self, name: str) -> bool:
        """Tell whether what the journal has of a topic comes this way."""
        return any(cover.matches(name) for cover in self.covers.values())

    def readAgain(self) -> None:
        """Look into the journal for what was not brought."""
        self._goBack()
        self._proceed()

    def narrow(self) -> None:
        """Forget what its covers match no more, and read again what was not brought yet."""
        for cover in self.covers.values():
            cover.known = {name: kept for name, kept in cover.known.items() if cover.matches(name)}
        self.readAgain()

    def close(self) -> None:
        """Stop for good."""
        self.covers.clear()
        self._singles.clear()
        self._live = False
        self._round += 1
        self.outlet.close()

    # -- live --------------------------------------------------------------------------------------

    def deliver(self, run: DeferredRun, count: int) -> None:
        """Take a run that was committed, unless it is still to be read, or was read already.

        What is not in the journal is sent at once.
        """
        if not run.offset:
            self.outlet.send(run.rendered())
        elif self._live and run.offset + count > self._position:
            if self.outlet.full or run.offset < self._position:
                self._goBack()
                self._proceed()
            else:
                self._position = run.offset + count
                self.outlet.send(run.rendered())

    def _goBack(self) -> None:
        """Stop taking runs; what is behind the last one has to be read."""
        self._round += 1
        if self._live:
            self._live = False
            for cover in self.covers.values():
                if cover.start is not None:
                    cover.start = max(cover.start, self._position)

    # -- reading -----------------------------------------------------------------------------------

    def _proceed(self) -> None:
        """Do what is next, unless it is being done."""
        starts = [cover.start for cover in self.covers.values()]
        places = [start for start in starts if start is not None]
        if self._busy or self._live or not starts or len(places) < len(starts):
            return
        if self.outlet.full:
            self._busy = True
            self.outlet.whenRelieved(self._room)
        elif self._singles:
            offset = self._singles[0][0]
            names = {name for _, name in self._singles}
            self._read(offset, names.__contains__, SEARCH_BYTES, self._foundSingles)
        elif min(places) >= self._journal.end:
            self._caughtUp(min(places))
        else:
            position = min(places)
            matching = tuple(cover.matches for cover in self.covers.values() if (cover.start or 0) <= position)
            ahead = min((start for start in places if start > position), default=0)
            found = partial(self._found, position, ahead)
            self._read(position, lambda name: any(matches(name) for matches in matching), self.outlet.portion, found)

    def _room(self) -> None:
        self._busy = False
        self._proceed()

    def _read(
        self, offset: int, wanted: Callable[[str], bool], most: int, found: Callable[[Sequence[StoredBatch], int], None]
    ) -> None:
        self._busy = True
        round = self._round

        def read(batches: Sequence[StoredBatch], next: int) -> None:
            self._busy = False
            if round == self._round:
                found(batches, next)
            else:
                self._proceed()

        try:
            self._journal.read(offset, wanted, most, read)
        except BrokerError as error:
            self._busy = False
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
        for cover in self.covers.values():
            if cover.start is not None and cover.start <= position:
                cover.start = next
        self.outlet.soon(self._proceed)

    def _foundSingles(self, batches: Sequence[StoredBatch], next: int) -> None:
        singles = self._singles
        offset = singles[0][0]
        wanted = {offset for offset, name in singles if self.brings(name)}
        self._send([_those(batch, wanted) for batch in batches])
        while singles and singles[0][0] < max(next, offset + 1):
            singles.popleft()
        self.outlet.soon(self._proceed)

    def _send(self, batches: Sequence[StoredBatch]) -> None:
        if not self.lasting:
            batches = [batch.only(lambda name: not self._elsewhere(name)) for batch in batches]
        batches = [batch for batch in self._alive(batches) if len(batch)]
        if batches:
            self.outlet.sendBatches(batches)

    def _caughtUp(self, position: int) -> None:
        if not self.lasting and self._waits(self._proceed):
            return
        self._live = True
        self._position = position
        if not self.lasting:
            self._done()

    def _overtaken(self, position: int) -> bool:
        """End the covers that retention has taken something from before it was read; True if there were any."""
        bounds = self._journal.bounds()
        overtaken = False
        for cover in tuple(self.covers.values()):
            first = cover.missed(position, bounds.get)
            if first is not None and self.lasting:
                overtaken = True
                self._lost(cover.name, NoLongerKept(first))
        return overtaken

    def _fail(self, error: BrokerError) -> None:
        self._busy = True  # ending one must not make the others read again
        for name in tuple(self.covers):
            self._lost(name, error)
        self._busy = False


def _before(batches: Sequence[StoredBatch], offset: int) -> list[StoredBatch]:
    """Return what is before an offset."""
    return [batch.pick(range(bisect_left(batch.offsets, offset))) for batch in batches]


def _those(batch: StoredBatch, offsets: set[int]) -> StoredBatch:
    """Return the records that have one of these offsets."""
    return batch.pick([place for place, offset in enumerate(batch.offsets) if offset in offsets])
