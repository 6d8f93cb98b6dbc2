"""The objects that all parts of an opened journal share: folder, clock, the reactor's thread, and reports."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fleximq.journal.files.file_system import Files
from fleximq.values.counted_event import CountedEvent, EventFamily


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class JournalContext:
    """The folder of a journal, and the functions that its parts call.

    :param callFromThread: runs a function on the reactor's thread; may be called from any thread.
    :param now: microseconds since 1970.
    :param onEvent: called with countable events and their number.
    :param log: called with sentences for the operator.
    :param onError: called with exceptions of commit callbacks.
    """

    files: Files
    folder: str
    callFromThread: Callable[..., Any]
    now: Callable[[], int]
    onEvent: Callable[[str, int], None]
    log: Callable[[str], None]
    onError: Callable[[Exception], None]

    def count(self, name: str, number: int = 1) -> None:
        """Count an event of the journal, unless the number is 0."""
        if number:
            self.onEvent(CountedEvent(EventFamily.JOURNAL, name), number)
