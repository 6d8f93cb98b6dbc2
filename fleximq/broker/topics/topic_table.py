"""The topic table: the subscribers of each topic. Hot.

A topic's *routes* have one entry per form with the bound ``deliver`` of every subscriber of that form, so a run is
rendered once per form. The first publication makes them and a change of subscriptions drops them; a publication in
between costs one attribute and one loop. Routing one message to one subscriber takes 0.15 us, most of it the call of
``deliver`` (``benchmarks/``, scene "1000 mixed topics").
"""

from collections import deque
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from zope.interface import Interface

from fleximq.broker.topics.names import checkName
from fleximq.broker.topics.wildcard_tree import Wildcards
from fleximq.errors import NoCapacity
from fleximq.interfaces import IForm, IGuard, ISubscriber, ISubscriberProxy
from fleximq.limits import SYSTEM
from fleximq.values.message import Message
from fleximq.values.patterns import anyOf
from fleximq.values.sorted_names import SortedNames

DeliverCalls = tuple[Callable[[Any, int], None], ...]
Route = tuple[IForm, DeliverCalls]

#: Returns why a message does not fit, None if it does.
Check = Callable[[Message], str | None]

#: How many topics of a principal are searched for one that can give way.
_OLDEST = 100


@dataclass(slots=True, eq=False, repr=False)
class Topic:
    """One name and its subscribers.

    ``routes`` is None until the next publication. ``needsOrder``: publications must use the ordered path of
    :mod:`fleximq.broker.publishing.publication_paths`, because a guard may refuse them, the journal stores them,
    earlier ones are pending, or the topic was removed from the table (``gone``). ``queues`` counts work queues among
    the ``members``, which do not make the topic a channel; ``published`` counts messages. ``deliverCalls`` are the
    ``deliver`` methods if all subscribers have the form ``onlyForm`` and order is not needed, else None; topics
    with equal subscribers share one tuple, so the session can deliver neighbouring runs together.

    ``check`` tells why a message does not fit the topic's schema, None without a schema; it needs order too, as the
    direct path does not check. ``alwaysDurable``: the journal stores all messages; ``durableQueues`` are the members
    that are durable queues, which require it for QoS1. ``maker``: the principal that made it, if its topics are
    counted. ``pendingRuns`` are the runs awaiting the journal, in order; ``last`` is the journal's number of the last
    of them, ``pendingCount`` and ``pendingBytes`` measure the QoS1 messages among them.
    """

    name: str
    alwaysDurable: bool = False
    check: Check | None = None
    durableQueues: set[ISubscriber] = field(default_factory=set)
    #: A deque from the first pending run on: an empty one takes 760 bytes, and most topics need none.
    pendingRuns: Any = ()
    last: int = 0
    maker: tuple[str | None, ...] = ()
    pendingCount: int = 0
    pendingBytes: int = 0
    routes: tuple[Route, ...] | None = None
    deliverCalls: DeliverCalls | None = None
    onlyForm: IForm | None = None
    members: dict[ISubscriber, None] = field(default_factory=dict)
    guards: dict[ISubscriber, IGuard] = field(default_factory=dict)
    needsOrder: bool = field(init=False)
    gone: bool = False
    queues: int = 0
    published: int = 0

    def __post_init__(self) -> None:
        self.needsOrder = self.alwaysDurable or self.check is not None

    def dropRoutes(self) -> None:
        """Forget the routes; the next publication makes new ones."""
        self.routes = self.deliverCalls = self.onlyForm = None

    @property
    def durable(self) -> bool:
        """Whether the journal stores QoS1 publications of this topic."""
        return self.alwaysDurable or bool(self.durableQueues)

    def updateNeedsOrder(self) -> None:
        """Set ``needsOrder`` from the other attributes."""
        hasGuards = bool(self.guards or self.pendingRuns or self.durableQueues)
        self.needsOrder = hasGuards or self.alwaysDurable or self.gone or self.check is not None

    @property
    def subscribers(self) -> int:
        """How many subscribe to this very name, work queues left out."""
        return len(self.members) - self.queues


@dataclass(slots=True, eq=False, repr=False)
class _Bound:
    """The restriction of a subscriber to permitted topics, and how many of its subscriptions asked for it."""

    may: Callable[[str], bool]
    times: int = 0


@dataclass(slots=True, eq=False, repr=False)
class _PatternQueue:
    """A work queue with patterns: its guard, or None, whether it is durable, and the number of its patterns."""

    guard: IGuard | None
    durable: bool
    patterns: int = 0


class ISubscriptionWatcher(Interface):
    """Learns each subscription of a topic table: its name or pattern, and whether it makes the topic durable."""

    def subscribed(subscriber: ISubscriber, name: str, durable: bool) -> None:
        """Learn that a subscription was added."""

    def unsubscribed(subscriber: ISubscriber, name: str, durable: bool) -> None:
        """Learn that a subscription was removed."""


@dataclass(eq=False, repr=False)
class TopicTable:
    """All topics and all wildcard subscriptions.

    ``proxies`` maps a subscriber to its feeds (:mod:`fleximq.broker.replay.feed`), which deliver some topics in its
    place; the first that accepts a topic counts. Call :meth:`reroute` after a change. ``publishedBefore`` counts
    messages of topics forgotten since. ``others`` are subscribers that are not clients of this broker.
    ``watcher`` learns subscriptions.

    :param mostIdle: maximum number of topics without subscribers; the oldest ones over it are forgotten.
    :param created: called with each new topic.
    :param channelsChanged: called when the result of :meth:`channels` changes.
    :param durable: tells whether all messages of a topic of this name are durable.
    """

    _mostIdle: int
    _created: Callable[[Topic], None]
    _channelsChanged: Callable[[], None] = lambda: None
    _durable: Callable[[str], bool] = lambda name: False
    _topics: dict[str, Topic] = field(default_factory=dict)
    #: All names in order, for listings.
    names: SortedNames = field(default_factory=SortedNames)
    _idle: dict[str, Topic] = field(default_factory=dict)
    _wildcards: Wildcards = field(default_factory=Wildcards)
    _warm: dict[Topic, None] = field(default_factory=dict)
    _same: dict[DeliverCalls, DeliverCalls] = field(default_factory=dict)
    #: The names with subscribers, and a list of them until one of the next changes.
    _subscribed: SortedNames = field(default_factory=SortedNames)
    _channels: list[str] | None = None
    _made: dict[str | None, dict[str, Topic]] = field(default_factory=dict)
    publishedBefore: int = 0
    proxies: dict[ISubscriber, tuple[ISubscriberProxy, ...]] = field(default_factory=dict)
    others: set[ISubscriber] = field(default_factory=set)
    _bounds: dict[ISubscriber, _Bound] = field(default_factory=dict)
    watcher: ISubscriptionWatcher | None = None
    _checkOf: Callable[[str], Check | None] = lambda name: None
    #: The work queues with patterns, and these patterns again.
    _patternQueues: dict[ISubscriber, _PatternQueue] = field(default_factory=dict)
    _queuePatterns: Wildcards = field(default_factory=Wildcards)

    def __len__(self) -> int:
        return len(self._topics)

    def __iter__(self) -> Iterator[Topic]:
        return iter(self._topics.values())

    def find(self, name: str) -> Topic | None:
        """Return the topic if it exists."""
        return self._topics.get(name)

    def seen(self, name: str) -> Topic:
        """Return the topic of this name for a look; if it does not exist, one that is not in the table."""
        return self._topics.get(name) or Topic(name, self.isDurable(name))

    def get(self, name: str) -> Topic:
        """Return the topic of this name, made if need be; raises InvalidTopic if the name is empty or too long."""
        topic = self._topics.get(name)
        return topic if topic is not None else self._create(name)

    def setChecks(self, checkOf: Callable[[str], Check | None]) -> None:
        """Check the messages of each topic by its schema from now on; ``checkOf`` returns the check for a name."""
        self._checkOf = checkOf
        for topic in self._topics.values():
            topic.check = checkOf(topic.name)
            topic.dropRoutes()
            topic.updateNeedsOrder()
        self._same.clear()

    def isDurable(self, name: str) -> bool:
        """Tell whether the journal stores QoS1 publications to this name; does not create the topic."""
        topic = self._topics.get(name)
        if topic is not None:
            return topic.durable
        return self._isAlwaysDurable(name) or any(each.durable for _, each in self._queuesMatching(name))

    def _isAlwaysDurable(self, name: str) -> bool:
        return not name.startswith(SYSTEM) and self._durable(name)

    def make(self, name: str, maker: str | None, most: int | None) -> Topic:
        """As :meth:`get`, for a principal that may have made at most so many topics in the table. The first without
        subscribers of its :data:`_OLDEST` oldest ones gives way; raises NoCapacity if there is none.
        """
        topic = self._topics.get(name)
        if topic is not None or most is None:
            return topic or self._create(name)
        mine = self._made.setdefault(maker, {})
        if len(mine) >= most:
            idle = next((each for each in islice(mine.values(), _OLDEST) if each.name in self._idle), None)
            if idle is None:
                raise NoCapacity(f"{maker or 'anonymous'} has made {most} topics, as many as its limits permit")
            self._forget(idle)
        topic = self._create(name)
        topic.maker, self._made.setdefault(maker, {})[name] = (maker,), topic
        return topic

    def _create(self, name: str) -> Topic:
        checkName(name)
        topic = self._topics[name] = Topic(name, self._isAlwaysDurable(name), self._checkOf(name))
        if self._patternQueues:
            self._guardByPatterns(topic)
        self.names.add(name)
        self._created(topic)
        self._idles(topic)
        return topic

    def _idles(self, topic: Topic) -> None:
        """Record that a topic has no subscriber; if there are too many of them, forget the oldest."""
        self._idle[topic.name] = topic
        if len(self._idle) <= self._mostIdle:
            return
        self._forget(next(iter(self._idle.values())))

    def _forget(self, topic: Topic) -> None:
        """Remove a topic without subscribers; publishers that still use it look its name up again."""
        for maker in topic.maker:
            del self._made[maker][topic.name]
            if not self._made[maker]:
                del self._made[maker]
        del self._topics[topic.name], self._idle[topic.name]
        self.names.remove(topic.name)
        self.publishedBefore += topic.published
        self._warm.pop(topic, None)
        topic.dropRoutes()
        topic.gone = topic.needsOrder = True

    def beginPending(self, topic: Topic) -> None:
        """Pin a topic that has pending runs in the table, and make its publications take the slow path."""
        if topic.pendingRuns == ():
            topic.pendingRuns = deque()
        self._idle.pop(topic.name, None)
        topic.needsOrder = True
        topic.deliverCalls = topic.onlyForm = None

    def endPending(self, topic: Topic) -> None:
        """Undo :meth:`beginPending`, as no run is pending any more."""
        if not topic.members:
            self._idles(topic)
        if not topic.alwaysDurable:
            topic.updateNeedsOrder()
            if topic.routes is not None:
                self._shorten(topic)

    def channels(self) -> list[str]:
        """Return the names that have at least one subscriber, sorted; do not change the list."""
        if self._channels is None:
            self._channels = self._subscribed.all()
        return self._channels

    def subscribe(
        self,
        subscriber: ISubscriber,
        name: str,
        guard: IGuard | None = None,
        queue: bool = False,
        durable: bool = False,
    ) -> None:
        """Add a subscriber to one literal name; idempotent.

        :param guard: the subscriber itself, if it may refuse a publication, see :meth:`Broker.publish`.
        :param queue: the subscriber is a work queue, which does not make the topic a channel.
        :param durable: the subscriber is a durable queue, so the topic becomes durable, except in ``$sys/``.
        :raises InvalidTopic: the name is empty or too long.
        """
        topic = self.get(name)
        if subscriber in topic.members:
            return
        before = topic.subscribers
        topic.members[subscriber] = None
        topic.queues += queue
        if guard is not None:
            topic.guards[subscriber] = guard
        durable = durable and not name.startswith(SYSTEM)
        if durable:
            topic.durableQueues.add(subscriber)
        self._changed(topic, before)
        if self.watcher is not None:
            self.watcher.subscribed(subscriber, name, durable)

    def unsubscribe(self, subscriber: ISubscriber, name: str, queue: bool = False) -> None:
        """Remove a subscriber from one literal name; a no-op if it is not subscribed."""
        topic = self._topics.get(name)
        if topic is None or subscriber not in topic.members:
            return
        before = topic.subscribers
        del topic.members[subscriber]
        topic.queues -= queue
        topic.guards.pop(subscriber, None)
        durable = subscriber in topic.durableQueues
        topic.durableQueues.discard(subscriber)
        if self._patternQueues:
            self._guardByPatterns(topic)
        self._changed(topic, before)
        if self.watcher is not None:
            self.watcher.unsubscribed(subscriber, name, durable)

    def _changed(self, topic: Topic, before: int) -> None:
        topic.dropRoutes()
        self._same.clear()
        topic.updateNeedsOrder()
        if topic.members:
            self._idle.pop(topic.name, None)
        elif not topic.pendingRuns:
            self._idles(topic)
            if not topic.published and not topic.gone:
                self._forget(topic)  # a look at a topic that does not exist leaves nothing
        if bool(before) != bool(topic.subscribers):
            self._channels = None
            if before:
                self._subscribed.remove(topic.name)
            else:
                self._subscribed.add(topic.name)
            self._channelsChanged()

    def hasSubscribers(self, name: str) -> bool:
        """Tell whether a publication to this name would reach a subscriber; does not create the topic."""
        topic = self._topics.get(name)
        if topic is not None and topic.members:
            return True
        return bool(self._wildcards.matching(name)) if self._wildcards else False

    def subscriptions(self, topic: Topic) -> int:
        """Return the number of clients' subscriptions to this name and to patterns that match it."""
        return topic.subscribers + self._wildcards.count(topic.name, self.others)

    def subscribers(self, topic: Topic) -> dict[ISubscriber, None]:
        """Return the permitted subscribers of a topic, without duplicates, exact ones first."""
        members = dict(topic.members)
        if self._wildcards:
            members.update(dict.fromkeys(self._wildcards.matching(topic.name)))
        if self._bounds:
            bounds = self._bounds
            for each in [each for each in members if each in bounds and not bounds[each].may(topic.name)]:
                del members[each]
        return members

    def restrict(self, subscriber: ISubscriber, may: Callable[[str], bool]) -> None:
        """Limit a subscriber, until as many calls of :meth:`free`, to the topics for which ``may`` returns True. Call
        :meth:`reroute` when its answers change.
        """
        self._bounds.setdefault(subscriber, _Bound(may)).times += 1

    def free(self, subscriber: ISubscriber) -> None:
        """Take one restriction of a subscriber back."""
        bound = self._bounds.get(subscriber)
        if bound is not None:
            bound.times -= 1
            if not bound.times:
                del self._bounds[subscriber]

    def subscribePattern(
        self,
        subscriber: ISubscriber,
        pattern: str,
        guard: IGuard | None = None,
        queue: bool = False,
        durable: bool = False,
    ) -> None:
        """Add a subscriber to all topics that match, now or later, until it is undone; raises InvalidTopic.

        The parameters are those of :meth:`subscribe`; a queue has the same ones with each of its patterns.
        """
        self._wildcards.add(subscriber, pattern)
        if queue:
            self._queuePatterns.add(subscriber, pattern)
            self._patternQueues.setdefault(subscriber, _PatternQueue(guard, durable)).patterns += 1
            self._guardTopicsOf(pattern)
        self.reroute()
        if self.watcher is not None:
            self.watcher.subscribed(subscriber, pattern, durable)

    def unsubscribePattern(self, subscriber: ISubscriber, pattern: str, queue: bool = False) -> None:
        """Take a subscriber off a pattern it was added to, with the same ``queue``."""
        if not self._wildcards.remove(subscriber, pattern):
            return
        durable = False
        if queue and self._queuePatterns.remove(subscriber, pattern):
            durable = self._patternQueues[subscriber].durable
            self._guardTopicsOf(pattern)
            self._patternQueues[subscriber].patterns -= 1
            if not self._patternQueues[subscriber].patterns:
                del self._patternQueues[subscriber]
        self.reroute()
        if self.watcher is not None:
            self.watcher.unsubscribed(subscriber, pattern, durable)

    def _queuesMatching(self, name: str) -> list[tuple[ISubscriber, _PatternQueue]]:
        """Return the work queues with a pattern that matches a name."""
        if not self._patternQueues or name.startswith(SYSTEM):
            return []
        return [(each, self._patternQueues[each]) for each in self._queuePatterns.matching(name)]

    def _guardTopicsOf(self, pattern: str) -> None:
        """Set the guards and durable queues of the topics that match a pattern."""
        matches = anyOf((pattern,))
        for name, topic in self._topics.items():
            if matches(name):
                self._guardByPatterns(topic)

    def _guardByPatterns(self, topic: Topic) -> None:
        """Set the guards and durable queues that a topic has by patterns; those of its members stay."""
        # Only those of this topic: a broker may have thousands of queues with patterns.
        for subscriber in {*topic.guards, *topic.durableQueues}:
            if subscriber in self._patternQueues and subscriber not in topic.members:
                topic.guards.pop(subscriber, None)
                topic.durableQueues.discard(subscriber)
        for subscriber, queue in self._queuesMatching(topic.name):
            if queue.guard is not None:
                topic.guards[subscriber] = queue.guard
            if queue.durable:
                topic.durableQueues.add(subscriber)
        topic.updateNeedsOrder()

    def reroute(self) -> None:
        """Drop all routes made since the last call, after a change of wildcard subscriptions, feeds or rights."""
        for topic in self._warm:
            topic.dropRoutes()
        self._warm.clear()
        self._same.clear()

    def isSubscribed(self, subscriber: ISubscriber, topic: Topic, members: Container[ISubscriber]) -> bool:
        """Tell whether a subscriber receives this topic, directly or through a feed."""
        return subscriber in members or any(
            feed in members and feed.accepts(topic) for feed in self.proxies.get(subscriber, ())
        )

    def _subscribersOrProxies(self, topic: Topic) -> dict[ISubscriber, None]:
        """Return the subscribers of a topic, with feeds in place of the subscribers whose topics they deliver."""
        members = self.subscribers(topic)
        for subscriber, feeds in self.proxies.items():
            for feed in feeds:
                if feed.accepts(topic):
                    if members.pop(subscriber, False) is None:
                        members[feed] = None
                    break
                members.pop(feed, None)
        return members

    def route(self, topic: Topic) -> tuple[Route, ...]:
        """Make the routes of a topic in the table, store them there and return them."""
        forms: dict[int, tuple[IForm, list[Callable[[Any, int], None]]]] = {}
        for subscriber in self._subscribersOrProxies(topic) if self.proxies else self.subscribers(topic):
            forms.setdefault(id(subscriber.form), (subscriber.form, []))[1].append(subscriber.deliver)
        routes = tuple([(form, tuple(delivers)) for form, delivers in forms.values()])
        topic.routes = routes
        self._shorten(topic)
        self._warm[topic] = None
        return routes

    def _shorten(self, topic: Topic) -> None:
        """If all subscribers have one form, let its publishers call ``deliver`` without the broker."""
        routes = topic.routes or ()
        if len(routes) == 1 and not topic.needsOrder:
            topic.onlyForm, calls = routes[0]
            topic.deliverCalls = self._same.setdefault(calls, calls)
