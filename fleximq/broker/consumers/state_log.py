"""Appends state records to the journal: deliveries and acknowledgements of durable queues, once per reactor turn, and
openings and ends of subscriptions and work queues.
"""

from collections.abc import Callable, Iterable

from fleximq.broker.consumers.queue_owner import QueueOwner
from fleximq.broker.deadlines import Deadlines
from fleximq.broker.envelope import LastDelivery
from fleximq.broker.queues.queue import Queue
from fleximq.broker.queues.queue_recorder import QueueRecorder
from fleximq.interfaces import IJournal
from fleximq.values.queue_definition import QueueDefinition
from fleximq.values.state_records import QueueClosed, QueueDefined, QueueOpened

#: The key of state records of the largest id that a subscription may have so far, volatile ones included.
IDS = "i:"
#: The number of ids that one of these records reserves.
_BLOCK = 1000


DeadLetter = Callable[[Queue, LastDelivery, Callable[[str | None], None]], None]


class StateLog:
    """Collects the queues with new state records; provides :class:`fleximq.broker.queues.queue_recorder.QueueLog`.

    ``lastId`` is the last subscription id that the journal knows of, ``deadLetter`` publishes a dead letter and reports
    None if it is stored, else the reason of the failure. ``wall`` returns the microseconds since 1970.
    """

    def __init__(
        self, journal: IJournal, deadlines: Deadlines, deadLetter: DeadLetter, wall: Callable[[], int]
    ) -> None:
        self.journal = journal
        self.wall = wall
        self.deadLetter = deadLetter
        self.lastId = 0
        self._deadlines = deadlines
        self._changed: dict[QueueRecorder, None] = {}
        #: Dead letters of durable queues that are being stored, by queue and tag.
        self._letters: set[tuple[Queue, int]] = set()
        self._letterWaits: list[tuple[set[tuple[Queue, int]], Callable[[], None]]] = []

    def soon(self, call: Callable[[], None]) -> None:
        """Call in the next turn."""
        self._deadlines.callLater(0, call)

    def changed(self, recorder: QueueRecorder) -> None:
        """Collect this recorder's state records at the end of the turn, or before the next wait for commits."""
        if not self._changed:
            self._deadlines.callLater(0, self.flush)
        self._changed[recorder] = None

    def burying(self, queue: Queue, tags: Iterable[int]) -> None:
        """See :class:`~fleximq.broker.queues.last_deliveries.DeadLetterLog`."""
        self._letters.update((queue, tag) for tag in tags)

    def buried(self, queue: Queue, tags: Iterable[int]) -> None:
        """See :class:`~fleximq.broker.queues.last_deliveries.DeadLetterLog`."""
        ended = {(queue, tag) for tag in tags}
        self._letters -= ended
        if self._letterWaits:
            waits, self._letterWaits = self._letterWaits, []
            for letters, call in waits:
                letters -= ended
                if letters:
                    self._letterWaits.append((letters, call))
                else:
                    call()

    def whenLettersStored(self, call: Callable[[], None]) -> bool:
        """Call when all dead letters that are being stored now are stored or refused: only then have the records that
        their messages are gone been collected. False, without a call, if none is being stored.
        """
        if not self._letters:
            return False
        self._letterWaits.append((set(self._letters), call))
        return True

    def flush(self) -> None:
        """Append the state records now."""
        if self._changed:
            changed, self._changed = self._changed, {}
            for recorder in changed:
                for note in recorder.stateRecords():
                    self.journal.appendState(note)

    def opened(self, owner: QueueOwner) -> None:
        """Record an opened subscription or work queue; of a volatile subscription at least the id."""
        recorder = owner.queue.recorder
        if recorder is not None:
            self._append(recorder.key, owner.queue.name, owner.qos, owner.id, owner.owner)
        elif owner.id > self.lastId:
            self.lastId = owner.id + _BLOCK
            self._append(IDS, "", 0, self.lastId, None)

    def defined(self, definition: QueueDefinition) -> None:
        """Record the definition of a work queue."""
        self.journal.appendState(QueueDefined(definition.name, definition.dump(), self.journal.end))

    def ended(self, owner: QueueOwner) -> None:
        """Record that a subscription or work queue has expired."""
        recorder = owner.queue.recorder
        if recorder is not None:
            self.journal.appendState(QueueClosed(recorder.key))
        if owner.isDefined:
            self.journal.appendState(QueueDefined(owner.queue.name, None, self.journal.end))

    def _append(self, key: str, topic: str, qos: int, subscriptionId: int, owner: str | None) -> None:
        self.journal.appendState(QueueOpened(key, topic, qos, subscriptionId, owner, self.journal.end))
