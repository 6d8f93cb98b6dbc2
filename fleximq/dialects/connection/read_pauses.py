"""Pauses reading from a connection for as long as at least one reason exists."""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any


class ReadPause(Enum):
    """A reason to pause reading."""

    CHECKED = "its credentials are being checked"
    UNREAD = "its answers wait to be read"
    UNANSWERED = "a command waits for its answer"
    OVERLOADED = "too much waits for the disk, or for a transaction"
    OWNER = "the owner of the journal does not read its messages"
    UNSENT = "its own answers that wait for the disk are too many"


@dataclass(slots=True, eq=False)
class ReadPauses:
    """Pauses and resumes one transport; ``changed`` is called with whether it is read, at each change."""

    transport: Any
    changed: Callable[[bool], None]
    _reasons: frozenset[object] = field(default=frozenset(), init=False)

    def end(self) -> None:
        """Report no more changes, as the connection is closed; this ends a reference cycle."""
        self.changed = lambda isRead: None

    def words(self) -> str:
        """Return the reasons, "" without any; one that is no :class:`ReadPause` has ``pauseWords``."""
        reasons: set[Any] = {*self._reasons}
        return ", ".join(sorted({each.value if isinstance(each, ReadPause) else each.pauseWords for each in reasons}))

    def pause(self, reason: object) -> None:
        """Pause reading until :meth:`resume` was called for every reason given here."""
        if not self._reasons:
            self.changed(False)
            self.transport.pauseProducing()
        self._reasons |= {reason}

    def resume(self, reason: object) -> None:
        """Remove one reason; unknown reasons are ignored."""
        if reason in self._reasons:
            self._reasons -= {reason}
            if not self._reasons:
                self.changed(True)
                self.transport.resumeProducing()
