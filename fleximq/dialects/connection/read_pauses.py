"""Whether a connection is read at present: it is, unless somebody has a reason against it."""

from collections.abc import Callable
from typing import Any


class ReadPauses:
    """Stops and resumes the reading of one transport.

    :param changed: told False when reading stops, and True when it goes on.
    """

    __slots__ = ("_changed", "_reasons", "_transport")

    def __init__(self, transport: Any, changed: Callable[[bool], None]) -> None:
        self._transport = transport
        self._changed = changed
        self._reasons: set[object] = set()

    @property
    def paused(self) -> bool:
        """Whether somebody has a reason against reading."""
        return bool(self._reasons)

    def pause(self, reason: object) -> None:
        """Read no more until :meth:`resume` was called for every reason given here."""
        if not self._reasons:
            self._changed(False)
            self._transport.pauseProducing()
        self._reasons.add(reason)

    def resume(self, reason: object) -> None:
        """Take one reason back; one that was not given changes nothing."""
        if reason in self._reasons:
            self._reasons.remove(reason)
            if not self._reasons:
                self._changed(True)
                self._transport.resumeProducing()
