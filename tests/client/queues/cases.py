"""Clients of BlipMQ and MiniMQ with the same words: each dialect says how it sends, reads and confirms.

A test of :class:`QueueCase` that uses these methods only holds for both.
"""

import threading
from typing import Any

from tests.client.cases import SOON, NetworkCase, Place

#: Seconds after which the broker redelivers messages without an acknowledgement; and when it has surely done so.
REDELIVERY, LATER = 1, 1.2
#: One broker for all.
PLACE = Place(lambda: ("--redelivery", str(REDELIVERY)))


class QueueCase(NetworkCase):
    """Clients of one of the two dialects, on the topic of the test."""

    place = PLACE
    #: Calls that take a topic, what to append to it, and further arguments.
    doubtful: tuple[tuple[str, str, tuple[Any, ...]], ...]

    def send(self, client: Any, *texts: str) -> Any:
        """Send messages."""
        raise NotImplementedError

    def reader(self, client: Any, **options: Any) -> Any:
        """Return a reader of messages sent from now on."""
        raise NotImplementedError

    def again(self, client: Any, reader: Any) -> Any:
        """Return a reader of another client that goes on with the messages of one."""
        raise NotImplementedError

    def text(self, message: Any) -> str:
        """Return the text of a message."""
        raise NotImplementedError

    def confirm(self, client: Any) -> None:
        """Wait until everything sent is processed, ACKs as well."""
        raise NotImplementedError

    def texts(self, reader: Any, count: int) -> list[str | None]:
        """Return the texts of the next messages."""
        got = [reader.next(SOON) for _ in range(count)]
        return [each and self.text(each) for each in got]

    def rest(self, reader: Any, wait: float = 0.1) -> set[int]:
        """Return the numbers that are left, until none arrives in this time."""
        got = set()
        while (message := reader.next(wait)) is not None:
            got.add(int(self.text(message)))
        return got


class BlipCase(QueueCase):
    """Clients of BlipMQ."""

    dialect = "blipmq"
    doubtful = (
        ("subscribe", ".>", ()),
        ("subscribe", ".*", ()),
        ("publish", "..b", (b"x",)),
        ("publish_many", ".+.b", ([b"x"],)),
    )

    def send(self, client: Any, *texts: str) -> Any:
        return client.publish_many(self.topic, texts)

    def reader(self, client: Any, **options: Any) -> Any:
        return client.subscribe(self.topic, **options)

    def again(self, client: Any, reader: Any) -> Any:
        return client.resume(reader.id)

    def text(self, message: Any) -> str:
        return str(message.text)

    def confirm(self, client: Any) -> None:
        client.flush(SOON)


class MiniCase(QueueCase):
    """Clients of MiniMQ."""

    dialect = "minimq"
    doubtful = (
        ("produce", "..b", ("x",)),
        ("produce_many", ".*", (["x"],)),
        ("consume", ".>", ()),
        ("consumer", ".#", ()),
        ("serve", ".+", (lambda message: None,)),
    )

    def send(self, client: Any, *texts: str) -> Any:
        return client.produce_many(self.topic, texts)

    def reader(self, client: Any, **options: Any) -> Any:
        return client.consumer(self.topic, **options)

    def again(self, client: Any, reader: Any) -> Any:
        return client.consumer(self.topic)

    def text(self, message: Any) -> str:
        return str(message.content)

    def confirm(self, client: Any) -> None:
        client.ping(SOON)


def inThreads(*calls: Any) -> None:
    """Call functions at the same time, each in a thread of its own, and wait for their ends."""
    threads = [threading.Thread(target=each) for each in calls]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
