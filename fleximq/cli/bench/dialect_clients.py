"""The dialects that ``bench`` speaks."""

from fleximq.cli.bench.identity_voice import IdentityVoice
from fleximq.cli.bench.plan import Opened, Plan
from fleximq.client.blipmq import blocking as blipmq
from fleximq.client.blocking import Subscription
from fleximq.client.events import Delivery
from fleximq.client.minimq import blocking as minimq
from fleximq.errors import SettingError

#: How many messages a BlipMQ client fetches at once, and a MiniMQ consumer takes out of the queue at once.
_TOGETHER, _TAKEN = 1000, 100


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


class BlipVoice:
    """The BlipMQ dialect with QoS 1, each subscriber with a subscription of its own."""

    def __init__(self, plan: Plan, subscribes: bool) -> None:
        address = plan.address
        shown = dict(address.credentials or {"type": "api_key", "api_key": ""})
        if shown["type"] != "api_key":
            raise SettingError("with --dialect blipmq, show an API key")
        self._topic = plan.topic
        self._client = blipmq.connect(
            address.url, shown["api_key"], tls=address.tls, timeout=address.timeout, reconnect=None
        )
        self._subscription = self._client.subscribe(plan.topic, prefetch=_TOGETHER) if subscribes else None

    def publish(self, payloads: list[bytes]) -> None:
        """Send these messages as a run."""
        self._client.publishMany(self._topic, payloads)

    def flush(self) -> None:
        """Wait for the PONG."""
        self._client.flush()

    def receive(self, patience: float) -> list[bytes]:
        """Return what came, and acknowledge what came before."""
        assert self._subscription is not None
        return [delivery.payload for delivery in self._subscription.nextMany(_TOGETHER, patience)]

    def close(self) -> None:
        """End the connection, when all is acknowledged."""
        if self._subscription is not None:
            self._subscription.next(0)
        self._client.close()


class MiniVoice:
    """The MiniMQ dialect: all subscribers consume one queue."""

    def __init__(self, plan: Plan, subscribes: bool) -> None:
        address = plan.address
        if address.credentials is not None:
            raise SettingError("MiniMQ has no credentials: show a certificate inside TLS")
        self._topic = plan.topic
        self._client = minimq.connect(address.url, tls=address.tls, timeout=address.timeout, reconnect=None)
        self._consumer = self._client.consumer(plan.topic, prefetch=_TAKEN) if subscribes else None
        if self._consumer is not None:
            # A queue that nobody has asked for anything yet would drop what is too much.
            self._consumer.next(0)

    def publish(self, payloads: list[bytes]) -> None:
        """Send these messages, and wait until all are in the queue."""
        self._client.produceMany(self._topic, [payload.decode() for payload in payloads])

    def flush(self) -> None:
        """There is nothing to wait for."""

    def receive(self, patience: float) -> list[bytes]:
        """Return what came, and acknowledge what came before."""
        assert self._consumer is not None
        return [message.content.encode() for message in self._consumer.nextMany(_TAKEN, patience)]

    def close(self) -> None:
        """End the connection, when all is acknowledged."""
        if self._consumer is not None:
            for message in self._consumer.nextMany(_TAKEN, 0):
                self._consumer.leave(message)
        self._client.close()


#: By the name of the dialect, what makes a client.
VOICES: dict[str, Opened] = {
    "fleximq": FlexiVoice,
    "blipmq": BlipVoice,
    "minimq": MiniVoice,
    "identity": IdentityVoice,
}
