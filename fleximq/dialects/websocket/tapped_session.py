"""A session of a WebSocket that passes its input to a tap first, while an operator traces the connection."""

from collections.abc import Callable
from typing import Any


class _TappedReads:
    """The read loop of a FlexiMQ session, whose input a tap gets first."""

    def __init__(self, reads: Any, tap: Callable[[bytes], None]) -> None:
        self._reads, self._tap = reads, tap

    def received(self, data: bytes) -> None:
        """Process a read."""
        self._tap(data)
        self._reads.received(data)


class TappedSession:
    """Behaves as the session; ``tap`` gets the input first. Its attributes are those of the session."""

    __slots__ = ("_session", "_tap")

    def __init__(self, session: Any, tap: Callable[[bytes], None]) -> None:
        object.__setattr__(self, "_session", session)
        object.__setattr__(self, "_tap", tap)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self._session, name, value)

    @property
    def reads(self) -> _TappedReads:
        """The read loop, tapped."""
        return _TappedReads(self._session.reads, self._tap)

    def receivedAll(self, messages: list[bytes]) -> None:
        """Process messages."""
        for message in messages:
            self._tap(message)
        self._session.receivedAll(messages)
