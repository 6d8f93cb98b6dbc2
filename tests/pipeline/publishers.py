"""Clients of the four dialects that publish until they are told to stop, whatever becomes of their broker.

Every message says who sent it and the how-manieth of that sender it is, and has a filling that follows from it, so that
what it must be can be said again at the end. None is sent twice: what was not confirmed when the broker died may have
been kept or not, and both is right.
"""

import hashlib
import random
import threading
from collections.abc import Callable, Iterator
from typing import Any

import msgpack

from tests.conversations.clients import BlipClient, Ended, FlexiClient, IdentityClient, MiniClient, Stream, counted
from tests.wire.flexi_variants import MAPS

Address = tuple[str, int]
#: Seconds between two bursts of a publisher, and between two attempts to connect.
PAUSE = 0.04


class Publisher(threading.Thread):
    """One client that publishes to ``topics``, in turn; subclasses speak a dialect.

    ``sent`` is the number of the last message that may have been sent, ``confirmed`` which of them the broker has said
    to be safe, ``faults`` are sentences.

    :param address: tells where the broker is now.
    :param most: the most messages of a burst.
    """

    sender = ""

    def __init__(self, address: Callable[[], Address], most: int, chance: random.Random) -> None:
        super().__init__(daemon=True)
        self.topics = [f"{self.sender}.{place}" for place in range(2)]
        self.sent = 0
        self.confirmed: list[range] = []
        self.faults: list[str] = []
        self.ending = threading.Event()
        self._address = address
        self._most = most
        self._chance = chance

    @property
    def total(self) -> int:
        """How many messages are confirmed."""
        return sum(map(len, self.confirmed))

    def topicOf(self, number: int) -> str:
        """Return the topic of a message."""
        return self.topics[number % len(self.topics)]

    def kept(self, number: int) -> bytes:
        """Return the bytes that the journal must have of a message."""
        return self._text(number).encode()

    def digest(self, number: int) -> bytes:
        """Return the hash of a message's topic and bytes."""
        return hashlib.sha256(self.topicOf(number).encode() + b"\0" + self.kept(number)).digest()

    def _text(self, number: int) -> str:
        filling = hashlib.sha256(f"{self.sender} {number}".encode()).hexdigest() * 4
        return f"{self.sender} {number} {filling[: number % 211]}"

    # Publishing

    def run(self) -> None:
        """Publish, and connect again when the broker is back."""
        while not self.ending.is_set():
            try:
                self._publish()
            except (Ended, OSError):
                self.ending.wait(PAUSE)
            except Exception as error:
                self.faults.append(f"{self.sender}: {error!r}")
                return

    def _publish(self) -> None:
        with self.connected(self._address()) as client:
            while not self.ending.is_set():
                first = self.sent + 1
                self.sent += self._chance.randint(1, self._most)
                burst = range(first, self.sent + 1)
                for number in self.confirming(client, burst):
                    self.confirmed.append(number)
                self.ending.wait(PAUSE)

    def connected(self, address: Address) -> Any:
        """Return a client that may publish."""
        raise NotImplementedError

    def confirming(self, client: Any, burst: range) -> Iterator[range]:
        """Send messages, and yield which of them are confirmed."""
        raise NotImplementedError

    def _barrier(self, client: Any, burst: range) -> Iterator[range]:
        before = client.barrier()
        if before:
            self.faults.append(f"{self.sender} was answered {before[0]}")
        else:
            yield burst


class FlexiPublisher(Publisher):
    """FlexiMQ: a PONG confirms what was sent before its PING."""

    sender = "flexi"

    def kept(self, number: int) -> bytes:
        """Return the text as MessagePack."""
        packed: bytes = msgpack.packb(self._text(number))
        return packed

    def connected(self, address: Address) -> Any:
        return FlexiClient(Stream(address)).join()

    def confirming(self, client: Any, burst: range) -> Iterator[range]:
        frames = (MAPS.frame("PUB", client.id, {"topic": self.topicOf(number)}, self.kept(number)) for number in burst)
        client.say(b"".join(frames))
        return self._barrier(client, burst)


class BlipPublisher(Publisher):
    """BlipMQ: a PONG does it as well, and a message is bytes that are no text."""

    sender = "blip"

    def kept(self, number: int) -> bytes:
        """Return bytes that are no UTF-8."""
        return b"\xff" + self._text(number).encode() + b"\0"

    def connected(self, address: Address) -> Any:
        return BlipClient(address).login()

    def confirming(self, client: Any, burst: range) -> Iterator[range]:
        for number in burst:
            client.frame(client.PUBLISH, number, b"\1" + counted(self.topicOf(number)) + self.kept(number))
        return self._barrier(client, burst)


class MiniPublisher(Publisher):
    """MiniMQ: the id that answers a PRODUCE confirms it."""

    sender = "mini"

    def connected(self, address: Address) -> Any:
        return MiniClient(address)

    def confirming(self, client: Any, burst: range) -> Iterator[range]:
        client.line(*(f"PRODUCE:{n}:::{self.topicOf(n)}:::{self._text(n)}::::::" for n in burst))
        for number in burst:
            answer = client.hear()
            if answer == str(number):
                yield range(number, number + 1)
            else:
                self.faults.append(f"{self.sender} {number} was answered {answer}")


class IdentityPublisher(Publisher):
    """Identity: who publishes gets its own messages, and nobody gets one that is not on disk."""

    sender = "identity"

    def connected(self, address: Address) -> Any:
        client = IdentityClient(address)
        for topic in self.topics:
            client.subscribe(topic)
        return client

    def confirming(self, client: Any, burst: range) -> Iterator[range]:
        for number in burst:
            client.say(f"PUBLISH:{self.topicOf(number)}:{self._text(number)}")
        for number in burst:
            answer, due = client.hear(), f"MSG:{self.topicOf(number)}:{client.name}:{self._text(number)}"
            if answer == due:
                yield range(number, number + 1)
            else:
                self.faults.append(f"{self.sender} {number} was answered {answer}")


PUBLISHERS = FlexiPublisher, BlipPublisher, MiniPublisher, IdentityPublisher
