"""What the journal asks of whoever knows the queues."""

from collections.abc import Mapping
from typing import Any, Protocol


class Keeper(Protocol):
    """The broker's side of checkpoints and retention."""

    def snapshot(self) -> Any:
        """Return all that has to outlive a restart, as MessagePack can hold it; nothing in it changes later.

        It knows of all that the journal told somebody of so far.
        """

    def needed(self) -> Mapping[str, int]:
        """Return, by topic, the lowest offset that a queue still needs."""

    def reading(self) -> Mapping[str, int]:
        """Return the offset that each consumer group reads next; nothing is kept for them."""


class NothingToKeep:
    """The keeper of a journal without queues."""

    def snapshot(self) -> Any:
        """Return None."""
        return None

    def needed(self) -> Mapping[str, int]:
        """Return nothing."""
        return {}

    def reading(self) -> Mapping[str, int]:
        """Return nothing."""
        return {}
