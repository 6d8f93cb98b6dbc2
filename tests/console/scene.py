"""A broker with everything that the console shows: queues, dead letters, schedules, topics, and clients at work."""

import threading
from typing import Any
from urllib.parse import quote

from fleximq.client.blocking import Client, connect
from tests.broker_process import BrokerProcess

#: A name that would run if it became markup.
HOSTILE = "<img src=x onerror=alert(1)>"
#: A payload that would run if it became markup.
SCRIPT = "</pre><script>alert(2)</script>"
#: Jobs of ``mails``, those that are rejected, and those that are in flight.
MAILS, DEAD, FLYING = 60, 6, 5
SCHEDULED = 8


class Scene:
    """Clients of a broker that fill it, and publish until the end. Leave it as a context manager."""

    def __init__(self, port: int, credentials: str = "") -> None:
        self.port = port
        self._url = f"tcp://127.0.0.1:{port}"
        self._options: dict[str, Any] = {"password": credentials} if credentials else {}
        self._ended = threading.Event()
        self._clients: list[Client] = []
        self.thread = threading.Thread(target=self._publish, daemon=True)

    def __enter__(self) -> "Scene":
        self._fill(self.client("shop"))
        worker = self.client("mailer")
        with worker.consume("mails", prefetch=DEAD) as jobs:
            for number, job in enumerate(jobs, 1):
                job.reject(f"mailbox of {job.value['to']} is full <b>now</b>")
                if number == DEAD:
                    break
        self.jobs = worker.consume("mails", prefetch=FLYING)
        assert self.jobs.next(timeout=30) is not None
        self.reader = self.client(HOSTILE)
        self.reader.subscribe("orders.#")
        self.thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._ended.set()
        self.thread.join()
        for each in self._clients:
            each.close()

    def client(self, name: str) -> Client:
        """Connect one more client, which is closed at the end."""
        client = connect(self._url, name=name, **self._options)
        self._clients.append(client)
        return client

    def _fill(self, shop: Client) -> None:
        for number in range(MAILS):
            shop.enqueue("mails", {"to": f"ann{number}@example.org", "text": SCRIPT}, message_id=f"mail-{number}")
        for number in range(3):
            shop.enqueue(HOSTILE, SCRIPT, message_id=f"{HOSTILE}{number}")
        for number in range(SCHEDULED):
            shop.enqueue("reminders", {"number": number}, delay=3600 + 60 * number)
        shop.repeat("heartbeat", "beats", {"n": 1}, every=3600)
        shop.repeat("nightly <i>report</i>", "reports", None, every=86400)
        for number in range(40):
            shop.publish(f"sensors.{number:03}", b"\x00\x01\xfebinary")
        shop.publish(HOSTILE, SCRIPT)
        shop.flush()

    def _publish(self) -> None:
        client, number = self.client("feed"), 0
        while not self._ended.wait(0.02):
            number += 1
            client.publish("orders.eu", {"order": number, "text": SCRIPT})
            client.publish("orders.us", f"order {number}")


def busyBroker(*arguments: str) -> BrokerProcess:
    """Return a broker with a journal for ``orders``, which is started as a context manager."""
    return BrokerProcess("--journal", "journal", "--durable", "orders.*", *arguments)


def address(*segments: object) -> str:
    """Return the address of a page of the console."""
    return "#/" + "/".join(quote(str(each), safe="") for each in segments)
