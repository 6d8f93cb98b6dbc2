"""The topic table: who takes what is published to a name. Hot.

A topic comes into being with its first use. Its subscribers, exact and by wildcard, are kept as *routes*: one
entry per form, so that a run is rendered once per form, with the bound ``deliver`` of every subscriber of it.
Routes are made at the first publication and dropped when somebody subscribes or leaves; a publication in between
costs one attribute and one loop. Routing one message to one subscriber takes 0.15 us, of which the call of
``deliver`` is the most (``benchmarks/``, scene "1000 mixed topics").
"""

from collections import deque
from collections.abc import Callable, Container, Iterator
from typing import Any

from fleximq.broker.topics.names import checkName
from fleximq.broker.topics.wildcard_tree import Wildcards
from fleximq.interfaces import IForm, IGuard, ISubscriber, ISubscriberProxy

DeliverCalls = tuple[Callable[[Any, int], None], ...]
Route = tuple[IForm, DeliverCalls]

#: The broker's own topics; nobody else publishes there.
SYSTEM = "$sys/"


class Topic:
    """One name and its subscribers.

    ``routes`` is None until the next publication asks for it. ``needsSlowPath`` says that a publication must take the
    slower way, because something may refuse it, it goes through the journal or waits behind what does, or the topic has
    left the table (``gone``). ``queues`` counts the members that are work queues and make no channel of it,
    ``published`` counts messages. ``deliverCalls`` is the one route's ``deliver``s where all subscribers take the form
    ``onlyForm`` and nothing calls for care, else None; topics with the same subscribers share one tuple, so that
    neighbouring runs for the same takers can be handed over together.

    ``always`` says that all its messages go through the journal, ``keepers`` are the members that are queues which
    outlive the broker, so that those of QoS1 do. ``line`` holds what waits for the journal, in order, ``last`` is the
    number there of the last run in it, ``owed`` and ``owedBytes`` are the messages of QoS1 that will come out of it.
    """

    __slots__ = (
        "always", "needsSlowPath", "gone", "guards", "keepers", "last", "line", "members", "name", "onlyForm", "owed",
        "owedBytes", "published", "queues", "routes", "deliverCalls",
    )  # fmt: skip

    def __init__(self, name: str, always: bool = False) -> None:
        self.name = name
        self.always = always
        self.keepers: set[ISubscriber] = set()
        self.line: deque[Any] = deque()
        self.last = 0
        self.owed = 0
        self.owedBytes = 0
        self.routes: tuple[Route, ...] | None = None
        self.deliverCalls: DeliverCalls | None = None
        self.onlyForm: IForm | None = None
        self.members: dict[ISubscriber, None] = {}
        self.guards: dict[ISubscriber, IGuard] = {}
        self.needsSlowPath = always
        self.gone = False
        self.queues = 0
        self.published = 0

    def cool(self) -> None:
        """Forget the routes; the next publication makes them anew."""
        self.routes = self.deliverCalls = self.onlyForm = None

    @property
    def durable(self) -> bool:
        """Whether what is published here with QoS1 goes through the journal."""
        return self.always or bool(self.keepers)

    def settle(self) -> None:
        """Find out anew whether publications must be careful."""
        self.needsSlowPath = bool(self.guards or self.line or self.keepers) or self.always or self.gone

    @property
    def subscribers(self) -> int:
        """How many subscribe to this very name, work queues left out."""
        return len(self.members) - self.queues


class _Bound:
    """What a subscriber may be brought, and for how many of its subscriptions that was said."""

    __slots__ = ("may", "times")

    def __init__(self, may: Callable[[str], bool]) -> None:
        self.may = may
        self.times = 0


class TopicTable:
    """All topics and all wildcard subscriptions.

    ``proxies`` holds the feeds (:mod:`fleximq.broker.replay.feed`) that take a subscriber's place in what they bring,
    the
    first that does; call :meth:`rearranged` when what they bring changes. ``publishedBefore`` is how many messages were
    published to topics that were forgotten since.

    :param idle: how many topics without a subscriber are remembered; beyond it the oldest is forgotten.
    :param created: called with each topic that comes into being.
    :param channelsChanged: called when :meth:`channels` would give another list.
    :param durable: tells whether all messages of a topic of this name go through the journal.
    """

    def __init__(
        self,
        idle: int,
        created: Callable[[Topic], None],
        channelsChanged: Callable[[], None] = lambda: None,
        durable: Callable[[str], bool] = lambda name: False,
    ) -> None:
        self._topics: dict[str, Topic] = {}
        self._idle: dict[str, Topic] = {}
        self._idleLimit = idle
        self._created = created
        self._channelsChanged = channelsChanged
        self._durable = durable
        self._wildcards = Wildcards()
        self._warm: dict[Topic, None] = {}
        self._same: dict[DeliverCalls, DeliverCalls] = {}
        self._channels: list[str] | None = None
        self.publishedBefore = 0
        self.proxies: dict[ISubscriber, tuple[ISubscriberProxy, ...]] = {}
        self._bounds: dict[ISubscriber, _Bound] = {}

    def __len__(self) -> int:
        return len(self._topics)

    def __iter__(self) -> Iterator[Topic]:
        return iter(self._topics.values())

    def find(self, name: str) -> Topic | None:
        """Return the topic if it exists."""
        return self._topics.get(name)

    def get(self, name: str) -> Topic:
        """Return the topic of this name, made if need be.

        :raises InvalidTopic: the name is empty or too long.
        """
        topic = self._topics.get(name)
        return topic if topic is not None else self._create(name)

    def _create(self, name: str) -> Topic:
        checkName(name)
        always = not name.startswith(SYSTEM) and self._durable(name)
        topic = self._topics[name] = Topic(name, always)
        self._created(topic)
        self._idles(topic)
        return topic

    def _idles(self, topic: Topic) -> None:
        """Note that nobody subscribes to a topic, and forget the oldest of too many such; never this one."""
        self._idle[topic.name] = topic
        if len(self._idle) > self._idleLimit:
            self._forget(next(iter(self._idle.values())))

    def _forget(self, topic: Topic) -> None:
        """Drop an idle topic; who still holds it publishes the careful way, which looks its name up again."""
        del self._topics[topic.name], self._idle[topic.name]
        self.publishedBefore += topic.published
        self._warm.pop(topic, None)
        topic.cool()
        topic.gone = topic.needsSlowPath = True

    def hold(self, topic: Topic) -> None:
        """Keep a topic in the table, and its publications careful, while something is in its line."""
        self._idle.pop(topic.name, None)
        topic.needsSlowPath = True
        topic.deliverCalls = topic.onlyForm = None

    def release(self, topic: Topic) -> None:
        """Its line is empty: let it be as any other."""
        if not topic.members:
            self._idles(topic)
        if not topic.always:
            topic.settle()
            if topic.routes is not None:
                self._shorten(topic)

    def channels(self) -> list[str]:
        """Return the names that have at least one subscriber, sorted; do not change the list."""
        if self._channels is None:
            self._channels = sorted(topic.name for topic in self._topics.values() if topic.subscribers)
        return self._channels

    def subscribe(
        self,
        subscriber: ISubscriber,
        name: str,
        guard: IGuard | None = None,
        queue: bool = False,
        kept: bool = False,
    ) -> None:
        """Add a subscriber to one literal name; adding it again changes nothing.

        :param guard: the subscriber itself, if it may refuse a publication, see :meth:`Broker.publish`.
        :param queue: the subscriber is a work queue and makes no channel of the topic.
        :param kept: the subscriber is a queue that outlives the broker, so that the topic is durable; not one in
            ``$sys/``.
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
        if kept and not name.startswith(SYSTEM):
            topic.keepers.add(subscriber)
        self._changed(topic, before)

    def unsubscribe(self, subscriber: ISubscriber, name: str, queue: bool = False) -> None:
        """Take a subscriber off one literal name; nothing happens where it is none."""
        topic = self._topics.get(name)
        if topic is None or subscriber not in topic.members:
            return
        before = topic.subscribers
        del topic.members[subscriber]
        topic.queues -= queue
        topic.guards.pop(subscriber, None)
        topic.keepers.discard(subscriber)
        self._changed(topic, before)

    def _changed(self, topic: Topic, before: int) -> None:
        topic.cool()
        self._same.clear()
        topic.settle()
        if topic.members:
            self._idle.pop(topic.name, None)
        elif not topic.line:
            self._idles(topic)
        if bool(before) != bool(topic.subscribers):
            self._channels = None
            self._channelsChanged()

    def heard(self, name: str) -> bool:
        """Tell whether anybody takes what is published to this name; no topic comes into being by asking."""
        topic = self._topics.get(name)
        return bool(topic and topic.members) or any(self._wildcards.matching(name))

    def subscribers(self, topic: Topic) -> dict[ISubscriber, None]:
        """Return everybody who takes what is published to this topic and may, each once, exact ones first."""
        members = dict(topic.members)
        if self._wildcards:
            for matched in self._wildcards.matching(topic.name):
                members.update(dict.fromkeys(matched))
        if self._bounds:
            bounds = self._bounds
            for each in [each for each in members if each in bounds and not bounds[each].may(topic.name)]:
                del members[each]
        return members

    def restrict(self, subscriber: ISubscriber, may: Callable[[str], bool]) -> None:
        """Bring a subscriber only what is published to topics that this says yes to, whatever its patterns match.

        Call :meth:`rearranged` when the answers change; each call wants one of :meth:`free` to take it back.
        """
        bound = self._bounds.setdefault(subscriber, _Bound(may))
        bound.times += 1

    def free(self, subscriber: ISubscriber) -> None:
        """Take one restriction of a subscriber back."""
        bound = self._bounds.get(subscriber)
        if bound is not None:
            bound.times -= 1
            if not bound.times:
                del self._bounds[subscriber]

    def subscribePattern(self, subscriber: ISubscriber, pattern: str) -> None:
        """Add a subscriber to every topic that matches, now and later; each call wants one to take it back.

        :raises InvalidTopic: the pattern is too long, or has too many levels.
        """
        self._wildcards.add(subscriber, pattern)
        self._cool()

    def unsubscribePattern(self, subscriber: ISubscriber, pattern: str) -> None:
        """Take a subscriber off a pattern it was added to."""
        if self._wildcards.remove(subscriber, pattern):
            self._cool()

    def _cool(self) -> None:
        """Drop the routes that wildcards have a part in; each was paid for by a publication."""
        for topic in self._warm:
            topic.cool()
        self._warm.clear()
        self._same.clear()

    def listens(self, subscriber: ISubscriber, topic: Topic, members: Container[ISubscriber]) -> bool:
        """Tell whether somebody is among those who take what is published to this topic, himself or by a feed."""
        return subscriber in members or any(
            feed in members and feed.accepts(topic) for feed in self.proxies.get(subscriber, ())
        )

    def rearranged(self) -> None:
        """Find out anew who takes what, because a feed brings something else now, or somebody may have it no more."""
        self._cool()

    def _subscribersOrProxies(self, topic: Topic) -> dict[ISubscriber, None]:
        """Return everybody who is handed what is published to this topic: feeds instead of those they stand in for."""
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
        """Return the routes of a topic in the table, made anew, and remember them there."""
        forms: dict[int, tuple[IForm, list[Callable[[Any, int], None]]]] = {}
        for subscriber in self._subscribersOrProxies(topic) if self.proxies else self.subscribers(topic):
            forms.setdefault(id(subscriber.form), (subscriber.form, []))[1].append(subscriber.deliver)
        routes = tuple([(form, tuple(delivers)) for form, delivers in forms.values()])
        topic.routes = routes
        self._shorten(topic)
        self._warm[topic] = None
        return routes

    def _shorten(self, topic: Topic) -> None:
        """Let publishers of the one form that all subscribers take hand over to them without a word to the broker."""
        routes = topic.routes or ()
        if len(routes) == 1 and not topic.needsSlowPath:
            topic.onlyForm, calls = routes[0]
            topic.deliverCalls = self._same.setdefault(calls, calls)
