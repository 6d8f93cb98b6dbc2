"""Dead letters: messages that died in a queue move to ``$dead/<its name>``, or to the topic that the definition of the
queue names, and to the work queue there.

The header of a dead letter tells its story, see :mod:`fleximq.values.death`.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice

from fleximq.broker.deadlines import Deadlines
from fleximq.broker.envelope import BROKER_ID, ConnectedClient, Envelope, LastDelivery, QueueDelivery
from fleximq.broker.presence import OWN_MESSAGES
from fleximq.broker.publishing.publication_paths import OrderedPath, refusal
from fleximq.broker.queues.queue import Queue
from fleximq.broker.topics.topic_table import TopicTable
from fleximq.errors import NoCapacity, NotRecorded
from fleximq.limits import DEAD, HEADER_BYTES, TOPIC_BYTES
from fleximq.values.counted_event import CountedEvent, EventFamily
from fleximq.values.death import Death, storyIn
from fleximq.values.message import Content, Message
from fleximq.values.message_cost import OVERHEAD, costOf
from fleximq.values.publication_head import headOf
from fleximq.values.records import headerOf

#: Counted if there are too many queues to make one for a dead letter.
DROPPED_UNDELIVERABLE = CountedEvent(EventFamily.DROPPED, "no queue for a dead letter")

#: Maximum size of a stored header of a letter: the topic is added to it.
_HEADER_BYTES = HEADER_BYTES - TOPIC_BYTES - len(DEAD) - 64

#: Maximum number of dead letters that are published in one turn of the reactor: 0.1 ms each.
AT_ONCE = 500
#: Number of the latest dead letters that a late acknowledgement can withdraw.
LATE = 10_000


@dataclass(slots=True, eq=False, repr=False)
class _Letter:
    """A dead letter that a consumer may still acknowledge: ``delivery`` was the last one from ``queue``, here with the
    message's id alone. ``content`` is a hash that finds the message among the dead letters of its topic; of equal ones
    any may be found. ``place`` is their queue, its arrival number there and its offset, None before its arrival.
    """

    queue: Queue
    delivery: QueueDelivery
    content: int
    place: tuple[Queue, int, int] | None = None
    acknowledged: bool = False


def _contentOf(message: Message) -> int:
    return hash((message.payload, message.content, message.message_id, message.correlation_id, message.reply_to))


@dataclass(eq=False, repr=False)
class DeadLetters:
    """Publishes dead letters as the broker, and withdraws those whose acknowledgement arrives late.

    Of many messages that die together, only :data:`AT_ONCE` dead letters are published in a turn.

    A consumer may need more time than all deliveries of a message together, and then acknowledge it. Its dead letter is
    removed then, if no consumer has taken it, it is one of the latest :data:`LATE`, and the broker was not restarted.
    ``onDeadLetter`` is called with the story of each dead letter and the id of its message, if any.

    In a topic that a definition names, dead letters are messages like all others: they are not withdrawn, a full queue
    may refuse them, and they do not expire again.

    :param topicOf: returns the topic of the dead letters of a work queue, by its name.
    :param ensure: makes the work queue of a topic, or raises :exc:`~fleximq.errors.NoCapacity`.
    :param redelivery: seconds until a dead letter that could not be stored is tried again.
    :param wall: returns the microseconds since 1970.
    """

    _broker: ConnectedClient
    _topics: TopicTable
    _orderedPath: OrderedPath
    _topicOf: Callable[[str], str]
    _ensure: Callable[[str], object]
    _deadlines: Deadlines
    _redelivery: float
    _counted: Callable[[str, int], None]
    _wall: Callable[[], int]
    onDeadLetter: Callable[[Death, str | None], None] = lambda death, messageId: None
    _late: OrderedDict[tuple[Queue, int], _Letter] = field(default_factory=OrderedDict)
    _expected: dict[str, list[_Letter]] = field(default_factory=dict)
    #: Publish the dead letters that are left to later turns, by queue and tag.
    _later: dict[tuple[Queue, int], Callable[[], None]] = field(default_factory=dict)
    _inThisTurn: int = 0

    def add(self, queue: Queue, delivery: LastDelivery) -> None:
        """Publish the message of a last delivery as a dead letter, and retry until it is stored."""
        self._inTurn(queue, delivery, lambda: self._retry(*self._register(queue, delivery)))

    def _inTurn(self, queue: Queue, delivery: LastDelivery, publish: Callable[[], None]) -> None:
        """Publish the message of a last delivery now, or in a later turn after those before it."""
        if not self._inThisTurn:
            self._deadlines.callLater(0, self._nextTurn)
        self._inThisTurn += 1
        if self._inThisTurn > AT_ONCE:
            self._later[queue, delivery.tag] = publish
        else:
            publish()

    def _nextTurn(self) -> None:
        self._inThisTurn = len(self._later)
        if self._later:
            self._deadlines.callLater(0, self._nextTurn)
        for key in [*islice(self._later, AT_ONCE)]:
            publish = self._later.pop(key, None)  # it may be acknowledged meanwhile
            if publish is not None:
                publish()

    def _retry(self, letter: _Letter, message: Message) -> None:
        def decided(reason: str | None) -> None:
            if reason is not None:
                self._deadlines.callLater(self._redelivery, partial(self._retry, letter, message))

        if not letter.acknowledged:
            self._publish(letter, message, decided)

    def deadLetter(self, queue: Queue, delivery: LastDelivery, onDecided: Callable[[str | None], None]) -> None:
        """Publish a dead letter once; ``onDecided`` receives None if it is stored or dropped, else the reason."""

        def decided(reason: str | None) -> None:
            if reason is not None:
                self._late.pop((queue, delivery.tag), None)
            onDecided(reason)

        def publish() -> None:
            try:
                self._publish(*self._register(queue, delivery), decided)
            except Exception as error:
                decided(str(error))
                self._deadlines.onError(error)

        self._inTurn(queue, delivery, publish)

    def arrived(self, queue: Queue, messages: Sequence[Message]) -> None:
        """Record the arrival of dead letters in their queue."""
        expected = self._expected.pop(queue.name, [])
        for number, message in enumerate(messages, queue.stored.arrived - len(messages) + 1):
            content = _contentOf(message)
            letter = next((each for each in expected if each.content == content), None)
            if letter is not None:
                expected.remove(letter)
                letter.place = queue, number, message.offset
                if letter.acknowledged:
                    self._remove(letter)
        if expected:
            self._expected[queue.name] = expected

    def withdraw(self, queue: Queue, tag: int) -> bool:
        """Remove the dead letter of a queue's message; False if it is unknown, or not in its queue any more."""
        letter = self._late.pop((queue, tag), None)
        if letter is None:
            return self._later.pop((queue, tag), None) is not None
        letter.acknowledged = True
        return letter.place is None or self._remove(letter)

    def _remove(self, letter: _Letter) -> bool:
        if letter.place is None:
            return False
        queue, number, offset = letter.place
        return queue.withdraw(number, offset, lambda each: _contentOf(each) == letter.content)

    def _register(self, queue: Queue, delivery: LastDelivery) -> tuple[_Letter, Message]:
        """Remember a dead letter for late acknowledgements; return it, and its message with the story."""
        tag, message, attempts = delivery[:3]
        named = Message(b"", Content.BYTES, message_id=message.message_id)
        letter = _Letter(queue, QueueDelivery(tag, named, attempts), _contentOf(message))
        topic = DEAD + queue.name if queue.subscriptionId else self._topicOf(queue.name)
        self._late[queue, delivery.tag] = letter
        if not topic.startswith(DEAD):
            self._isFinal(self._late.pop((queue, tag)))
        elif len(self._late) > LATE:
            self._isFinal(self._late.popitem(last=False)[1])
        death = self._deathOf(queue, delivery)
        self.onDeadLetter(death, message.message_id)
        pairs = storyIn(headerOf(message), death, message.message_id, _HEADER_BYTES, topic.startswith(DEAD))
        return letter, message._replace(head=headOf(topic, pairs, BROKER_ID))

    def _isFinal(self, letter: _Letter) -> None:
        """Forget the id of a message whose dead letter stays."""
        letter.queue.stored.moved(letter.delivery, True)

    def _deathOf(self, queue: Queue, delivery: LastDelivery) -> Death:
        _, message, attempts, reason, consumer, words, since = delivery
        now = self._wall() // 1000
        first = now if since is None else now - round((self._deadlines.seconds() - since) * 1000)
        topic = queue.name if message.head is None else message.head.topic
        return Death(queue.name, reason, attempts, first, now, consumer, words, topic, queue.subscriptionId)

    def _publish(self, letter: _Letter, message: Message, onDecided: Callable[[str | None], None]) -> None:
        assert message.head is not None
        name = message.head.topic
        try:
            self._ensure(name)
        except NoCapacity:
            self._counted(DROPPED_UNDELIVERABLE, 1)
            onDecided(None)
            return
        topic, size = self._topics.get(name), costOf(message) - OVERHEAD
        isExpected = name.startswith(DEAD)
        reason = None if isExpected else refusal(topic, 1, size)
        if reason is not None:
            onDecided(reason)
            return
        if isExpected:
            self._expected.setdefault(name, []).append(letter)

        def decided(reason: str | None, indexes: Sequence[int] = ()) -> None:
            if reason is not None and isExpected:
                self._expected[name].remove(letter)
            onDecided(reason)

        try:
            self._orderedPath.deliver(Envelope(topic, self._broker, OWN_MESSAGES), message, 1, size, decided)
        except NotRecorded as error:
            decided(error.reason)
