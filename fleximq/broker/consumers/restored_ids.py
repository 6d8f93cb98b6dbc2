"""Reads the ids of messages that were delivered before a restart, by which consumers acknowledge them afterwards.

An acknowledgement that arrives before the id is read is postponed.
"""

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from fleximq.broker.envelope import QueueDelivery
from fleximq.interfaces import IJournalRead
from fleximq.values.message import Message
from fleximq.values.message_cost import ANY

#: Ids read from the journal at once.
_READ = 4096
_READ_BYTES = 4 << 20

#: Receives the tag of a delivery, and its message.
Know = Callable[[int, Message], object]


class RestoredIds:
    """The deliveries without ids until these are read, and the acknowledgements that may mean one of them.

    :param acknowledge: called with a postponed id when all are read, and with the function that decides whether the
        acknowledgement may remove messages of a topic, or None.
    """

    def __init__(self, acknowledge: Callable[[str, Callable[[str], bool] | None], object]) -> None:
        self._acknowledge = acknowledge
        self._unread: deque[tuple[Know, QueueDelivery]] = deque()
        self._postponed: list[tuple[str, Callable[[str], bool] | None]] = []
        self._afterwards: list[Callable[[], None]] = []
        self._reading = False

    def expect(self, know: Know, deliveries: Sequence[QueueDelivery]) -> None:
        """Add deliveries of a restored queue; call :meth:`read` after those of all queues.

        :param know: called with the tag and the message of each.
        """
        self._unread.extend([(know, delivery) for delivery in deliveries])
        self._reading = bool(self._unread)

    def postpone(self, messageId: str, may: Callable[[str], bool] | None) -> None:
        """Remember the acknowledgement of an unknown id; a no-op if all ids are read."""
        if self._reading:
            self._postponed.append((messageId, may))

    def whenRead(self, call: Callable[[], None]) -> bool:
        """Call after postponed acknowledgements were handled; False if none were postponed."""
        if self._postponed:
            self._afterwards.append(call)
            return True
        return False

    def read(self, journal: IJournalRead) -> None:
        """Read all of them, then handle the postponed acknowledgements."""
        portion = [self._unread.popleft() for _ in range(min(_READ, len(self._unread)))]
        if portion:
            offsets = sorted(delivery.message.offset for _, delivery in portion)
            journal.fetch(offsets, _READ_BYTES, partial(self._areRead, journal, portion))
            return
        self._reading = False
        postponed, self._postponed = self._postponed, []
        for messageId, may in postponed:
            self._acknowledge(messageId, may)
        calls, self._afterwards = self._afterwards, []
        for call in calls:
            call()

    def _areRead(
        self, journal: IJournalRead, portion: Sequence[tuple[Know, QueueDelivery]], messages: Sequence[Message]
    ) -> None:
        found = {message.offset: message for message in messages}
        until = messages[-1].offset if messages else ANY
        for know, delivery in portion:
            message = found.get(delivery.message.offset)
            if message is not None:
                know(delivery.tag, message)
            elif delivery.message.offset > until:
                self._unread.append((know, delivery))
        self.read(journal)
