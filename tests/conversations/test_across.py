"""One space of topics for all dialects (docs/reference/dialects.rst, "Across dialects"), and first bytes on one port.

What becomes of payloads is shown by :mod:`tests.conversations.test_matrix`.
"""

import re
import struct
import time

from tests.conversations.case import SocketCase, onOwnListeners
from tests.conversations.clients import Ack, Delivery


class AcrossTests(SocketCase):
    """Publications of one dialect and what others see of them."""

    def test_everybody(self) -> None:
        """A publication of any dialect reaches subscribers of all, each once."""
        flexi, web = self.flexi().subscribe(self.topic), self.flexiWs().subscribe(self.topic)
        blip, mini, identity = self.blip(), self.mini(), self.identity(self.topic)
        subscription = blip.subscribe(self.topic)
        mini.consume(self.topic)
        flexi.barrier()
        web.barrier()
        self.flexi().publish(self.topic, "a").barrier()
        blip.publish(self.topic, b"b").barrier()
        mini.produce(self.topic, "i", "c")
        identity.say(f"PUBLISH:{self.topic}:d").barrier()
        for each in (flexi, web):
            self.assertEqual([each.hear().value for _ in range(4)], ["a", b"b", "c", "d"])
        self.assertEqual([blip.poll(subscription).message for _ in range(4)], [b"a", b"b", b"c", b"d"])
        self.assertEqual([mini.consume(self.topic).split(":::")[2] for _ in range(4)], ["a", "b", "c", "d"])

    def test_publisher(self) -> None:
        """A delivery to FlexiMQ carries its publisher's id, one to Identity the name made of it."""
        heard, told = self.flexi().subscribe(self.topic), self.identity(self.topic)
        heard.barrier()
        self.blip().publish(self.topic, b"x").barrier()
        sender = heard.hear().sender
        self.assertEqual(told.hear(), f"MSG:{self.topic}:blipmq-{sender}:x")
        [client] = heard.ask("/broker/clients", {"after": sender - 1, "limit": 1})["clients"]
        self.assertEqual((client["client_id"], client["dialect"]), (sender, "blipmq"))

    def test_identityName(self) -> None:
        """An Identity client's own name is its sender's in MSG."""
        one, two = self.identity(self.topic), self.identity(self.topic)
        one.say(f"PUBLISH:{self.topic}:x")
        self.assertEqual(two.hear(), f"MSG:{self.topic}:{one.name}:x")

    def test_miniIdsToFlexi(self) -> None:
        """MiniMQ's id, CorrelationID and ReplyTo are FlexiMQ header keys."""
        flexi = self.flexi().subscribe(self.topic)
        flexi.barrier()
        self.mini().produce(self.topic, "own", "x", "c1", "r1")
        ids = {"message_id": "own", "correlation_id": "c1", "reply_to": "r1"}
        self.assertEqual(flexi.hear().header, {"topic": self.topic} | ids)

    def test_flexiIdsToMini(self) -> None:
        """And the other way round."""
        mini = self.mini()
        mini.consume(self.topic)
        flexi = self.flexi()
        flexi.publish(self.topic, "answer", message_id="m", correlation_id="c2", reply_to="r2").barrier()
        self.assertEqual(mini.consume(self.topic), f"m:::{self.topic}:::answer:::c2:::r2")

    def test_rpc(self) -> None:
        """A FlexiMQ service answers a MiniMQ client that waits on its reply topic."""
        service, mini, replies = self.flexi().subscribe(self.topic), self.mini(), f"{self.topic}.reply"
        service.barrier()
        mini.consume(replies)
        mini.produce(self.topic, "q", "2+2", "c", replies)
        asked = service.hear().header
        service.publish(asked["reply_to"], "4", correlation_id=asked["correlation_id"]).barrier()
        self.assertEqual(mini.consume(replies).split(":::")[2:], ["4", "c", ""])

    def test_generatedId(self) -> None:
        """A foreign message in a MiniMQ queue has a ULID for its id, by which it is acknowledged."""
        mini = self.mini()
        mini.consume(self.topic)
        self.identity(self.topic).say(f"PUBLISH:{self.topic}:x").barrier()
        id, topic, content = mini.consume(self.topic).split(":::")[:3]
        self.assertTrue(re.fullmatch("[0-9A-HJKMNP-TV-Z]{26}", id), id)
        self.assertEqual((topic, content), (self.topic, "x"))

    def test_noQueueBefore(self) -> None:
        """A MiniMQ queue begins with its first PRODUCE or CONSUME; what was published before is not in it."""
        self.flexi().publish(self.topic, "early").barrier()
        self.assertEqual(self.mini().consume(self.topic), "NO_MSG")

    def test_qos(self) -> None:
        """Publications of other dialects count as QoS1."""
        blip = self.blip()
        one, zero = blip.subscribe(self.topic), blip.subscribe(self.topic, 0)
        self.mini().produce(self.topic, "i", "x")
        self.assertEqual(blip.poll(one), Delivery(1, 1, self.topic, b"x"))
        self.assertEqual(blip.poll(zero, 9), Delivery(9, 0, self.topic, b"x"))

    def test_wildcards(self) -> None:
        """A FlexiMQ pattern matches what others publish; in other dialects the same name is literal."""
        flexi = self.flexi().subscribe(f"{self.topic}.*")
        flexi.barrier()
        literal = self.identity(f"{self.topic}.*")
        self.mini().produce(f"{self.topic}.a", "i", "x")
        self.assertEqual(flexi.hear().header["topic"], f"{self.topic}.a")
        self.assertEqual(literal.barrier(), [])

    def test_unspeakable(self) -> None:
        """A topic that a dialect cannot spell is not visible to it, and disturbs nobody."""
        topic = f"{self.topic}:::x"
        flexi, blip, identity = self.flexi().subscribe(topic), self.blip(), self.identity()
        flexi.barrier()
        subscription = blip.subscribe(topic)
        blip.publish(topic, b"x").barrier()
        self.assertEqual(flexi.hear().value, b"x")
        self.assertEqual(blip.poll(subscription).message, b"x")
        self.assertEqual(identity.barrier(), [])

    def test_narrowed(self) -> None:
        """A narrowed PUB reaches FlexiMQ clients only."""
        flexi, mini, identity = self.flexi().subscribe(self.topic), self.mini(), self.identity(self.topic)
        mini.consume(self.topic)
        flexi.barrier()
        self.flexi().publish(self.topic, "x", routing=[{"client_id": flexi.id}]).barrier()
        self.assertEqual(flexi.hear().value, "x")
        self.assertEqual((mini.consume(self.topic), identity.barrier()), ("NO_MSG", []))


class PresenceTests(SocketCase):
    """The broker's own topics."""

    def told(self, path: str, /, **wanted: object) -> dict[str, object]:
        """Return the next message on a topic that says this, among those of other clients."""
        while True:
            heard = self.watcher.hear()
            if heard.header["topic"] == path and wanted.items() <= heard.value.items():
                self.assertEqual((heard.kind, heard.sender), ("PUB", 1))
                value: dict[str, object] = heard.value
                return value

    def watch(self, *topics: str) -> None:
        """Subscribe to topics of the broker."""
        self.watcher = self.flexi().subscribe(*topics)
        self.watcher.barrier()

    def test_joins(self) -> None:
        """Joins of all dialects are told."""
        self.watch("$sys/clients/joined")
        flexi = self.flexi()
        self.assertEqual(
            self.told("$sys/clients/joined", client_id=flexi.id),
            {"client_id": flexi.id, "dialect": "fleximq", "name": f"fleximq-{flexi.id}"},
        )
        self.blip()
        self.told("$sys/clients/joined", dialect="blipmq")
        self.mini().barrier()
        self.told("$sys/clients/joined", dialect="minimq")
        self.told("$sys/clients/joined", dialect="identity", name=self.identity().name)

    def test_leaves(self) -> None:
        """So are leaves, with the reason."""
        self.watch("$sys/clients/left")
        identity = self.identity()
        identity.close()
        told = self.told("$sys/clients/left", name=identity.name)
        self.assertIn(told["reason"], ("client closed", "connection lost"))

    def test_topics(self) -> None:
        """So are new topics; a wildcard at the first level does not match the broker's topics."""
        curious = self.flexi().subscribe("#", "*/topics/created", "*.#")
        curious.barrier()
        self.watch("$sys/#")
        self.identity(self.topic)
        self.told("$sys/topics/created", topic=self.topic)
        self.assertEqual([each for each in curious.barrier() if each.header["topic"].startswith("$")], [])

    def test_otherDialects(self) -> None:
        """Other dialects hear of it too, in their form."""
        mini = self.mini()
        mini.consume("$sys/clients/joined")
        flexi = self.flexi()
        told = ""
        while f'"client_id":{flexi.id},' not in told:
            told = mini.consume("$sys/clients/joined")
            self.assertNotEqual(told, "NO_MSG")
        self.assertIn(f'{{"client_id":{flexi.id},"dialect":"fleximq","name":"fleximq-{flexi.id}"}}', told)


class FirstBytesTests(SocketCase):
    """What a connection speaks is found out from its first bytes."""

    def begun(self, dialect: str, data: bytes, size: int) -> bytes:
        """Return the begin of the answer to bytes that arrive one at a time."""
        stream = self.stream(dialect)
        for byte in data:
            stream.say(bytes([byte]))
            time.sleep(0.001)  # otherwise the kernel hands several over at once
        answer = b""
        while len(answer) < size:
            answer += stream.read() or self.fail(f"closed after {answer!r}")
        return answer[:size]

    def test_fleximq(self) -> None:
        """FlexiMQ."""
        self.assertEqual(self.begun("fleximq", bytes([1]) + bytes(33), 2), b"\x01\x02")

    def test_blipmq(self) -> None:
        """BlipMQ."""
        hello, answer = struct.pack(">IBQH", 11, 1, 7, 1), struct.pack(">IBQQ", 17, 5, 7, 0)
        self.assertEqual(self.begun("blipmq", hello, len(answer)), answer)
        self.assertEqual(Ack(7, 0), Ack(*struct.unpack(">5xQQ", answer)))

    def test_minimq(self) -> None:
        """MiniMQ."""
        self.assertEqual(self.begun("minimq", b"PING:\n", 6), b"PONG:\n")

    def test_http(self) -> None:
        """HTTP: a plain GET is answered by a page that says what runs here."""
        stream = self.stream("identity")
        stream.say(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        answer = stream.readAll()
        self.assertTrue(answer.startswith(b"HTTP/1.1 200 OK\r\n"), answer)
        self.assertIn(b"FlexiMQ", answer)


globals().update(onOwnListeners(AcrossTests, PresenceTests, FirstBytesTests))
