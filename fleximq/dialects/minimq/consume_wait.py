"""A CONSUME that waits for a message (``--consume-wait``)."""

from collections.abc import Callable

from twisted.internet.interfaces import IDelayedCall, IReactorTime

from fleximq.broker.broker import Broker
from fleximq.broker.envelope import ConnectedClient, QueueDelivery


class WaitingConsume:
    """Waits up to ``seconds`` for a message for this client, then calls ``done`` once: with it, or with None.

    It is one of the queue's waiting consumers. A message is taken only when ``done`` is called with it, so giving up
    loses none.
    """

    def __init__(
        self,
        broker: Broker,
        clock: IReactorTime,
        client: ConnectedClient,
        topic: str,
        seconds: float,
        done: Callable[[QueueDelivery | None], None],
    ) -> None:
        self._broker = broker
        self._client = client
        self._topic = topic
        self._done = done
        self._timer: IDelayedCall = clock.callLater(seconds, self._finish, None)
        self._leaveLine = broker.whenAvailable(client, topic, self._available)

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
        delivery = self._broker.consume(self._client, self._topic)
        if delivery is None:
            self._leaveLine = self._broker.whenAvailable(self._client, self._topic, self._available)
        else:
            self._finish(delivery)

    def _finish(self, delivery: QueueDelivery | None) -> None:
        self.cancel()
        self._done(delivery)
