"""Clients that publish and consume what is durable until their broker dies, and remember what it confirmed.

Every message says who sent it and the how-manieth of that sender it is: ``blip-0:17``. A sender never sends one twice:
what was not confirmed when the broker died may have been kept or not, and both is right.
"""

import random
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgpack

from tests.conversations.clients import BlipClient, Delivery, Ended, FlexiClient, MiniClient, Stream

#: The topic that BlipMQ clients use, and MiniMQ's queue.
BLIP_TOPIC, MINI_TOPIC = "parcels", "jobs"
#: Before the topics that FlexiMQ clients use.
FLEXI_TOPICS = "d."
#: Most messages between two confirmations.
BURST = 40


class Sent(NamedTuple):
    """One message: its sender and its number."""

    sender: str
    number: int

    @classmethod
    def of(cls, text: str) -> "Sent":
        """Read what a message says."""
        sender, _, number = text.partition(":")
        return cls(sender, int(number))

    def __str__(self) -> str:
        return f"{self.sender}:{self.number}"


class Ledger:
    """What all clients know, over all runs of the broker; ``round`` counts those.

    ``sent`` holds each sender's last number, ``confirmed`` the round in which the broker confirmed a message, ``seen``
    the rounds in which it was delivered from a queue, in order. ``finished`` are those whose acknowledgement was
    confirmed. ``tags`` is which message came under which of BlipMQ's tags. ``faults`` are sentences.
    """

    def __init__(self) -> None:
        self.round = 0
        self.sent: dict[str, int] = {}
        self.confirmed: dict[Sent, int] = {}
        self.seen: dict[Sent, list[int]] = {}
        self.finished: set[Sent] = set()
        self.tags: dict[int, Sent] = {}
        self.faults: list[str] = []
        self._lock = threading.Lock()

    def next(self, sender: str, most: int = BURST) -> list[Sent]:
        """Return some new messages of a sender."""
        first = self.sent.get(sender, 0) + 1
        self.sent[sender] = first + random.randint(0, most - 1)
        return [Sent(sender, number) for number in range(first, self.sent[sender] + 1)]

    def confirm(self, messages: list[Sent]) -> None:
        """Remember that these are safe, as the broker says."""
        with self._lock:
            self.confirmed.update(dict.fromkeys(messages, self.round))

    def deliver(self, message: Sent) -> None:
        """Remember that a queue gave this one out."""
        with self._lock:
            if message in self.finished:
                self.faults.append(f"{message} came again, although its acknowledgement was confirmed")
            if message.number > self.sent.get(message.sender, 0):
                self.faults.append(f"{message} was never sent")
            self.seen.setdefault(message, []).append(self.round)

    def fault(self, sentence: str) -> None:
        """Remember that something is wrong."""
        with self._lock:
            self.faults.append(sentence)


class Load:
    """All clients at work on one run of the broker, until it is killed.

    :param subscription: the id of the BlipMQ subscription.
    """

    def __init__(self, address: tuple[str, int], ledger: Ledger, subscription: int) -> None:
        self._address = address
        self._ledger = ledger
        self._subscription = subscription
        works: list[tuple[Callable[[str], None], str]] = [
            (self._publishFlexi, "flexi-0"),
            (self._publishFlexi, "flexi-1"),
            (self._publishBlip, "blip-0"),
            (self._publishBlip, "blip-1"),
            (self._consumeBlip, ""),
            (self._produce, "mini-0"),
            (self._consumeMini, ""),
        ]
        self._threads = [threading.Thread(target=self._work, args=work, daemon=True) for work in works]

    def start(self) -> "Load":
        """Let all begin."""
        for thread in self._threads:
            thread.start()
        return self

    def join(self) -> None:
        """Wait until all have noticed that the broker is gone."""
        for thread in self._threads:
            thread.join(300)
            if thread.is_alive():
                self._ledger.fault("a client did not notice that the broker is gone")

    def _work(self, work: Callable[[str], None], sender: str) -> None:
        try:
            work(sender)
        except (Ended, OSError):
            pass  # the broker was killed
        except Exception as error:
            self._ledger.fault(f"{sender or work.__name__}: {error!r}")

    def _patient(self, client: Any) -> Any:
        """Return a connected client with the longest time that it may wait."""
        return client

    def _bursts(self) -> Iterator[None]:
        """Yield before each burst of a client."""
        while True:
            yield

    def _publishFlexi(self, sender: str) -> None:
        with FlexiClient(self._patient(Stream(self._address))) as client:
            client.join()
            for _ in self._bursts():
                messages = self._ledger.next(sender)
                for message in messages:
                    client.publish(FLEXI_TOPICS + sender, str(message))
                self._barrier(client, sender, messages)

    def _publishBlip(self, sender: str) -> None:
        with self._patient(BlipClient(self._address)) as client:
            client.login()
            for _ in self._bursts():
                messages = self._ledger.next(sender)
                for message in messages:
                    client.publish(BLIP_TOPIC, str(message).encode())
                self._barrier(client, sender, messages)

    def _barrier(self, client: Any, sender: str, messages: list[Sent]) -> None:
        errors = client.barrier()
        if errors:
            self._ledger.fault(f"{sender} was answered {errors[0]}")
        else:
            self._ledger.confirm(messages)

    def _produce(self, sender: str) -> None:
        with MiniClient(self._address) as client:
            while True:
                messages = self._ledger.next(sender, 10)
                client.line(*(f"PRODUCE:{message.number}:::{MINI_TOPIC}:::{message}::::::" for message in messages))
                for message in messages:
                    answer = client.hear()
                    if answer != str(message.number):
                        self._ledger.fault(f"{message} was answered {answer}")
                    self._ledger.confirm([message])

    def _consumeBlip(self, sender: str) -> None:
        with BlipClient(self._address) as client:
            client.login()
            while True:
                consumeBlip(client, self._subscription, self._ledger)

    def _consumeMini(self, sender: str) -> None:
        with MiniClient(self._address) as client:
            while True:
                consumeMini(client, self._ledger)


def consumeBlip(client: BlipClient, subscription: int, ledger: Ledger, most: int = BURST) -> bool:
    """Take some messages from the subscription and acknowledge them; False if there were none."""
    for correlation in range(random.randint(1, most)):
        client.frame(BlipClient.POLL, correlation, subscription.to_bytes(8, "big"))
    deliveries = client.barrier()
    for delivery in deliveries:
        if not isinstance(delivery, Delivery):
            raise AssertionError(f"a POLL was answered {delivery}")
        message = Sent.of(delivery.message.decode())
        ledger.deliver(message)
        if ledger.tags.setdefault(delivery.tag, message) != message:
            ledger.fault(f"tag {delivery.tag} was {ledger.tags[delivery.tag]} and is {message}")
        client.ack(delivery.tag, subscription)
    if errors := client.barrier():
        ledger.fault(f"an acknowledgement was answered {errors[0]}")
    ledger.finished.update(Sent.of(delivery.message.decode()) for delivery in deliveries)
    return bool(deliveries)


def consumeMini(client: MiniClient, ledger: Ledger) -> bool:
    """Take a message from the queue and acknowledge it; False if there was none."""
    answer = client.consume(MINI_TOPIC)
    if answer == "NO_MSG":
        return False
    message = Sent.of(answer.split(":::")[2])
    ledger.deliver(message)
    if client.ack(answer.split(":::")[0]).barrier():
        ledger.fault(f"the acknowledgement of {message} was answered")
    ledger.finished.add(message)
    return True


def textOf(payload: bytes) -> str:
    """Return the text that a FlexiMQ message carries."""
    text: str = msgpack.unpackb(payload)
    return text
