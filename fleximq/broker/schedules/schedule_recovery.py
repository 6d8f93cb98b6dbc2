"""The durable schedules in a checkpoint, and after a restart."""

from array import array
from collections.abc import Callable
from typing import Any

from fleximq.broker.schedules.messages_in_journal import MessagesInJournal
from fleximq.broker.schedules.repeats import Repeats
from fleximq.broker.schedules.schedule_header import firedOf
from fleximq.values.records import SCHEDULED, StoredBatch
from fleximq.values.state_records import RepeatDefined, SchedulesEnded, StateRecord


class ScheduleRecovery:
    """Saves and restores the schedules of a broker.

    :param begin: called when all schedules are restored and the journal stores publications.
    """

    def __init__(self, messages: MessagesInJournal, repeats: Repeats, begin: Callable[[], None]) -> None:
        self._messages = messages
        self._repeats = repeats
        self.begin = begin

    def needed(self) -> "array[int]":
        """Return the offsets of the waiting records."""
        return self._messages.needed()

    def snapshot(self) -> dict[str, Any]:
        """Return all schedules as MessagePack values."""
        return {"messages": self._messages.snapshot(), "repeats": self._repeats.snapshot()}

    def restore(self, snapshot: Any) -> None:
        """Continue with a :meth:`snapshot`; None: that of a broker without schedules."""
        if snapshot is not None:
            self._messages.restore(snapshot["messages"])
            self._repeats.restore(snapshot["repeats"])

    def stored(self, batch: StoredBatch) -> None:
        """Learn records after the snapshot, in the order of the journal."""
        self._messages.stored(batch)
        if not any(code & SCHEDULED for code in set(batch.contents)):
            return
        for code, header in zip(batch.contents, batch.headers, strict=True):
            if code & SCHEDULED:
                name, due = firedOf(header)
                if isinstance(name, str):
                    self._repeats.fired(name, due)
                else:
                    self._messages.forget(due, name)

    def noted(self, note: StateRecord) -> bool:
        """Apply a state record after the snapshot, and return whether it is one of schedules."""
        if isinstance(note, SchedulesEnded):
            for number, due in zip(note.offsets, note.dues, strict=True):
                self._messages.forget(due, number)
        elif isinstance(note, RepeatDefined):
            self._repeats.noted(note)
        else:
            return False
        return True
