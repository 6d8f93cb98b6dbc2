"""Readers of topics by HTTP."""

import json
from typing import Any
from unittest.mock import patch

import msgpack

from fleximq.broker.broker import Broker
from fleximq.broker.envelope import ConnectedClient, Envelope, MessageSource
from fleximq.dialects.connection.slow_consumer import Drop
from fleximq.errors import Forbidden
from fleximq.limits import Limits
from fleximq.rights import Action
from fleximq.security.permissions import Rights
from fleximq.values.message import Content, Message
from fleximq.values.records import StoredBatch
from tests.dialects.conversations import Peer, makeContext
from tests.dialects.http.case import HttpCase, request, responses
from tests.slow_journal import SlowJournal


def bodyOf(heard: bytes) -> tuple[bytes, bool]:
    """Return the chunks so far, and whether the last one came."""
    found = b""
    while heard:
        size, _, heard = heard.partition(b"\r\n")
        if size == b"0":
            return found, True
        found += heard[: int(size, 16)]
        heard = heard[int(size, 16) + 2 :]
    return found, False


class Reader:
    """A peer that reads a stream; ``status``, ``fields`` and ``events`` are what it got so far."""

    def __init__(self, peer: Peer, path: str, *fields: str) -> None:
        self.peer = peer
        self.isComplete = False
        heard = peer.ask(request(f"GET {path}", b"", *fields))
        head, _, body = heard.partition(b"\r\n\r\n")
        [(self.status, self.fields, _)] = responses(head + b"\r\n\r\n")
        self.isChunked = self.fields.get("transfer-encoding") == "chunked"
        self.text = b""
        self.error = body if "content-length" in self.fields else b""
        if not self.error:
            self.hear(body)

    def hear(self, heard: bytes | None = None) -> None:
        """Read what came since."""
        content, isLast = bodyOf(self.peer.heard() if heard is None else heard)
        self.text += content
        self.isComplete |= isLast

    @property
    def lines(self) -> list[Any]:
        """The objects on lines."""
        self.hear()
        return [json.loads(each) for each in self.text.splitlines()]

    @property
    def events(self) -> list[tuple[str, str, Any]]:
        """The id, the name and the data of each event, as EventSource reads them."""
        self.hear()
        found, last = [], ""
        for block in self.text.decode().split("\n\n")[:-1]:
            fields: dict[str, str] = {}
            for line in block.split("\n"):
                name, _, value = line.partition(": ")
                fields[name] = value
            last = fields.get("id", last)
            if "data" in fields:
                found.append((last, fields.get("event", "message"), json.loads(fields["data"])))
        return found

    @property
    def values(self) -> list[Any]:
        """The values of messages, of events and of lines alike."""
        if self.fields["content-type"] == "text/event-stream":
            return [data["value"] for _, name, data in self.events if name == "message"]
        return [each["value"] for each in self.lines]


class StreamCase(HttpCase):
    """A publisher beside the readers."""

    def setUp(self) -> None:
        super().setUp()
        self.publisher: ConnectedClient = self.broker.join("fleximq")

    def publish(self, topic: str, *values: Any) -> None:
        """Publish one run."""
        envelope = Envelope(self.broker.topicFor(self.publisher, topic), self.publisher, MessageSource())
        messages = [Message(msgpack.packb(each), Content.MESSAGEPACK) for each in values]
        self.context.turn.open = True
        self.broker.publish(envelope, messages, len(messages))
        self.context.turn.flush()

    def lines(self, path: str, *fields: str) -> Reader:
        """Return a reader as curl is one."""
        return Reader(self.join(), path, "Accept: */*", *fields)

    def events(self, path: str, *fields: str) -> Reader:
        """Return a reader as EventSource is one."""
        return Reader(self.join(), path, "Accept: text/event-stream", *fields)


class LiveTests(StreamCase):
    """Messages that are not stored."""

    def test_anObjectOnEachLine(self) -> None:
        reader = self.lines("/topics/t")
        self.publish("t", "a", {"b": 1})
        self.assertEqual(reader.status, 200)
        self.assertEqual(reader.fields["content-type"], "application/x-ndjson")
        self.assertEqual(reader.fields["x-accel-buffering"], "no")
        self.assertEqual(reader.lines, [{"topic": "t", "value": "a"}, {"topic": "t", "value": {"b": 1}}])

    def test_events(self) -> None:
        reader = self.events("/topics/t")
        self.publish("t", "a\nb")
        self.assertEqual(reader.fields["content-type"], "text/event-stream")
        self.assertEqual(reader.events, [("live", "message", {"topic": "t", "value": "a\nb"})])
        self.assertTrue(reader.text.startswith(b"retry: 1000\nid: live\n\n"), reader.text)

    def test_aPatternHasTheTopicOfEachMessage(self) -> None:
        reader = self.lines("/topics/a.*")
        self.publish("a.x", 1)
        self.publish("a.\ny", 2)
        self.assertEqual([each["topic"] for each in reader.lines], ["a.x", "a.\ny"])

    def test_withoutChunksInHttp10(self) -> None:
        peer = self.join()
        heard = peer.ask(b"GET /topics/t?limit=1 HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n")
        self.assertIn(b"Connection: close", heard)
        self.assertNotIn(b"chunked", heard)
        self.publish("t", 1)
        self.turn()
        self.assertEqual(peer.heard(), b'{"topic":"t","value":1}\n')
        self.assertTrue(peer.closed)

    def test_aRunIsRenderedOnceForAllReaders(self) -> None:
        readers = [self.lines("/topics/t") for _ in range(3)]
        with patch("fleximq.dialects.http.operations.stream_forms.liveRows", return_value=[b"1\n"]) as rendered:
            self.publish("t", 1)
        self.assertEqual(rendered.call_count, 1)
        self.assertEqual([each.lines for each in readers], [[1]] * 3)

    def test_theHeadAlone(self) -> None:
        peer = self.join()
        self.assertTrue(peer.ask(request("HEAD /topics/t", b"", "Accept: text/event-stream")).endswith(b"\r\n\r\n"))
        self.assertTrue(peer.closed)

    def test_aCommentOnlyWhenNothingIsSent(self) -> None:
        reader = self.events("/topics/t")
        self.clock.advance(30)
        self.clock.advance(30)
        self.publish("t", 1)
        self.clock.advance(30)
        reader.hear()
        self.assertEqual(reader.text.count(b":\n\n"), 1)
        self.clock.advance(30)
        reader.hear()
        self.assertEqual(reader.text.count(b":\n\n"), 2)

    def test_aSecondConnectionLearnsOfAGap(self) -> None:
        for last in ("live", "7", "nonsense", "-1", "9" * 30):
            reader = self.events("/topics/t", f"Last-Event-ID: {last}")
            self.publish("t", 1)
            self.assertEqual([name for _, name, _ in reader.events], ["gap", "message"])


class EndTests(StreamCase):
    """When an answer ends."""

    def test_afterSoManyMessages(self) -> None:
        reader = self.lines("/topics/t?limit=3")
        self.publish("t", 1, 2)
        self.assertFalse(reader.peer.closed)
        self.publish("t", 3, 4)
        self.publish("t", 5)
        self.turn()
        self.assertEqual(reader.values, [1, 2, 3])
        self.assertTrue(reader.isComplete)
        self.assertTrue(reader.peer.closed)
        self.assertEqual(self.broker.channels(), [])

    def test_afterSecondsWithoutAMessage(self) -> None:
        reader = self.lines("/topics/t?wait=10")
        self.clock.advance(9)
        self.publish("t", 1)
        self.clock.advance(9)
        self.assertFalse(reader.peer.closed)
        self.clock.advance(1)
        self.assertEqual(reader.values, [1])
        self.assertTrue(reader.isComplete)
        self.assertTrue(reader.peer.closed)

    def test_whenTheBrokerStops(self) -> None:
        reader = self.events("/topics/t")
        for session in list(self.context.sessions):
            session.dismiss()
        reader.hear()
        self.assertTrue(reader.isComplete)
        self.assertTrue(reader.peer.closed)

    def test_whenTheClientIsGone(self) -> None:
        reader = self.lines("/topics/t?wait=5")
        reader.peer.leave()
        self.publish("t", 1)
        self.assertEqual(self.broker.channels(), [])
        self.clock.advance(100)

    def test_whenItIsExpelled(self) -> None:
        reader = self.events("/topics/t")
        [client] = [each for each in self.broker.clients if each is not self.publisher]
        assert client.conversation is not None
        client.conversation.expel(Forbidden("disconnected"))
        self.assertEqual(reader.events, [])
        self.assertTrue(reader.isComplete)
        self.assertTrue(reader.peer.closed)

    def test_whenTheRightIsLost(self) -> None:
        reader = self.events("/topics/t")
        [client] = [each for each in self.broker.clients if each is not self.publisher]
        self.broker.changeRights(client, Rights({Action.SUBSCRIBE: ["other"]}))
        self.turn()
        self.assertEqual([name for _, name, _ in reader.events], ["end"])
        self.assertTrue(reader.isComplete)

    def test_whenItFailsAfterItsHead(self) -> None:
        peer = self.join()
        with patch.object(Broker, "recall", side_effect=RuntimeError("a fault")):
            self.assertIn(b"HTTP/1.1 200", peer.ask(request("GET /topics/t")))
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 1)
        self.assertTrue(peer.closed)


class RefusalTests(StreamCase):
    """What is refused."""

    def test_wrongArguments(self) -> None:
        for query in (
            "limit=0",
            "limit=x",
            "wait=-1",
            "wait=nan",
            "retry=x",
            "from=yesterday",
            "from=2030-01-01",
            "x=1",
        ):
            reader = self.events(f"/topics/t?{query}")
            self.assertEqual(reader.status, 400, query)

    def test_aPastWithoutAJournal(self) -> None:
        self.assertEqual(self.lines("/topics/t?from=first").status, 422)

    def test_aTopicThatMayNotBeRead(self) -> None:
        peer = self.join()
        peer.ask(request("GET /topics/t?from=x"))
        [client] = [each for each in self.broker.clients if each is not self.publisher]
        client.rights = Rights({Action.SUBSCRIBE: ["other"]})
        self.assertIn(b" 403 ", peer.ask(request("GET /topics/t")))


class SlowReaderTests(StreamCase):
    """Readers that do not read."""

    settings = {"limits": Limits(outboxBytes=10_000)}

    def test_oneIsDisconnected(self) -> None:
        reader = self.events("/topics/t")
        reader.peer.producer.pauseProducing()
        for _ in range(30):
            self.publish("t", "x" * 1000)
        self.clock.advance(0)
        self.assertTrue(reader.peer.closed)
        reader.peer.leave()
        self.assertEqual(self.broker.counts.events["left: slow consumer"], 1)

    def test_orLosesWholeRunsIfTheOperatorSaysSo(self) -> None:
        dropped: list[int] = []
        self.context.policy = Drop(lambda event, number: dropped.append(number))
        reader = self.lines("/topics/t")
        reader.peer.producer.pauseProducing()
        for number in range(30):
            self.publish("t", str(number) * 400)
        self.clock.advance(0)
        reader.peer.producer.resumeProducing()
        self.assertFalse(reader.peer.closed)
        self.assertEqual(len(reader.values) + sum(dropped), 30)
        self.assertGreater(sum(dropped), 0)


class StoredTests(StreamCase):
    """Durable topics."""

    def setUp(self) -> None:
        super().setUp()
        self.journal = SlowJournal()
        self.open(makeContext(self.clock, journal=self.journal, durable=("d", "d.*"), retain=("r",)))
        self.publisher = self.broker.join("fleximq")

    def publish(self, topic: str, *values: Any) -> None:
        super().publish(topic, *values)
        self.journal.commit()
        self.turn()

    def test_theIdIsTheOffset(self) -> None:
        self.publish("d", "before")
        reader = self.events("/topics/d")
        self.publish("d", "a", "b")
        self.assertEqual([(each, data["value"]) for each, _, data in reader.events], [("2", "a"), ("3", "b")])
        self.assertTrue(reader.text.startswith(b"retry: 1000\nid: 1\n\n"), reader.text)

    def test_aReaderGoesOnAfterTheLastId(self) -> None:
        self.publish("d", *"abc")
        reader = self.events("/topics/d", "Last-Event-ID: 1")
        self.turn()
        self.publish("d", "d")
        self.assertEqual(reader.events[0][1], "message")
        self.assertEqual(reader.values, [*"bcd"])

    def test_aConnectionLostBeforeTheFirstMessageMakesNoGap(self) -> None:
        self.publish("d", "old")
        first = self.events("/topics/d")
        last = first.text.split(b"id: ")[1].split(b"\n")[0].decode()
        first.peer.leave()
        self.publish("d", "new")
        again = self.events("/topics/d", f"Last-Event-ID: {last}")
        self.turn()
        self.assertEqual(again.values, ["new"])

    def test_theLastIdCountsMoreThanFrom(self) -> None:
        self.publish("d", *"abc")
        reader = self.events("/topics/d?from=first", "Last-Event-ID: 2")
        self.turn()
        self.assertEqual(reader.values, ["c"])

    def test_fromAnyPlace(self) -> None:
        self.publish("d", "a")
        self.journal.now = 5_000_000
        self.publish("d", *"bc")
        places = {
            "first": "abc",
            "last": "c",
            "2": "bc",
            "1970-01-01T00:00:04Z": "bc",
            "1970-01-01T01:00:06%2B01:00": "",
        }
        for start, wanted in places.items():
            reader = self.lines(f"/topics/d?from={start}")
            self.turn()
            self.assertEqual("".join(reader.values), wanted, start)

    def test_aPatternKnowsNoGapIfAllItsTopicsAreDurable(self) -> None:
        self.publish("d.x", "a")
        self.publish("d.y", "b")
        for path, wanted in (("/topics/d.*", ["message"]), ("/topics/%23", ["gap", "message"])):
            reader = self.events(path, "Last-Event-ID: 1")
            self.turn()
            self.assertEqual([name for _, name, _ in reader.events], wanted)

    def test_messagesThatAreGoneAreAGap(self) -> None:
        self.publish("d", *"abc")
        self.journal.forget(3)
        reader = self.events("/topics/d", "Last-Event-ID: 1")
        self.turn()
        self.assertEqual([name for _, name, _ in reader.events], ["gap", "message"])
        self.assertEqual(self.lines("/topics/d?from=2").status, 404)

    def test_messagesThatAreGoneWhileAReaderReadsAreAGap(self) -> None:
        self.publish("d", *"abc")
        self.journal.patient = True
        reader, lines = self.events("/topics/d", "Last-Event-ID: 0"), self.lines("/topics/d?from=first")
        self.journal.forget(3)
        self.journal.patient = False
        self.journal.answer(2)
        self.turn()
        self.turn()
        self.assertEqual([name for _, name, _ in reader.events], ["gap", "message"])
        self.assertEqual([[*each] for each in lines.lines], [["error"]])
        self.assertTrue(lines.isComplete)

    def test_anIdOfAnotherJournalIsAGap(self) -> None:
        self.publish("d", "a")
        reader = self.events("/topics/d", "Last-Event-ID: 900")
        self.turn()
        self.publish("d", "b")
        self.assertEqual([name for _, name, _ in reader.events], ["gap", "message"])
        self.assertEqual(reader.values, ["b"])

    def test_nonsenseIsAGap(self) -> None:
        reader = self.events("/topics/d", "Last-Event-ID: x")
        self.publish("d", "b")
        self.assertEqual([name for _, name, _ in reader.events], ["gap", "message"])

    def test_aScriptReadsWhatIsThere(self) -> None:
        self.publish("d", *"abc")
        self.journal.patient = True
        reader = self.lines("/topics/d?from=first&wait=1")
        self.clock.advance(5)
        self.assertFalse(reader.peer.closed, "the journal is still read")
        self.journal.patient = False
        self.journal.answer()
        self.turn()
        self.clock.advance(1)
        self.clock.advance(1)
        self.assertEqual(reader.values, [*"abc"])
        self.assertTrue(reader.isComplete)

    def test_aScriptReadsSoMany(self) -> None:
        self.publish("d", *"abc")
        reader = self.lines("/topics/d?from=first&limit=2")
        self.turn()
        self.assertEqual(reader.values, [*"ab"])
        self.assertTrue(reader.isComplete)

    def test_aNewReaderGetsTheRetainedMessageWithoutAnOffset(self) -> None:
        self.publish("r", "a", "b")
        self.publish("d", "c")
        reader = self.events("/topics/%23")
        self.turn()
        self.assertEqual([(each, data["value"]) for each, _, data in reader.events], [("3", "b")])

    def test_recordsThatArriveAsABatchHaveOffsets(self) -> None:
        reader = self.events("/topics/d")
        batch = StoredBatch([9], [1], ["d"], [0], [(5, "")], [0], [1], [0], [b""], [b"\x01"])
        envelope = Envelope(self.broker.topics.get("d"), self.publisher, MessageSource(), offset=4, time=7)
        self.broker.fanOut.deliver(envelope, batch, 1)
        self.context.turn.flush()
        self.assertEqual([each for each, _, _ in reader.events], ["4"])
