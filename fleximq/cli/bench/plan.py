"""The parameters of a benchmark, passed to other processes."""

from typing import NamedTuple

from fleximq.cli.client_commands.broker_options import Address


class Plan(NamedTuple):
    """``messages`` is the number for each publisher, ``size`` their bytes, ``batch`` the number sent at once.

    ``rate`` limits the messages per second of each publisher; None: no limit. After ``receiveTimeout`` seconds without
    a message, a subscriber counts missing ones as lost.
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
        """The number of messages for each subscriber, or for all together if :attr:`isShared`."""
        return self.publishers * self.messages

    @property
    def isShared(self) -> bool:
        """Whether each message goes to one of the subscribers."""
        return self.dialect == "minimq"
