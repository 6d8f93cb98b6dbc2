"""A journal with a log that outlives its broker, as a disk does, so that tests can kill brokers and start new ones."""

from collections.abc import Callable, Mapping
from typing import Any

import msgpack
from twisted.internet.task import Clock
from zope.interface import implementer

from fleximq.broker.broker import Broker
from fleximq.broker.envelope import ConnectedClient, Envelope, MessageSource, QueueDelivery
from fleximq.interfaces import IRecoveredState
from fleximq.limits import Limits
from fleximq.values.message import Content, Message
from fleximq.values.records import StoredBatch
from tests.broker.parts import makeBroker
from tests.broker.queueing import paired
from tests.journal_records import batchOf
from tests.slow_journal import SlowJournal

SOURCE = MessageSource()


@implementer(IRecoveredState)
class LoggedJournal(SlowJournal):
    """Writes records and notes to ``log`` at each commit, the notes of a commit behind its records.

    ``checkpoint`` is the last snapshot, packed, and the length of the log at that moment.
    """

    def __init__(self) -> None:
        super().__init__()
        self.log: list[Any] = []
        self.clean = False
        self.pending: list[Any] = []
        self.checkpoint: tuple[bytes | None, int] = None, 0

    def appendState(self, event: Any) -> None:
        """Keep a note for the next commit."""
        super().appendState(event)
        self.pending.append(event)

    def commit(self, reason: str | None = None, runs: int | None = None) -> None:
        """Commit what was appended, and what was noted so far."""
        notes, self.pending = self.pending, []
        before = len(self.records)
        super().commit(reason, runs)
        fresh = self.records[before:]
        if fresh:
            self.log.append(batchOf(fresh))
        if reason is None:
            self.log += notes

    def roll(self, broker: Broker) -> None:
        """Take a snapshot."""
        self.checkpoint = msgpack.packb(broker.checkpointer.snapshot()), len(self.log)

    @property
    def snapshot(self) -> Mapping[str, Any] | None:
        """The last snapshot."""
        packed, _ = self.checkpoint
        return None if packed is None else msgpack.unpackb(packed, strict_map_key=False)

    def replay(self, batches: Callable[[StoredBatch], None], notes: Callable[[Any], None]) -> None:
        """Give what came after the last snapshot."""
        for entry in self.log[self.checkpoint[1] :]:
            (batches if isinstance(entry, StoredBatch) else notes)(entry)

    def killed(self) -> "LoggedJournal":
        """Return what the next process finds: offsets go on behind a gap."""
        journal = LoggedJournal()
        journal.records, journal.log, journal.checkpoint = self.records, self.log, self.checkpoint
        journal.end = journal._next = (self._next // 1000 + 1) * 1000
        return journal


class Restarts:
    """A broker that is killed and started again, on one clock; ``me`` is its only client.

    ``step`` is how far the system clock was set.

    :param rules: those of the broker; ``limits`` are fields of its limits.
    """

    def __init__(self, limits: Mapping[str, int] | None = None, **rules: Any) -> None:
        self.clock = Clock()
        self.clock.advance(1_000_000)
        self.step = 800_000_000.0
        self._rules = {**rules, "limits": Limits(**(limits or {}))}
        self.journal = LoggedJournal()
        self.errors: list[Exception] = []
        self.begin()

    def begin(self) -> None:
        """Start a broker on the journal."""
        wall = lambda: self.clock.seconds() + self.step  # noqa: E731
        self.broker = makeBroker(self.clock, self.journal, self.errors.append, wall, **self._rules)
        self.me: ConnectedClient = self.broker.join("blipmq")

    def kill(self, patient: bool = False, clean: bool = False) -> None:
        """Lose everything but the log, and start again; a journal that is begun takes a snapshot first of all."""
        self.broker.stop()
        self.journal = self.journal.killed()
        self.journal.patient, self.journal.clean = patient, clean
        self.begin()
        self.broker.checkpointer.restore(self.journal)
        self.journal.roll(self.broker)
        self.clock.advance(0)

    def publish(self, topic: str, *names: str, qos: int = 1, ids: bool = False) -> None:
        """Publish messages with these payloads, which are their ids too if so asked."""
        envelope = Envelope(self.broker.topicFor(self.me, topic), self.me, SOURCE, qos, durable=qos == 1)
        body = [Message(name.encode(), Content.TEXT, qos, name if ids else None) for name in names]
        self.broker.publish(envelope, body, len(body))

    def commit(self) -> None:
        """Let all be safe that happened so far."""
        self.broker.checkpointer.flush()
        self.journal.commit()

    def settle(self) -> None:
        """Give all that is being read."""
        while self.journal.asked:
            self.journal.answer()

    def poll(self, id: int, number: int, owner: str | None = None) -> list[QueueDelivery]:
        """Poll until that many were given, or there is nothing more, as a dialect does."""
        deliveries: list[QueueDelivery] = []
        while len(deliveries) < number:
            taken = paired(self.broker.subscription(self.me, owner, id).poll(self.me, number - len(deliveries)))
            deliveries += taken
            if not taken:
                if not self.broker.polledSubscriptions.find(id, owner).preparing:
                    break
                self.journal.answer()
        return deliveries

    def consume(self, topic: str, number: int) -> list[QueueDelivery]:
        """Consume until that many were given, or there is nothing more, as a dialect does."""
        deliveries: list[QueueDelivery] = []
        while len(deliveries) < number:
            taken = self.broker.consumeMany(self.me, topic, number - len(deliveries))
            deliveries += taken
            if not taken:
                queue = self.broker.queues.get(topic)
                if queue is None or not queue.preparing:
                    break
                self.journal.answer()
        return deliveries


def payloads(deliveries: list[QueueDelivery]) -> str:
    """Return the payloads of these, with blanks between."""
    return " ".join(delivery.message.payload.decode() for delivery in deliveries)
