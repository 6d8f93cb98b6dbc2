"""Messages that nobody acknowledged: each goes to the topic ``$dead/<its topic>``, and to the work queue there."""

from collections.abc import Callable
from functools import partial

from fleximq.broker.deadlines import Deadlines
from fleximq.broker.envelope import ConnectedClient, Envelope
from fleximq.broker.presence import OwnMessages
from fleximq.broker.publishing.slow_path import SlowPath
from fleximq.broker.queues.waiting_messages import OVERHEAD, costOf
from fleximq.broker.topics.topic_table import TopicTable
from fleximq.errors import NoCapacity, NotRecorded
from fleximq.limits import DEAD
from fleximq.values.counted_event import CountedEvent, EventFamily
from fleximq.values.message import Message

#: What is counted when there are too many queues to make one for a dead letter.
DROPPED_UNDELIVERABLE = CountedEvent(EventFamily.DROPPED, "no queue for a dead letter")


class DeadLetters:
    """Publishes dead letters as the broker.

    :param ensure: lets a topic have a work queue, or raises :exc:`~fleximq.errors.NoCapacity`.
    :param retryAfter: seconds until a letter is tried again that could not be kept.
    :param counted: is told of :data:`DROPPED_UNDELIVERABLE` letters.
    """

    def __init__(
        self,
        broker: ConnectedClient,
        topics: TopicTable,
        publishing: SlowPath,
        ensure: Callable[[str], object],
        deadlines: Deadlines,
        retryAfter: float,
        counted: Callable[[str, int], None],
    ) -> None:
        self._broker = broker
        self._topics = topics
        self._publishing = publishing
        self._ensure = ensure
        self._deadlines = deadlines
        self._retryAfter = retryAfter
        self._counted = counted
        self._source = OwnMessages()

    def add(self, name: str, message: Message) -> None:
        """Bring a message of this topic to the dead letters; what cannot be kept is tried again later."""
        self.deadLetter(name, message, partial(self._buried, name, message))

    def _buried(self, name: str, message: Message, reason: str | None) -> None:
        if reason is not None:
            self._deadlines.call(self._retryAfter, partial(self.add, name, message))

    def deadLetter(self, name: str, message: Message, kept: Callable[[str | None], None]) -> None:
        """Bring a message to the dead letters, and tell if it went through the journal: None, or why not."""
        topic = DEAD + name
        try:
            self._ensure(topic)
        except NoCapacity:
            self._counted(DROPPED_UNDELIVERABLE, 1)
            kept(None)
            return
        envelope = Envelope(self._topics.get(topic), self._broker, self._source)
        try:
            self._publishing.bring(envelope, message, 1, costOf(message) - OVERHEAD, kept)
        except NotRecorded as error:
            kept(error.reason)
