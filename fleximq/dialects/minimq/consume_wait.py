"""A CONSUME that waits for a message (``--consume-wait``)."""

from collections.abc import Callable

from twisted.internet.interfaces import IDelayedCall, IReactorTime

from fleximq.broker.broker import Broker
from fleximq.broker.envelope import ConnectedClient, QueueDelivery


class WaitingConsume:
    """Waits until a topic's queue has a message for this client, or the time is over; then calls ``done`` once.

    It stands in the queue's line of consumers. A message is taken when it can be handed to ``done``, so giving up
    loses none.

    :param seconds: how long it waits at most.
    :param done: is given the message, or None if there was none in time.
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

    def lookAgain(self) -> None:
        """Take a message if there is one, else go on waiting at the end of the line.

        :raises NotPermitted: the client may not consume from the topic any more.
        """
        self._leaveLine()
        self._available()

    def giveUp(self) -> None:
        """Wait no longer, and say that there was nothing."""
        self._finish(None)

    def cancel(self) -> None:
        """Wait no longer, and say nothing."""
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
