"""Dead letters: messages that were not acknowledged move to ``$dead/<their topic>`` and to the work queue there."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from fleximq.broker.deadlines import Deadlines
from fleximq.broker.envelope import ConnectedClient, Envelope
from fleximq.broker.presence import OWN_MESSAGES
from fleximq.broker.publishing.slow_path import SlowPath
from fleximq.broker.topics.topic_table import TopicTable
from fleximq.errors import NoCapacity, NotRecorded
from fleximq.limits import DEAD
from fleximq.values.counted_event import CountedEvent, EventFamily
from fleximq.values.message import Message
from fleximq.values.message_cost import OVERHEAD, costOf

#: Counted if there are too many queues to make one for a dead letter.
DROPPED_UNDELIVERABLE = CountedEvent(EventFamily.DROPPED, "no queue for a dead letter")


@dataclass(eq=False, repr=False)
class DeadLetters:
    """Publishes dead letters as the broker.

    :param ensure: makes the work queue of a topic, or raises :exc:`~fleximq.errors.NoCapacity`.
    :param redelivery: seconds until a dead letter that could not be stored is tried again.
    """

    _broker: ConnectedClient
    _topics: TopicTable
    _slowPath: SlowPath
    _ensure: Callable[[str], object]
    _deadlines: Deadlines
    _redelivery: float
    _counted: Callable[[str, int], None]

    def add(self, name: str, message: Message) -> None:
        """Publish a message of this topic as a dead letter, and retry until it is stored."""

        def decided(reason: str | None) -> None:
            if reason is not None:
                self._deadlines.callLater(self._redelivery, partial(self.add, name, message))

        self.deadLetter(name, message, decided)

    def deadLetter(self, name: str, message: Message, onDecided: Callable[[str | None], None]) -> None:
        """Publish a dead letter once; ``onDecided`` receives None if it is stored or dropped, else the reason."""
        topic = DEAD + name
        try:
            self._ensure(topic)
        except NoCapacity:
            self._counted(DROPPED_UNDELIVERABLE, 1)
            onDecided(None)
            return
        envelope = Envelope(self._topics.get(topic), self._broker, OWN_MESSAGES)
        try:
            self._slowPath.deliver(envelope, message, 1, costOf(message) - OVERHEAD, onDecided)
        except NotRecorded as error:
            onDecided(error.reason)
