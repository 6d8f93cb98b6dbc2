"""The dialects that ``bench`` speaks."""

from fleximq.cli.benching.plan import Opened, Plan
from fleximq.client.blocking import Subscription
from fleximq.client.events import Delivery


class FlexiVoice:
    """The FlexiMQ dialect, with the client library: messages are MessagePack bin."""

    def __init__(self, plan: Plan, subscribes: bool) -> None:
        self._topic = plan.topic
        self._client = plan.address.connect(reconnect=None)
        self._subscription: Subscription | None = self._client.subscribe(plan.topic) if subscribes else None

    def publish(self, payloads: list[bytes]) -> None:
        """Send these messages as a run."""
        self._client.publishMany(self._topic, payloads)

    def flush(self) -> None:
        """Wait for the PONG."""
        self._client.flush()

    def receive(self, patience: float) -> list[bytes]:
        """Return what came."""
        assert self._subscription is not None
        first = self._subscription.next(patience)
        found: list[Delivery] = [] if first is None else [first]
        while self._subscription.waiting and len(found) < 1000:
            delivery = self._subscription.next(0)
            if delivery is not None:
                found.append(delivery)
        return [delivery.value for delivery in found]

    def close(self) -> None:
        """End the connection."""
        self._client.close()


#: By the name of the dialect, what makes a client.
VOICES: dict[str, Opened] = {"fleximq": FlexiVoice}
