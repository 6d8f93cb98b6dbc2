"""How old the messages of queues are, and how many arrive and leave in a second; measured when somebody asks.

Messages have no time stamps: each look records how many messages a queue has received so far, and the first look whose
count includes the oldest waiting message is taken as its arrival. So an age may be too small by one interval between
looks, or by more after more than :data:`NOTES` looks in which the queue received messages. The time of a message that a
durable queue had at the start is that of its record in the journal, which a look reads for the next ones.
"""

from collections import deque
from functools import partial
from math import inf
from typing import NamedTuple
from weakref import WeakKeyDictionary, WeakSet

from fleximq.broker.consumers.work_queue import WorkQueue
from fleximq.broker.queues.queue import Queue
from fleximq.broker.queues.recorder import Recorder

#: The maximum number of records of one queue; beyond it, every second one is dropped.
NOTES = 64
#: So many records are read at a time for their times.
READS = 64
#: Rates are averages over at least so many seconds, if the queue is as old.
_LEAST = 5.0


class QueueAges:
    """The records of each queue."""

    def __init__(self) -> None:
        self._notes: WeakKeyDictionary[Queue, deque[tuple[int, float]]] = WeakKeyDictionary()
        #: Of queues whose oldest message is from before the start: its arrival number and time.
        self._stored: WeakKeyDictionary[Queue, tuple[int, float]] = WeakKeyDictionary()
        self._reading: WeakSet[Queue] = WeakSet()

    def ageOfOldest(self, queue: Queue, now: float) -> float:
        """Return the minimum age of the oldest message in seconds, 0 for an empty queue."""
        oldest = queue.stored.oldest
        if oldest is None:
            self._notes.pop(queue, None)
            return 0.0
        notes = self._notes.setdefault(queue, deque())
        arrived = queue.stored.arrived
        if not notes or notes[-1][0] < arrived:
            notes.append((arrived, now))
        while len(notes) > 1 and notes[0][0] < oldest:
            notes.popleft()
        if len(notes) > NOTES:
            self._notes[queue] = deque([*list(notes)[:-1:2], notes[-1]])
        since = notes[0][1]
        if queue.recorder is not None and oldest <= queue.recorder.restored:
            since = min(since, self._storedAt(queue, queue.recorder, oldest))
        return now - since

    def _storedAt(self, queue: Queue, recorder: Recorder, oldest: int) -> float:
        """Return when the oldest message was stored, as far as it was read: until then, when the one before it was."""
        if self._stored.get(queue, (0, inf))[0] != oldest and len(self._reading) < READS and queue not in self._reading:
            self._reading.add(queue)
            recorder.readAge(partial(self._read, queue, oldest))
        return self._stored.get(queue, (0, inf))[1]

    def _read(self, queue: Queue, oldest: int, age: float | None) -> None:
        self._reading.discard(queue)
        self._stored[queue] = oldest, inf if age is None else queue.deadlines.seconds() - age


class _Look(NamedTuple):
    """The messages that had arrived and left at a time in seconds."""

    time: float
    arrived: int
    left: int


class QueueRates:
    """The rates of work queues: averages between a look and an earlier one, :data:`_LEAST` seconds ago or more."""

    def __init__(self) -> None:
        self._looks: WeakKeyDictionary[WorkQueue, tuple[_Look, _Look]] = WeakKeyDictionary()

    def rates(self, queue: WorkQueue, now: float) -> tuple[float, float]:
        """Return the messages that arrive and that leave in a second; 0 at the first look."""
        arrived = sum(lane.stored.arrived for lane in queue.lanes)
        look = _Look(now, arrived, arrived - sum(lane.stored.all for lane in queue.lanes))
        before, latest = self._looks.get(queue, (look, look))
        if now - latest.time >= _LEAST:
            before, latest = latest, look
        self._looks[queue] = before, latest
        seconds = now - before.time
        if seconds <= 0:
            return 0.0, 0.0
        return (look.arrived - before.arrived) / seconds, max(0, look.left - before.left) / seconds
