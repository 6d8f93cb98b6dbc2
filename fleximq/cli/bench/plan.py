"""What a benchmark is to do, as a value that travels to other processes."""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from fleximq.cli.client_commands.broker_options import Address

#: The dialects in which subscribers share what is published: each message goes to one of them.
_SHARING = frozenset({"minimq"})


class Plan(NamedTuple):
    """``messages`` are those of each publisher, ``size`` the bytes of each, ``batch`` how many go out at once.

    ``rate`` is how many a second each publisher sends at most, None for as many as it can. ``patience`` is how many
    seconds a subscriber waits for the next message before what is missing counts as lost.
    """

    address: Address
    dialect: str
    topic: str
    publishers: int
    subscribers: int
    messages: int
    size: int
    batch: int
    rate: float | None
    receiveTimeout: float

    @property
    def expected(self) -> int:
        """How many messages reach each subscriber, or all of them together where :attr:`isShared`."""
        return self.publishers * self.messages

    @property
    def isShared(self) -> bool:
        """Whether each message goes to one of the subscribers."""
        return self.dialect in _SHARING


class BenchClient(Protocol):
    """One client of a dialect, as publisher or subscriber."""

    def publish(self, payloads: list[bytes]) -> None:
        """Send these messages."""

    def flush(self) -> None:
        """Return when all that was sent has been taken."""

    def receive(self, timeout: float) -> list[bytes]:
        """Return what came, at least one message; none if nothing came for so many seconds."""

    def close(self) -> None:
        """End the connection."""


#: Makes a client: a publisher, or if told so a subscriber, of which there are so many.
BenchClientFactory = Callable[[Plan, bool], BenchClient]
