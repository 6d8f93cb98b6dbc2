"""Dead letters: messages that were not acknowledged move to ``$dead/<their topic>`` and to the work queue there."""

from collections.abc import Callable
from functools import partial

from fleximq.broker.deadlines import Deadlines
from fleximq.broker.envelope import ConnectedClient, Envelope
from fleximq.broker.presence import OwnMessages
from fleximq.broker.publishing.slow_path import SlowPath
from fleximq.broker.topics.topic_table import TopicTable
from fleximq.errors import NoCapacity, NotRecorded
from fleximq.limits import DEAD
from fleximq.values.counted_event import CountedEvent, EventFamily
from fleximq.values.message import Message
from fleximq.values.message_cost import OVERHEAD, costOf

#: Counted if there are too many queues to make one for a dead letter.
DROPPED_UNDELIVERABLE = CountedEvent(EventFamily.DROPPED, "no queue for a dead letter")


class DeadLetters:
    """Publishes dead letters as the broker.

    :param ensure: makes the work queue of a topic, or raises :exc:`~fleximq.errors.NoCapacity`.
    :param redelivery: seconds until a dead letter that could not be stored is tried again.
    """

    def __init__(
        self,
        broker: ConnectedClient,
        topics: TopicTable,
        slowPath: SlowPath,
        ensure: Callable[[str], object],
        deadlines: Deadlines,
        redelivery: float,
        counted: Callable[[str, int], None],
    ) -> None:
        self._broker = broker
        self._topics = topics
        self._slowPath = slowPath
        self._ensure = ensure
        self._deadlines = deadlines
        self._redelivery = redelivery
        self._counted = counted
        self._source = OwnMessages()

    def add(self, name: str, message: Message) -> None:
        """Publish a message of this topic as a dead letter, and retry until it is stored."""

        def decided(reason: str | None) -> None:
            if reason is not None:
                self._deadlines.call(self._redelivery, partial(self.add, name, message))

        self.deadLetter(name, message, decided)

    def deadLetter(self, name: str, message: Message, onDecided: Callable[[str | None], None]) -> None:
        """Publish a dead letter once; ``onDecided`` receives None if it is stored or dropped, else the reason of the
        failure.
        """
        topic = DEAD + name
        try:
            self._ensure(topic)
        except NoCapacity:
            self._counted(DROPPED_UNDELIVERABLE, 1)
            onDecided(None)
            return
        envelope = Envelope(self._topics.get(topic), self._broker, self._source)
        try:
            self._slowPath.deliver(envelope, message, 1, costOf(message) - OVERHEAD, onDecided)
        except NotRecorded as error:
            onDecided(error.reason)
