"""Pauses reading from a connection for as long as at least one reason exists."""

from collections.abc import Callable
from enum import Enum
from typing import Any


class ReadPause(Enum):
    """A reason to pause reading."""

    CHECKED = "its credentials are being checked"
    UNREAD = "its answers wait to be read"
    UNANSWERED = "a command waits for its answer"
    OVERLOADED = "too much waits for the disk, or for a transaction"
    UNSENT = "its own answers that wait for the disk are too many"


_NONE: frozenset[object] = frozenset()


def _ignore(isRead: bool) -> None:
    pass


class ReadPauses:
    """Pauses and resumes one transport; ``changed`` is called with whether it is read, at each change."""

    __slots__ = ("_changed", "_reasons", "_transport")

    def __init__(self, transport: Any, changed: Callable[[bool], None]) -> None:
        self._transport = transport
        self._changed = changed
        self._reasons: frozenset[object] = _NONE

    @property
    def paused(self) -> bool:
        """Whether reading is paused."""
        return bool(self._reasons)

    def end(self) -> None:
        """Report no more changes, as the connection is closed; this ends a reference cycle."""
        self._changed = _ignore

    def pause(self, reason: object) -> None:
        """Pause reading until :meth:`resume` was called for every reason given here."""
        if not self._reasons:
            self._changed(False)
            self._transport.pauseProducing()
        self._reasons |= {reason}

    def resume(self, reason: object) -> None:
        """Remove one reason; unknown reasons are ignored."""
        if reason in self._reasons:
            self._reasons -= {reason}
            if not self._reasons:
                self._changed(True)
                self._transport.resumeProducing()
