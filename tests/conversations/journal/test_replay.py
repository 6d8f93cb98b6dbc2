"""The past over sockets: replay, history, and the paths of the journal, with a journal on disk."""

import time
from typing import Any

from fleximq.journal.format.frame import FrameKind, readHeader
from tests.conversations.clients import FlexiClient, Stream, WebSocketStream
from tests.conversations.journal.journaled import JournalCase
from tests.wire.flexi_variants import LAYOUT_B, MAPS


class ReplayTests(JournalCase):
    """What subscribers get of the past."""

    options = ("--durable", "d.#", "--retain", "r.#", "--history", "2", "--outbox-bytes", "300000")

    def publish(self, *values: Any, topic: str = "d.t") -> None:
        """Publish, and wait until it is on disk."""
        client = self.flexi()
        for value in values:
            client.publish(topic, value)
        self.assertEqual(client.barrier(), [])

    def hear(self, client: FlexiClient, number: int) -> list[tuple[Any, Any]]:
        """Return offset and value of the next PUBs."""
        heard = [client.hear() for _ in range(number)]
        self.assertEqual({each.kind for each in heard}, {"PUB"})
        return [(each.header.get("offset"), each.value) for each in heard]

    def test_thenLive(self) -> None:
        """Who begins in the middle of much publishing gets each message once, in order."""
        writer = self.flexi()
        reader = self.flexi()
        for number in range(3000):
            writer.publish("d.t", number)
            if number == 1000:
                self.assertEqual(writer.barrier(), [])
                reader.tell("SUB", {"topic": "d.#", "from": "first"})
        self.assertEqual(self.hear(reader, 3000), [(number + 1, number) for number in range(3000)])

    def test_slowReader(self) -> None:
        """Who does not read for long gets all of it all the same, though it is far more than may wait."""
        reader = self.flexi()
        reader.tell("SUB", {"topic": "d.t", "from": "first"})
        self.assertEqual(reader.barrier(), [])
        payload = b"x" * 50_000
        for _ in range(10):
            self.publish(*[payload] * 40)
        late = self.flexi()
        late.tell("SUB", {"topic": "d.t", "from": "first"})
        for client in (reader, late):
            self.assertEqual([offset for offset, _ in self.hear(client, 400)], list(range(1, 401)))

    def test_webSocket(self) -> None:
        """Over WebSocket the past comes likewise, though it is longer than one message may be."""
        self.publish(*[b"x" * 50_000] * 60)
        with FlexiClient(WebSocketStream(self.broker.address)) as client:
            client.join().tell("SUB", {"topic": "d.t", "from": "first"})
            self.assertEqual([offset for offset, _ in self.hear(client, 60)], list(range(1, 61)))

    def test_restart(self) -> None:
        """A client resumes where it was, over a crash of the broker, without gap or duplicate."""
        self.publish("a", "b")
        reader = self.flexi()
        reader.tell("SUB", {"topic": "d.t", "from": "first"})
        [(offset, value)] = self.hear(reader, 1)
        self.restart()
        reader = self.flexi()
        reader.tell("SUB", {"topic": "d.t", "from": offset + 1})
        self.assertEqual(self.hear(reader, 1), [(2, "b")])
        self.publish("c")
        [(after, value)] = self.hear(reader, 1)
        self.assertEqual(value, "c")
        self.assertGreater(after, 2)

    def test_timeInMillisecondsFindsItsPlace(self) -> None:
        """A time in milliseconds finds its place."""
        self.publish("a")
        client = self.flexi()
        [row] = client.ask("/journal/bounds")["topics"]
        client.tell("SUB", {"topic": "d.t", "from": {"time": row["last_time"] + 3_600_000}})
        late = self.flexi()
        late.tell("SUB", {"topic": "d.t", "from": {"time": row["first_time"]}})
        self.assertEqual(self.hear(late, 1), [(1, "a")])
        self.publish("b")
        self.assertEqual(self.hear(client, 1), [(2, "b")])

    def test_deliveredTime(self) -> None:
        """A message has the time at which it was stored, live and replayed the same, in every layout."""
        live = [FlexiClient(Stream(self.broker.address), each).join() for each in (MAPS, LAYOUT_B)]
        for client in live:
            self.addCleanup(client.close)
            client.tell("SUB", {"topic": "d.t", "from": "first"}).barrier()
        before = time.time_ns() // 1_000_000
        self.publish("a", "b")
        after = time.time_ns() // 1_000_000
        found = [client.hear().header["stored_at"] for client in live for _ in range(2)]
        self.assertEqual(found[:2], found[2:])
        self.assertTrue(before <= found[0] <= found[1] <= after)
        late = self.flexi().tell("SUB", {"topic": "d.#", "from": "first"})
        self.assertEqual([late.hear().header["stored_at"] for _ in range(2)], found[:2])
        plain = self.flexi().subscribe("d.t")
        plain.barrier()
        self.publish("c")
        self.assertNotIn("stored_at", plain.hear().header)

    def test_latestMessageOfEachTopicComesToNewSubscribersAlsoAfterCrash(self) -> None:
        """The latest message of each topic comes to new subscribers, also after a crash."""
        self.publish("old", "new", topic="r.a")
        self.publish("b", topic="r.b")
        self.restart()
        client = self.flexi()
        client.tell("SUB", {"topic": "r.*"})
        self.assertEqual(self.hear(client, 2), [(None, "new"), (None, "b")])
        self.publish("live", topic="r.a")
        self.assertEqual(self.hear(client, 1), [(None, "live")])

    def test_identityChannelHasItsLastMessagesWithNamesOfTheirSendersAlso(self) -> None:
        """An Identity channel has its last messages, with the names of their senders, also after a crash."""
        self.publish("1", "2", "3")
        self.restart()
        user = self.identity("d.t")
        self.assertEqual([user.hear().rpartition(":")[2] for _ in range(2)], ["2", "3"])


class PathTests(JournalCase):
    """What programs may ask."""

    def test_bytesThatAreReadAreWholeFramesInWhichEverythingIsUpToEnd(self) -> None:
        """The bytes that are read are whole frames, in which everything is, up to the end."""
        client = self.flexi()
        for number in range(100):
            client.publish("d.t", "x" * number)
        self.assertEqual(client.barrier(), [])
        bounds = client.ask("/journal/bounds")
        self.assertEqual([(row["topic"], row["first"], row["last"]) for row in bounds["topics"]], [("d.t", 1, 100)])
        self.assertEqual(bounds["end"], 101)
        self.assertEqual(len(bounds["journal"]), 32)
        position, records = 0, 0
        while position < bounds["position"]:
            answer = client.ask("/journal/read", {"position": position, "most": 4096})
            found, at = answer["data"], 0
            while at < len(found):
                header = readHeader(found, at)
                self.assertEqual(header.position, answer["position"] + at)
                records += header.count if header.kind == FrameKind.RECORDS else 0
                at += header.length
            position = answer["next"]
        self.assertEqual((records, position), (100, bounds["position"]))

    def test_sink(self) -> None:
        """What was staged before a crash can be committed after it, once, and is brought to everybody."""
        client = self.flexi()
        records = [{"topic": "d.t", "value": number, "headers": {"key": "k"}} for number in range(3)]
        arguments = {"query": "q", "batch": 7, "part": "0", "records": records}
        token = client.ask("/sink/stage", arguments)["token"]
        self.assertEqual(client.ask("/journal/bounds")["topics"], [])
        self.restart()
        client, reader, plain = self.flexi(), self.flexi(), self.flexi()
        reader.tell("SUB", {"topic": "d.t", "from": "first"})
        plain.tell("SUB", {"topic": "d.t"})
        for each in (reader, plain):
            self.assertEqual(each.barrier(), [])
        commit = {"query": "q", "batch": 7, "tokens": [token]}
        first = client.ask("/sink/commit", commit)["offset"]
        self.assertEqual(client.ask("/sink/commit", commit)["offset"], first)
        client.publish("d.t", "behind")
        self.assertEqual(client.barrier(), [])
        heard = [reader.hear() for _ in range(4)]
        self.assertEqual([each.value for each in heard], [0, 1, 2, "behind"])
        self.assertEqual([each.header["offset"] for each in heard], list(range(first, first + 4)))
        heard = [plain.hear() for _ in range(4)]
        self.assertEqual([each.value for each in heard], [0, 1, 2, "behind"])
        self.assertEqual([each.header.get("key") for each in heard], ["k", "k", "k", None])
        self.restart()
        self.assertEqual(self.flexi().ask("/sink/commit", commit)["offset"], first)
        self.assertEqual([value for _, value in self.replay("d.t")], [0, 1, 2, "behind"])
