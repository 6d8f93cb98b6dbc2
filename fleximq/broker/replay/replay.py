"""Subscriptions that start in the past: at an offset or time, with a topic's latest message, or with its history.

A client has up to two feeds (:mod:`fleximq.broker.replay.feed`): a permanent one for subscriptions that ask for a start
and get offsets, and a temporary one for past messages of new subscriptions, which ends at the end of the journal.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice, pairwise
from typing import NamedTuple

from fleximq.broker.authorization import permits
from fleximq.broker.envelope import ConnectedClient
from fleximq.broker.replay.expiry import RecordExpiry
from fleximq.broker.replay.feed import Feed, FeedRange, IOutlet
from fleximq.broker.replay.searches import BackSearch, Searches
from fleximq.broker.topics.names import checkName, checkPattern, rangesOf
from fleximq.broker.topics.topic_table import TopicTable
from fleximq.errors import BrokerError, NoLongerKept, SubscriptionFailed
from fleximq.interfaces import IJournal
from fleximq.limits import SYSTEM
from fleximq.rights import Action
from fleximq.values.patterns import anyOf, isPattern
from fleximq.values.records import TopicBounds

#: So many topics of a pattern are looked up in one turn of the reactor, 1 ms at most.
TOPICS_AT_ONCE = 500
#: A time that no message has.
_NEVER = 1 << 62


class Start(NamedTuple):
    """Where a subscription begins: ``kind`` is ``"first"``, ``"last"``, ``"offset"`` or ``"time"``; ``number`` is the
    offset, or milliseconds since 1970.
    """

    kind: str
    number: int = 0


@dataclass(eq=False, repr=False)
class Replays:
    """The feeds of all clients.

    :param retained: tells whether new subscribers of a topic get its latest message; None: of no topic.
    :param waits: returns whether committed publications wait for delivery, and if so calls after it.
    :param unsubscribe: ends a client's subscription of this name.
    """

    _journal: IJournal
    _topics: TopicTable
    _retained: Callable[[str], bool] | None
    _expiry: RecordExpiry
    _waits: Callable[[Callable[[], None]], bool]
    _searches: Searches
    _unsubscribe: Callable[[ConnectedClient, str], None]
    #: Whether offsets after the end are those of messages that this node has yet to receive.
    mayLag: bool = False
    _permanent: dict[ConnectedClient, Feed] = field(default_factory=dict)
    _temporary: dict[ConnectedClient, Feed] = field(default_factory=dict)

    def check(self, client: ConnectedClient, name: str, start: Start) -> tuple[FeedRange, Iterator[None]]:
        """Return the range of a client's subscription that starts in the journal, and the steps that find its start.

        :raises InvalidTopic: the name is empty or too long, or has too many levels for a pattern.
        :raises SubscriptionFailed: the broker has no journal, or the topic is not durable.
        :raises NoLongerKept: records that old were deleted.
        """
        literal = not isPattern(name)
        (checkName if literal else checkPattern)(name)
        if not self._journal.onDisk:
            raise SubscriptionFailed("this broker stores no messages: it has no --journal")
        if literal and not self._topics.isDurable(name):
            raise SubscriptionFailed("this topic is not durable")
        feedRange = self._feedRange(client, name, literal)
        if literal and start.kind == "offset":
            feedRange.made = 0
        search = _findStart(self._journal, self._journal.end, feedRange, start, self.mayLag)
        if start.kind != "time" and (literal or self._searches.mayLook(client)):
            # Few topics need no later turn, so that errors are known at once.
            next(search)
            next(search, None)
        return feedRange, search

    def follow(
        self, client: ConnectedClient, feed: Feed, feedRange: FeedRange, start: Start, search: Iterator[None]
    ) -> None:
        """Start a range in the journal, and continue with live publications; a range of the same name restarts."""
        self._searches.restart(client, feedRange.name)
        isPlaced = feedRange.start is not None
        feed.addRange(feedRange)
        self._topics.reroute()
        if start.kind == "time":
            self._journal.offsetAt(min(start.number * 1000, _NEVER), partial(feed.place, feedRange))
        elif not isPlaced:
            self._searches.run(client, feedRange.name, _placeFound(feed, feedRange, search))

    def recall(
        self, client: ConnectedClient, outlet: IOutlet, name: str, literal: bool = False, history: int = 0
    ) -> None:
        """See :meth:`fleximq.broker.broker.Broker.recall`."""
        if not self._journal.onDisk or (self._retained is None and not history):
            return  # a pattern need not be compiled, which takes 0.2 ms
        literal = literal or not isPattern(name)
        feedRange = self._feedRange(client, name, literal)
        if history and literal and self._topics.isDurable(name):
            self._findBack(client, self._pass(client, outlet, feedRange), feedRange, history)
        elif self._retained is not None:
            self._recallRetained(client, outlet, feedRange)

    def _findBack(self, client: ConnectedClient, feed: Feed, feedRange: FeedRange, number: int) -> None:
        journal, name = self._journal, feedRange.name
        kept = journal.bounds().get(name)
        if kept is None:
            feed.place(feedRange, journal.end)
        elif kept.count <= number:
            feed.place(feedRange, kept.first)
        else:
            self._searches.findBack(client, BackSearch(journal, feed, feedRange, number, kept))

    def _recallRetained(self, client: ConnectedClient, outlet: IOutlet, feedRange: FeedRange) -> None:
        """Deliver the latest message of each topic, and then what follows the present end."""
        journal, end = self._journal, self._journal.end
        retained = self._retained or (lambda name: False)
        pages = (
            [
                (kept.last, name)
                for name, kept in page
                if kept.last < end and retained(name) and not self._covers(client, name)
            ]
            for page in topicsOf(journal, feedRange)
        )
        first: list[list[tuple[int, str]]] = []
        if feedRange.literal or self._searches.mayLook(client):
            first = list(islice(pages, 2))
            if not any(first) and len(first) < 2:
                return
        feed = self._pass(client, outlet, feedRange)

        def steps() -> Iterator[None]:
            for page in chain(first, pages):
                feed.addSingles(feedRange, page)
                yield
            feed.place(feedRange, end)

        if len(first) == 1:
            for _ in steps():
                pass
        else:
            self._searches.run(client, feedRange.name, steps(), retained=True)

    def _pass(self, client: ConnectedClient, outlet: IOutlet, feedRange: FeedRange) -> Feed:
        feed = self.feed(client, outlet, permanent=False)
        self._topics.reroute()
        feed.addRange(feedRange)
        return feed

    def feed(self, client: ConnectedClient, outlet: IOutlet, permanent: bool) -> Feed:
        """Return a feed of the client; it is to be subscribed to the names of its ranges if it is the permanent one."""
        feeds = self._permanent if permanent else self._temporary
        if client not in feeds:
            feeds[client] = Feed(
                self._journal,
                outlet,
                permanent,
                self._expiry,
                partial(self._covers, client),
                self._waits,
                partial(self._end, client, feeds),
                partial(self._lost, client, outlet) if permanent else lambda name, error: self.drop(client, name),
            )
            self._setProxies(client, outlet)
        return feeds[client]

    def drop(self, client: ConnectedClient, name: str) -> None:
        """Remove the ranges of the subscription of this name."""
        self._searches.drop(client, name)
        for feeds in (self._permanent, self._temporary):
            feed = feeds.get(client)
            if feed is not None and feed.removeRange(name):
                self._topics.reroute()
                if not feed.ranges:
                    self._end(client, feeds)

    def readAgain(self) -> None:
        """Make all permanent feeds read publications from the journal that were not delivered."""
        for feed in tuple(self._permanent.values()):
            feed.readAgain()

    def narrow(self, client: ConnectedClient) -> None:
        """Apply a client's changed rights; records already read for it are read again."""
        for feed in self._feedsOf(client):
            feed.readAgain()

    def leave(self, client: ConnectedClient) -> None:
        """End all feeds of this client."""
        self._searches.leave(client)
        self._end(client, self._permanent)
        self._end(client, self._temporary)

    def _end(self, client: ConnectedClient, feeds: dict[ConnectedClient, Feed]) -> None:
        feed = feeds.pop(client, None)
        if feed is not None:
            feed.close()
            self._setProxies(client, feed.outlet)
            self._topics.reroute()

    def _feedsOf(self, client: ConnectedClient) -> tuple[Feed, ...]:
        return tuple(feeds[client] for feeds in (self._permanent, self._temporary) if client in feeds)

    def _setProxies(self, client: ConnectedClient, outlet: IOutlet) -> None:
        """Let the client's feeds replace the connection for topics in their ranges, the permanent one first."""
        if feeds := self._feedsOf(client):
            self._topics.proxies[outlet.subscriber] = feeds
        else:
            self._topics.proxies.pop(outlet.subscriber, None)

    def _lost(self, client: ConnectedClient, outlet: IOutlet, name: str, error: BrokerError) -> None:
        self._unsubscribe(client, name)
        outlet.failed(error, name)

    def _covers(self, client: ConnectedClient, name: str) -> bool:
        """Tell whether the permanent feed of a client delivers this topic."""
        feed = self._permanent.get(client)
        return feed is not None and feed.covers(name)

    def _feedRange(self, client: ConnectedClient, name: str, literal: bool) -> FeedRange:
        """Return a range without a start; it never matches topics that the client may not read.

        Nor the broker's own ones, which have values and scheduled messages of all clients.
        """
        alike = name.__eq__ if literal else anyOf((name,))

        def matches(each: str) -> bool:
            return not each.startswith(SYSTEM) and alike(each) and permits(client, Action.SUBSCRIBE, each)

        return FeedRange(name, literal, matches, self._journal.removals, self._expiry.now())


def topicsOf(journal: IJournal, feedRange: FeedRange) -> Iterator[list[tuple[str, TopicBounds]]]:
    """Yield the journal's topics in a range with their bounds; each list takes 1 ms at most, few topics make one."""
    bounds = journal.bounds()
    found: list[tuple[str, TopicBounds]] = []
    room = TOPICS_AT_ONCE
    for start, before in [(feedRange.name, feedRange.name + "\0")] if feedRange.literal else rangesOf(feedRange.name):
        while page := journal.topics(room, start, before):
            found += [(name, bounds[name]) for name in page if feedRange.matches(name) and name in bounds]
            start = page[-1] + "\0"
            room -= len(page)
            if not room:
                yield found
                found, room = [], TOPICS_AT_ONCE
    yield found


def _findStart(journal: IJournal, end: int, feedRange: FeedRange, start: Start, mayLag: bool) -> Iterator[None]:
    """Look through the topics of a range in slices, and set the offset at which it starts.

    :param end: the end of the journal when the search began: later records follow in any case.
    :param mayLag: whether an offset after the journal's end is waited for; otherwise the range starts at the end.
    :raises NoLongerKept: records that old were deleted.
    """
    first = last = end
    for page in topicsOf(journal, feedRange):
        old = [bounds.last for _, bounds in page if bounds.last < end]
        first = min([first, *(bounds.first for _, bounds in page)])
        if old:
            last = max(old) if last == end else max(last, *old)
        yield
    if start.kind != "offset":
        feedRange.start = first if start.kind == "first" else last
    elif start.number < first < end and not _isWhole(journal, start.number, first):
        raise NoLongerKept(first)
    else:
        feedRange.start = start.number if mayLag else min(start.number, end)


def _isWhole(journal: IJournal, start: int, end: int) -> bool:
    """Return whether the journal has all records from an offset up to another one, so that those that are missing of a
    topic never existed: no file there lost or removed any.
    """
    files = [each for each in journal.segmentStates() if each.next > start and each.first < end]
    return (
        bool(files)
        and files[0].first <= start
        and all(each.bytes == each.end - each.base and not each.lost for each in files)
        and all(one.next == other.first for one, other in pairwise(files))
    )


def _placeFound(feed: Feed, feedRange: FeedRange, search: Iterator[None]) -> Iterator[None]:
    """Take the remaining steps of a search while the feed has the range; start the range, or end it with an error."""
    try:
        for _ in search:
            if feed.ranges.get(feedRange.name) is not feedRange:
                return
            yield
    except NoLongerKept as error:
        feed.failRange(feedRange, error)
    else:
        if feedRange.start is not None:
            feed.place(feedRange, feedRange.start)
