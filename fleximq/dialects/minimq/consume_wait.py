"""A CONSUME that waits for a message (``--consume-wait``)."""

from collections.abc import Callable
from dataclasses import dataclass

from twisted.internet.interfaces import IReactorTime

from fleximq.broker.broker import Broker
from fleximq.broker.envelope import ConnectedClient, QueueDelivery


@dataclass(eq=False)
class WaitingConsume:
    """Waits up to ``seconds`` for a message for this client, then calls ``done`` once: with it, or with None.

    It is one of the queue's waiting consumers. A message is taken only when ``done`` is called with it, so giving up
    loses none.
    """

    broker: Broker
    clock: IReactorTime
    client: ConnectedClient
    topic: str
    seconds: float
    done: Callable[[QueueDelivery | None], None]

    def __post_init__(self) -> None:
        """Start to wait."""
        self._timer = self.clock.callLater(self.seconds, self.giveUp)
        self._leaveLine = self.broker.whenAvailable(self.client, self.topic, self._available)

    def retry(self) -> None:
        """Take a message if available, else wait again after the other consumers.

        :raises NotPermitted: the client may not consume from the topic any more.
        """
        self._leaveLine()
        self._available()

    def giveUp(self) -> None:
        """Stop waiting and call ``done`` with None."""
        self._finish(None)

    def cancel(self) -> None:
        """Stop waiting without calling ``done``."""
        self._leaveLine()
        if self._timer.active():
            self._timer.cancel()

    def _available(self) -> None:
        delivery = self.broker.consume(self.client, self.topic)
        if delivery is None:
            self._leaveLine = self.broker.whenAvailable(self.client, self.topic, self._available)
        else:
            self._finish(delivery)

    def _finish(self, delivery: QueueDelivery | None) -> None:
        self.cancel()
        self.done(delivery)
