"""What becomes of the messages of kept queues, told to the journal: once a turn, whatever happened in it."""

from collections.abc import Callable

from fleximq.broker.deadlines import Deadlines
from fleximq.broker.queues.durable_queue import KeptQueue
from fleximq.interfaces import IJournal
from fleximq.values.message import Message

Bury = Callable[[str, Message, Callable[[str | None], None]], None]


class Noting:
    """Gathers the queues of which something is to be noted; provides
    :class:`fleximq.broker.queues.durable_queue.Keeping`.

    :param bury: brings a message to the dead letters and tells whether it is kept there, or why not.
    """

    def __init__(self, journal: IJournal, deadlines: Deadlines, bury: Bury) -> None:
        self.journal = journal
        self.bury = bury
        self._deadlines = deadlines
        self._changed: dict[KeptQueue, None] = {}

    def wall(self) -> int:
        """Return the microseconds since 1970."""
        return round(self._deadlines.seconds() * 1_000_000)

    def soon(self, call: Callable[[], None]) -> None:
        """Call in the next turn."""
        self._deadlines.call(0, call)

    def changed(self, queue: KeptQueue) -> None:
        """Ask this queue for its notes when the turn is over, or before somebody asks what is safe."""
        if not self._changed:
            self._deadlines.call(0, self.flush)
        self._changed[queue] = None

    def flush(self) -> None:
        """Tell the journal now."""
        if self._changed:
            changed, self._changed = self._changed, {}
            for queue in changed:
                for note in queue.notes():
                    self.journal.note(note)
