"""When the first deliveries of messages ended without an acknowledgement, for the stories of dead letters."""

from collections.abc import Callable, Iterable

from fleximq.broker.envelope import QueueDelivery

#: So many times of messages that have left may remain, and as many as those that are needed.
_UNUSED = 64


class FirstAttempts:
    """Times by tag, in seconds of the clock. A message that is acknowledged at its first delivery costs nothing.

    :param isHere: tells whether the message with a tag is still in the queue: others are forgotten now and then.
    """

    __slots__ = ("_isHere", "_most", "_times")

    def __init__(self, isHere: Callable[[int], bool]) -> None:
        self._isHere = isHere
        self._most = _UNUSED
        self._times: dict[int, float] = {}

    def __len__(self) -> int:
        return len(self._times)

    def ended(self, deliveries: Iterable[QueueDelivery], now: float) -> None:
        """Record that these deliveries have ended: those that were the first of their message."""
        self._times.update([(tag, now) for tag, _, attempts in deliveries if attempts <= 1])
        if len(self._times) > self._most:
            self._times = {tag: time for tag, time in self._times.items() if self._isHere(tag)}
            self._most = 2 * len(self._times) + _UNUSED

    def take(self, tag: int) -> float | None:
        """Forget and return when the first delivery of a message ended; None if that is not known."""
        return self._times.pop(tag, None)

    def clear(self) -> None:
        """Forget all."""
        self._times.clear()
