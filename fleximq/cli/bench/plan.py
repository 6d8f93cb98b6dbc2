"""The parameters of a benchmark, passed to other processes."""

from typing import NamedTuple

from fleximq.cli.client_commands.broker_options import Address


class Plan(NamedTuple):
    """What to measure, and how."""

    address: Address
    dialect: str
    topic: str
    publishers: int
    subscribers: int
    messages: int  #: The number for each publisher.
    size: int  #: The bytes of a message.
    batch: int  #: The number of messages sent at once.
    rate: float | None  #: The limit of messages per second for each publisher.
    receiveTimeout: float  #: After so many seconds without a message, a subscriber counts missing ones as lost.

    @property
    def expected(self) -> int:
        """The number of messages for each subscriber, or for all together if :attr:`isShared`."""
        return self.publishers * self.messages

    @property
    def isShared(self) -> bool:
        """Whether each message goes to one of the subscribers."""
        return self.dialect == "minimq"
