"""A connection as a client sees it, whichever the event loop."""

from abc import ABC, abstractmethod
from typing import Protocol

from fleximq.client.errors import ConnectionLost


class Line(ABC):
    """A connection, as a stream of bytes."""

    @abstractmethod
    def write(self, data: bytes) -> None:
        """Send bytes, sooner or later."""

    @abstractmethod
    def pauseReading(self) -> None:
        """Read no more for the time being."""

    @abstractmethod
    def resumeReading(self) -> None:
        """Read again."""

    @abstractmethod
    def close(self) -> None:
        """Send what waits, and end."""

    @abstractmethod
    def abort(self) -> None:
        """End at once."""


class Listener(Protocol):
    """Who is told what happens on a line."""

    def lineMade(self, line: Line) -> None:
        """The line is there."""

    def lineHeard(self, line: Line, data: bytes) -> None:
        """Something was read."""

    def lineLost(self, line: Line, lost: ConnectionLost) -> None:
        """The line has ended."""

    def lineFull(self, line: Line) -> None:
        """So much waits to be sent that nothing more should be written."""

    def lineDrained(self, line: Line) -> None:
        """More can be written."""
