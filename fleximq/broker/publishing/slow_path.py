"""The careful way of publications: past guards that may refuse them, and through the journal or behind what is there.

What needs no care is delivered at once (:mod:`fleximq.broker.publishing.fan_out`) and never comes by here.

Whether those subscribers that lose nothing have room for a run; all of them are asked before any is filled.

They do not know yet what is on its way to them through the journal, so that is added to what they are asked for.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

from fleximq.broker.envelope import Envelope, OnDecided
from fleximq.broker.publishing.fan_out import FanOut
from fleximq.broker.publishing.pending_commits import PendingCommits
from fleximq.broker.publishing.transactions import Transactions
from fleximq.broker.queues.waiting_messages import OVERHEAD, costOf, weigh
from fleximq.broker.topics.topic_table import Topic
from fleximq.errors import NotKept, NotRecorded
from fleximq.interfaces import IJournal


class GuardResult(NamedTuple):
    """What fits of a run: places of its messages.

    ``size`` are the bytes in those that do, ``words`` say why others do not.
    """

    taken: list[int]
    refused: list[int]
    size: int
    words: str


def admitsAll(topic: Topic, count: int, size: int) -> bool:
    """Tell whether a run of so many messages, with so many bytes in them, fits as a whole."""
    count += topic.pendingCount
    size += topic.pendingBytes
    return all(guard.admits(count, size) is None for guard in topic.guards.values())


def admitted(envelope: Envelope, body: Any) -> GuardResult:
    """Return which messages of a run fit: each one that still has room beside those before it."""
    topic = envelope.topic
    taken: list[int] = []
    refused: list[int] = []
    words = ""
    size = 0
    for place, message in enumerate(envelope.source.messages(body)):
        more = size + costOf(message) - OVERHEAD
        reason = _reason(topic, topic.pendingCount + len(taken) + 1, topic.pendingBytes + more)
        if reason is None:
            taken.append(place)
            size = more
        else:
            refused.append(place)
            words = reason
    return GuardResult(taken, refused, size, words)


def _reason(topic: Topic, count: int, size: int) -> str | None:
    reasons = (guard.admits(count, size) for guard in topic.guards.values())
    return next((reason for reason in reasons if reason is not None), None)


class SlowPath:
    """Takes runs that something may refuse, that are to be kept, or that wait for others."""

    def __init__(
        self, journal: IJournal, delivering: FanOut, transactions: Transactions, recording: PendingCommits
    ) -> None:
        self._onDisk: bool = journal.onDisk
        self._delivering = delivering
        self._transactions = transactions
        self._recording = recording

    def publish(self, envelope: Envelope, body: Any, count: int, onDecided: OnDecided | None) -> None:
        """See :meth:`fleximq.broker.broker.Broker.publish`."""
        topic = envelope.topic
        if topic.gone:
            envelope = self._delivering.present(envelope)
            topic = envelope.topic
        if not (topic.guards or self._onDisk):
            self._delivering.deliver(envelope, body, count)
            return
        taken: Sequence[int] = range(count)
        refused: Sequence[int] = ()
        size = 0
        words = ""
        if (topic.guards or (topic.queues and self._onDisk)) and envelope.qos:
            size = weigh(envelope.source.messages(body))
            if not admitsAll(topic, count, size):
                taken, refused, size, words = admitted(envelope, body)
                if taken and refused:
                    body = envelope.source.pick(body, taken)
        if taken:
            try:
                self.bring(envelope, body, len(taken), size, onDecided and partial(_tell, onDecided, taken))
            except NotRecorded as error:
                raise NotRecorded(error.reason, range(count)) from error
        if refused:
            raise NotKept(words, refused)

    def narrowed(self, envelope: Envelope, body: Any, count: int, audience: Iterable[int]) -> None:
        """See :meth:`fleximq.broker.broker.Broker.publishNarrowed`."""
        envelope = self._delivering.present(envelope)
        bring = partial(self._delivering.deliverTo, tuple(audience))
        if envelope.topic.pendingRuns:
            self._recording.wait(envelope, body, count, bring)
        else:
            bring(envelope, body, count)

    def bring(
        self, envelope: Envelope, body: Any, count: int, size: int, onDecided: Callable[[str | None], None] | None
    ) -> None:
        """Bring a run, which nobody refuses, through the journal, behind what goes through it, or at once.

        :param size: the bytes in its messages, if anybody will ask how many are to come.
        :param told: called when it is committed (None), or with the reason why it is not kept, if it is to be kept.
        :raises NotRecorded: the journal takes nothing at present.
        """
        if self.isRecorded(envelope):
            self._recording.keep(envelope, body, count, size, onDecided)
        elif envelope.topic.pendingRuns:
            self._recording.wait(envelope, body, count, self._transactions.deliver)
        else:
            self._transactions.deliver(envelope, body, count)

    def isRecorded(self, envelope: Envelope) -> bool:
        """Tell whether a run goes through the journal."""
        if not self._onDisk:
            return False
        topic = envelope.topic
        return envelope.durable or topic.alwaysDurable or bool(topic.durableQueues and envelope.qos)


def _tell(onDecided: OnDecided, places: Sequence[int], reason: str | None) -> None:
    onDecided(reason, places)
