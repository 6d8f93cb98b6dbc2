"""How old the oldest message of a queue is, about, without a clock at every message.

Whenever somebody looks, it is noted how many messages each queue has been given by then. The oldest one that waits came
before the first note that counts it. So an age is right but for the time between two looks, never too great, and a
queue costs nothing while nobody looks.
"""

from collections import deque
from weakref import WeakKeyDictionary

from fleximq.broker.queues.queue import Queue

#: So many notes are kept of one queue; of more every other one goes.
NOTES = 64


class QueueAges:
    """Remembers what was seen of each queue."""

    def __init__(self) -> None:
        self._notes: WeakKeyDictionary[Queue, deque[tuple[int, float]]] = WeakKeyDictionary()

    def look(self, queue: Queue, now: float) -> float:
        """Return the seconds that the oldest message has waited at least, 0 if none waits."""
        oldest = queue.oldest
        if oldest is None:
            self._notes.pop(queue, None)
            return 0.0
        notes = self._notes.setdefault(queue, deque())
        arrived = queue.arrived
        if not notes or notes[-1][0] < arrived:
            notes.append((arrived, now))
        while len(notes) > 1 and notes[0][0] < oldest:
            notes.popleft()
        if len(notes) > NOTES:
            self._notes[queue] = deque([*list(notes)[:-1:2], notes[-1]])
        return now - notes[0][1]
