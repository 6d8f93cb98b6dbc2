"""Notes for the headers of dead letters: when the first delivery ended, and which consumer had the last one."""

from collections.abc import Callable, Iterable
from typing import TypeVar

from fleximq.broker.envelope import QueueDelivery

#: Notes of messages that have left the queue are removed when there are more than this number plus twice those that
#: were needed at the last removal.
_UNUSED = 64
T = TypeVar("T")


class AttemptNotes:
    """Times in seconds of the clock and names of consumers, by tag. A message that is acknowledged at its first
    delivery needs no note, unless this delivery is its last one.

    :param isHere: tells whether the message with a tag is still in the queue.
    """

    __slots__ = ("_consumers", "_isHere", "_most", "_times")

    def __init__(self, isHere: Callable[[int], bool]) -> None:
        self._isHere = isHere
        self._most = _UNUSED
        self._times: dict[int, float] = {}
        self._consumers: dict[int, str] = {}

    def __len__(self) -> int:
        return len(self._times) + len(self._consumers)

    def ended(self, deliveries: Iterable[QueueDelivery], now: float) -> None:
        """Note that these deliveries have ended: those that were the first of their message."""
        self._times.update([(tag, now) for tag, _, attempts in deliveries if attempts <= 1])
        self._forget()

    def last(self, tags: Iterable[int], consumer: str) -> None:
        """Note that messages with these tags are delivered for the last time, to this consumer."""
        self._consumers.update(dict.fromkeys(tags, consumer))
        self._forget()

    def _forget(self) -> None:
        if len(self) > self._most:
            self._times = self._present(self._times)
            self._consumers = self._present(self._consumers)
            self._most = 2 * len(self) + _UNUSED

    def _present(self, notes: dict[int, T]) -> dict[int, T]:
        return {tag: note for tag, note in notes.items() if self._isHere(tag)}

    def take(self, tag: int) -> tuple[float | None, str]:
        """Forget and return when the first delivery of a message ended, None if that is not known, and the name of the
        consumer that had the last one, "" if that is not known.
        """
        return self._times.pop(tag, None), self._consumers.pop(tag, "")

    def clear(self) -> None:
        """Forget all."""
        self._times.clear()
        self._consumers.clear()
