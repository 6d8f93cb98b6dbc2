"""The slow path of publications: past guards that may refuse them, through the journal, or after pending ones.

Guards are subscribers that must not lose messages. All are asked before any receives a message, about the run together
with the messages of earlier pending runs.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from fleximq.broker.envelope import Envelope, OnDecided
from fleximq.broker.publishing.fan_out import FanOut
from fleximq.broker.publishing.pending_commits import PendingCommits
from fleximq.broker.publishing.transactions import Transactions
from fleximq.broker.topics.topic_table import Topic
from fleximq.errors import NotKept, NotRecorded
from fleximq.values.message_cost import OVERHEAD, costOf


def _admitted(envelope: Envelope, body: Any) -> tuple[list[int], list[int], int, str]:
    """Ask the guards about each message; return the indexes of those accepted and refused, and the bytes of the former
    and a reason of the latter.
    """
    topic = envelope.topic
    taken: list[int] = []
    refused: list[int] = []
    words = ""
    size = 0
    for place, message in enumerate(envelope.source.messages(body)):
        more = size + costOf(message) - OVERHEAD
        reason = _refusal(topic, len(taken) + 1, more)
        if reason is None:
            taken.append(place)
            size = more
        else:
            refused.append(place)
            words = reason
    return taken, refused, size, words


def _refusal(topic: Topic, count: int, size: int) -> str | None:
    """Return the reason why a guard refuses so many messages with so many bytes."""
    count += topic.pendingCount
    size += topic.pendingBytes
    return next((no for guard in topic.guards.values() if (no := guard.admits(count, size)) is not None), None)


@dataclass(eq=False, repr=False)
class SlowPath:
    """Publishes runs that guards may refuse, that are durable, or that must wait for pending ones."""

    _onDisk: bool
    _fanOut: FanOut
    _transactions: Transactions
    _pendingCommits: PendingCommits

    def publish(self, envelope: Envelope, body: Any, count: int, onDecided: OnDecided | None) -> None:
        """See :meth:`fleximq.broker.broker.Broker.publish`."""
        topic = envelope.topic
        if topic.gone:
            envelope = self._fanOut.present(envelope)
            topic = envelope.topic
        if not (topic.guards or self._onDisk):
            self._fanOut.deliver(envelope, body, count)
            return
        taken: Sequence[int] = range(count)
        refused: Sequence[int] = ()
        size = 0
        words = ""
        if (topic.guards or (topic.queues and self._onDisk)) and envelope.qos:
            size = envelope.source.size(body)
            if _refusal(topic, count, size) is not None:
                taken, refused, size, words = _admitted(envelope, body)
                if taken and refused:
                    body = envelope.source.pick(body, taken)
        if taken:
            try:
                self.deliver(envelope, body, len(taken), size, onDecided and partial(_tell, onDecided, taken))
            except NotRecorded as error:
                raise NotRecorded(error.reason, range(count)) from error
        if refused:
            raise NotKept(words, refused)

    def narrowed(self, envelope: Envelope, body: Any, count: int, audience: Iterable[int]) -> None:
        """See :meth:`fleximq.broker.broker.Broker.publishNarrowed`."""
        envelope = self._fanOut.present(envelope)
        deliver = partial(self._fanOut.deliverTo, tuple(audience))
        if envelope.topic.pendingRuns:
            self._pendingCommits.wait(envelope, body, count, deliver)
        else:
            deliver(envelope, body, count)

    def deliver(
        self, envelope: Envelope, body: Any, count: int, size: int, onDecided: Callable[[str | None], None] | None
    ) -> None:
        """Append an accepted run to the journal, see :meth:`PendingCommits.append`, or deliver it in its turn."""
        if self.isRecorded(envelope):
            self._pendingCommits.append(envelope, body, count, size, onDecided)
        elif envelope.topic.pendingRuns:
            self._pendingCommits.wait(envelope, body, count, self._transactions.deliver)
        else:
            self._transactions.deliver(envelope, body, count)

    def isRecorded(self, envelope: Envelope) -> bool:
        """Tell whether the journal stores a run."""
        if not self._onDisk:
            return False
        topic = envelope.topic
        return envelope.durable or topic.alwaysDurable or bool(topic.durableQueues and envelope.qos)


def _tell(onDecided: OnDecided, places: Sequence[int], reason: str | None) -> None:
    onDecided(reason, places)
