"""The broker's paths for programs that read the journal, or write to it all at once."""

import contextlib
from typing import Any

import msgpack
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from fleximq.broker.envelope import Envelope, MessageSource
from fleximq.broker.paths import journal_paths, path_table
from fleximq.broker.paths.journal_paths import JOURNAL_PATHS, MAX_READ_BYTES, NAME_BYTES
from fleximq.broker.paths.path_table import ARGUMENT_BYTES
from fleximq.errors import BadRequest, BrokerError, Forbidden, InvalidTopic
from fleximq.values.message import Content, Message
from fleximq.values.nesting import NESTING
from fleximq.values.records import contentOf
from tests.broker.parts import Collector, ask, askAt, makeBroker, text
from tests.processor_time import processorSeconds
from tests.slow_journal import SlowJournal


class JournalPathCase(SynchronousTestCase):
    """A broker with a journal."""

    def setUp(self) -> None:
        """Keep d.#."""
        self.journal = SlowJournal()
        self.clock = Clock()
        self.broker = makeBroker(self.clock, journal=self.journal, durable=("d.#",))
        self.client = self.broker.join("any")
        self.answers: list[Any] = []

    def ask(self, path: str, **arguments: Any) -> Any:
        """Return an answer that comes at once."""
        return askAt(self.broker, path, arguments)

    def askLater(self, path: str, **arguments: Any) -> None:
        """Ask, and let the answer come to ``answers``."""
        ask(self.broker, self.client, path, arguments, self.answers.append)

    def keep(self, *contents: str, topic: str = "d.t") -> None:
        """Publish and commit."""
        envelope = Envelope(self.broker.topicFor(self.client, topic), self.client, MessageSource())
        self.broker.publish(envelope, text(*contents), len(contents))
        self.journal.commit()

    def assertLater(self, status: int) -> None:
        """See that the only answer is this error."""
        [answer] = self.answers
        self.assertIsInstance(answer, BrokerError)
        self.assertEqual(int(answer.status), status)


class ReadingTests(JournalPathCase):
    """What there is, and its bytes."""

    def test_bounds(self) -> None:
        """Of each topic what is kept, times in milliseconds; the journal's id, and where it ends."""
        self.journal.now = 5_000_999
        self.keep("aa")
        self.journal.now = 6_000_000
        self.keep("bbb")
        self.keep("c", topic="d.u")
        row = {"topic": "d.t", "first": 1, "last": 2, "first_time": 5000, "last_time": 6000, "count": 2, "bytes": 5}
        found = self.ask("/journal/bounds", limit=1)
        self.assertEqual(found, {"topics": [row], "next": "d.t", "journal": self.journal.id, "end": 4, "position": 6})
        found = self.ask("/journal/bounds", after="d.t")
        self.assertEqual(([each["topic"] for each in found["topics"]], found["next"]), (["d.u"], None))

    def test_boundsWithoutTopics(self) -> None:
        """Who only wants to know where all ends does not pay for the topics."""
        self.keep("a", "bb")
        self.journal.bounds = None  # type: ignore[method-assign,assignment]
        found = self.ask("/journal/bounds", topics=False)
        self.assertEqual(found, {"topics": [], "next": None, "journal": self.journal.id, "end": 3, "position": 3})
        for other in (None, 0, "no"):
            self.assertRaises(BadRequest, self.ask, "/journal/bounds", topics=other)

    @settings(deadline=None)
    @given(st.sets(st.text("abc.", min_size=1, max_size=4), max_size=20), st.integers(1, 7))
    def test_pages(self, names: set[str], limit: int) -> None:
        """Pages put together are all topics, in order."""
        self.setUp()
        for name in names:
            self.keep("x", topic=f"d.{name}")
        found: list[str] = []
        next: Any = ""
        while next is not None:
            page = self.ask("/journal/bounds", after=next, limit=limit)
            self.assertLessEqual(len(page["topics"]), limit)
            found += [each["topic"] for each in page["topics"]]
            next = page["next"]
        self.assertEqual(found, sorted(f"d.{name}" for name in names))

    def test_pagesMeanwhile(self) -> None:
        """Pages have what is kept when they are asked for, also where another topic took the place of one."""
        for name in "bcde":
            self.keep(name, topic=f"d.{name}")

        def page(after: str) -> list[str]:
            return [each["topic"] for each in self.ask("/journal/bounds", after=after, limit=2)["topics"]]

        self.assertEqual(page(""), ["d.b", "d.c"])
        self.journal.forget(1000, lambda topic: topic == "d.d")
        self.assertEqual(page("d.c"), ["d.e"])
        self.keep("f", topic="d.cc")
        self.assertEqual(page("d.c"), ["d.cc", "d.e"])
        self.journal.forget(1000, lambda topic: topic == "d.b")
        self.keep("g", topic="d.z")
        self.assertEqual((page(""), page("d.cc")), (["d.c", "d.cc"], ["d.e", "d.z"]))

    def test_read(self) -> None:
        """Bytes from a position on, and where to go on; nothing at the end."""
        self.keep("abc", "def")
        found = self.ask("/journal/read", position=1, most=4)
        self.assertEqual(found, {"position": 1, "data": b"bcde", "end": 6, "next": 5, "journal": "5e"})
        self.assertEqual(self.ask("/journal/read", position=6)["data"], b"")

    def test_readLimits(self) -> None:
        """A position is from 0 on, and at most 4 MiB are read."""
        for arguments in ({}, {"position": -1}, {"position": "1"}, {"position": True}, {"position": 1.0},
                          {"position": 1 << 63}, {"position": 0, "most": MAX_READ_BYTES + 1},
                          {"position": 0, "most": None}):  # fmt: skip
            self.assertRaises(BadRequest, self.ask, "/journal/read", **arguments)
        self.ask("/journal/read", position=(1 << 63) - 1, most=MAX_READ_BYTES)

    def test_advance(self) -> None:
        """How far so many records and bytes go, to the end where there is no limit."""
        self.keep("abc", "def", "g")
        self.assertEqual(self.ask("/journal/advance", start=1, end=4), {"offset": 4, "records": 3, "bytes": 7})
        self.assertEqual(self.ask("/journal/advance", start=1, end=4, records=2)["offset"], 3)
        self.assertEqual(self.ask("/journal/advance", start=1, end=4, bytes=3, records=None)["offset"], 2)
        self.assertEqual(self.ask("/journal/advance", start=1, end=4, records=0)["offset"], 2)
        self.assertEqual(self.ask("/journal/advance", start=1, end=4, bytes=0)["offset"], 2)
        self.assertEqual(self.ask("/journal/advance", start=4, end=4)["offset"], 4)

    def test_advanceInVain(self) -> None:
        """A journal that cannot be read is no end."""
        self.journal.advance = lambda start, *_: _[-1](start, 0, 0)  # type: ignore[method-assign]
        self.askLater("/journal/advance", start=1, end=4)
        self.assertLater(503)

    def test_advanceLimits(self) -> None:
        """All of them are whole numbers from 0 on."""
        for arguments in ({}, {"start": 1}, {"end": 2}, {"start": -1, "end": 2}, {"start": 1, "end": 2, "records": -1},
                          {"start": 1, "end": 2, "bytes": "1"}, {"start": 1, "end": 2, "records": True}):  # fmt: skip
            self.assertRaises(BadRequest, self.ask, "/journal/advance", **arguments)

    def test_later(self) -> None:
        """The answer comes when the journal was read."""
        self.journal.patient = True
        self.askLater("/journal/read", position=0)
        self.assertEqual(self.answers, [])
        self.journal.answer()
        self.assertEqual(self.answers, [{"position": 0, "data": b"", "end": 0, "next": 0, "journal": "5e"}])

    def test_reopen(self) -> None:
        """After a fault it can be asked to keep things again."""
        self.journal.readOnly = "the disk is full"
        self.assertEqual(self.ask("/journal/reopen")["state"], "ok")

    def test_reopenInVain(self) -> None:
        """If that cannot be: 503 with the reason."""
        self.journal.reopen = lambda found: found("still full")  # type: ignore[method-assign]
        self.askLater("/journal/reopen")
        self.assertLater(503)
        self.assertEqual(str(self.answers[0]), "still full")

    def test_noJournal(self) -> None:
        """Without a journal on disk: 503, whatever is asked."""
        broker = makeBroker(Clock())
        arguments = {"query": "q", "batch": 1, "part": "0", "records": [], "tokens": [], "position": 0}
        others = {"/journal/advance": {"start": 1, "end": 2}}
        for path in JOURNAL_PATHS:
            error = self.assertRaises(
                BrokerError, ask, broker, broker.brokerClient, path, others.get(path, arguments), self.fail
            )
            self.assertEqual(int(error.status), 503, path)

    def test_largeArguments(self) -> None:
        """Only what is staged, and the tokens of that, may be as large as a message."""
        packed = msgpack.packb({"x": "y" * ARGUMENT_BYTES})
        for path in JOURNAL_PATHS:
            if path in ("/sink/stage", "/sink/commit"):
                self.assertEqual(path_table.readArguments(self.broker, self.client, path, packed), {})
            else:
                self.assertRaises(BadRequest, path_table.readArguments, self.broker, self.client, path, packed)

    def test_keys(self) -> None:
        """Integers are no keys of arguments, at any depth: a client could choose them to collide."""
        for path in JOURNAL_PATHS:
            self.assertRaises(BadRequest, path_table.readArguments, self.broker, self.client, path, b"\x81\x01\x02")
        for path in ("/journal/read", "/journal/bounds"):
            self.assertRaises(
                BadRequest, path_table.readArguments, self.broker, self.client, path, b"\x81\xa1a\x91\x81\x01\x02"
            )

    def test_cost(self) -> None:
        """16 MiB of arguments that cannot be read at low cost are refused or skipped; measured: at most 50 ms."""
        size = 1 << 24
        announced = b"\xdd" + size.to_bytes(4, "big")
        for path, head in [
            ("/sink/stage", b"\x81\xa1x"),
            ("/sink/stage", b"\x81\xa7records"),
            ("/sink/stage", b"\x81\xa7records\x91\x81\xa5value"),
            ("/sink/stage", b"\x81\xa7records\x91\x81\xa7headers"),
            ("/sink/commit", b"\x81\xa6tokens"),
        ]:
            for item in (b"\x90", b"\x80", b"\xa0"):
                packed = head + announced + item * size

                def read(path: str = path, packed: bytes = packed) -> None:
                    with contextlib.suppress(BadRequest):
                        path_table.readArguments(self.broker, self.client, path, packed)

                self.assertLess(processorSeconds(read), 0.4, (head, item))


class SinkTests(JournalPathCase):
    """Records that become visible all at once."""

    def setUp(self) -> None:
        """Somebody subscribes."""
        super().setUp()
        self.bob = Collector()
        other = self.broker.join("any")
        for topic in ("d.t", "u"):
            self.broker.subscribe(other, self.bob, topic)

    def stage(self, *values: Any, topic: str = "d.t", batch: int = 1, part: str = "0", **more: Any) -> str:
        """Stage these, and return the token."""
        records = [{"topic": topic, "value": value} | more for value in values]
        self.askLater("/sink/stage", query="q", batch=batch, part=part, records=records)
        self.journal.commit()
        token: str = self.answers.pop()["token"]
        return token

    def commit(self, *tokens: str, batch: int = 1) -> Any:
        """Commit these, and return the answer."""
        self.askLater("/sink/commit", query="q", batch=batch, tokens=list(tokens))
        self.journal.commit()
        return self.answers.pop()

    def values(self) -> list[Any]:
        """Return what the subscriber got."""
        return [msgpack.unpackb(payload) for payload in self.bob.payloads()]

    def test_commit(self) -> None:
        """What was staged is brought when it is committed, parts in the order of their tokens, with offsets."""
        first, second = self.stage(1, 2), self.stage(3, topic="u", part="1")
        self.assertEqual(self.bob.messages, [])
        self.assertEqual(self.commit(second, first), {"offset": 1})
        self.assertEqual(self.values(), [3, 1, 2])
        self.assertEqual([message.offset for message in self.bob.messages], [1, 2, 3])
        self.assertEqual([record.offset for record in self.journal.records], [1, 2, 3])

    def test_waits(self) -> None:
        """Both answers come when it is on disk."""
        self.askLater("/sink/stage", query="q", batch=1, part="0", records=[{"topic": "d.t", "value": 1}])
        self.assertEqual(self.answers, [])
        self.journal.commit()
        token = self.answers.pop()["token"]
        self.askLater("/sink/commit", query="q", batch=1, tokens=[token])
        self.assertEqual((self.answers, self.bob.messages), ([], []))

    def test_again(self) -> None:
        """A repeated commit gives the same answer and brings nothing."""
        token = self.stage(1)
        self.assertEqual([self.commit(token) for _ in range(3)], [{"offset": 1}] * 3)
        self.assertEqual(self.values(), [1])

    def test_againAtOnce(self) -> None:
        """Nor does a repeat that comes before the first is on disk."""
        token = self.stage(1)
        for _ in range(2):
            self.askLater("/sink/commit", query="q", batch=1, tokens=[token])
        self.journal.commit()
        self.assertEqual(self.answers, [{"offset": 1}] * 2)
        self.assertEqual(self.values(), [1])

    def test_nothing(self) -> None:
        """A batch may be empty."""
        self.assertEqual(self.commit(), {"offset": 1})
        self.keep("a")
        self.assertEqual(self.bob.payloads(), [b"a"])

    def test_inOrder(self) -> None:
        """What is committed behind it comes behind it, though it has to be read back."""
        token = self.stage(1, 2)
        other = self.stage(3, batch=2)
        self.journal.patient = True
        self.keep("0")
        self.commit(token)
        self.keep("a")
        self.commit(other, batch=2)
        self.keep("b")
        self.assertEqual(self.bob.payloads(), [b"0"])
        while self.journal.asked:
            self.journal.answer()
        self.assertEqual(self.bob.payloads(), [b"0", b"\x01", b"\x02", b"a", b"\x03", b"b"])

    def test_inPortions(self) -> None:
        """Much is read back in portions."""
        token = self.stage(*([b"x" * 100_000] * 30))
        self.commit(token)
        self.assertEqual(len(self.bob.messages), 30)
        self.assertGreater(self.journal.reads, 2)

    def test_headers(self) -> None:
        """Further keys of the header are kept, but for those that are the broker's."""
        headers = {"key": b"k", "message_id": "m", "topic": "x", "offset": 1, "routing": [], "status": 500}
        headers["delivery"] = {"queue": "jobs", "tag": 14, "attempt": 1}
        self.commit(self.stage(1, headers=headers))
        [record] = self.journal.records
        self.assertEqual(msgpack.unpackb(record.header), {"key": b"k", "message_id": "m"})
        self.assertEqual(self.bob.messages[0].message_id, "m")
        self.assertEqual(self.bob.messages[0].content, Content.MESSAGEPACK)

    def test_malformedHeaders(self) -> None:
        """Headers that no subscriber could read are refused, as in a PUB."""
        for headers in (
            b"\x81\xa1\xff\x01", b"\x81\xa1a\xa1\xff", b"\x81\xa1a\x81\xa1\xff\x01", b"\x81\xaamessage_id\xa1\xff",
            b"\x81\xa1a\x81\x01\x02", b"\x81\xa1a\x81\x90\x02", b"\x82\xa1a\x01\xa1a\x02",
            b"\x81\xa1a\x82\xa1b\x01\xa1b\x02",
            b"\x81\xa1a" + b"\x91" * 300 + b"\xa1\xff", b"\x81\xa1a\xd7\xff" + b"\xff" * 8, b"\x81\xc4\x01a\x01",
        ):  # fmt: skip
            record = b"\x83\xa5topic\xa3d.t\xa5value\x01\xa7headers" + headers
            packed = msgpack.packb({"query": "q", "batch": 1, "part": "0"}) + b"\xa7records\x91" + record
            arguments = path_table.readArguments(self.broker, self.client, "/sink/stage", b"\x84" + packed[1:])
            path_table.answer(self.broker, self.client, "/sink/stage", arguments, self.answers.append)
            self.assertIsInstance(self.answers.pop(), BadRequest, headers)

    def test_payload(self) -> None:
        """A payload in place of a value is kept as it is, and stays what its content says."""
        kept = [(b"\xca\x00\x00\x00\x00", 0x100), (b"\xff", 1), (b"a\rb", 0x502), (b"", 0x102), (b"\xc1", 0)]
        records = [{"topic": "d.t", "payload": payload, "content": content} for payload, content in kept]
        self.askLater("/sink/stage", query="q", batch=1, part="0", records=records)
        self.journal.commit()
        self.commit(self.answers.pop()["token"])
        self.assertEqual([(message.payload, contentOf(message)) for message in self.bob.messages], kept)

    def test_malformedPayload(self) -> None:
        """It has to be bytes that are what its content says, in place of a value and not beside it."""
        for wrong in ({"payload": b""}, {"payload": "a", "content": 2}, {"payload": b"", "content": 3},
                      {"payload": b"", "content": True}, {"payload": b"", "content": "text"},
                      {"payload": b"\xff", "content": 2}, {"payload": b"", "content": 0, "value": 1}):  # fmt: skip
            records = [{"topic": "d.t", **wrong}]
            self.assertRaises(BadRequest, self.ask, "/sink/stage", query="q", batch=1, part="0", records=records)

    def test_manyRuns(self) -> None:
        """Many records are read and staged in slices, and published in their order by one token of the answer."""
        records = [{"topic": f"u{each % 3}", "value": each} for each in range(700)]
        self.askLater("/sink/stage", query="q", batch=1, part="0", records=records)
        self.journal.commit()
        self.assertEqual(self.answers, [])
        self.clock.pump([0] * 10)
        self.journal.commit()
        self.assertEqual(self.commit(self.answers.pop()["token"]), {"offset": 1})
        self.assertEqual([msgpack.unpackb(record.payload) for record in self.journal.records], list(range(700)))

    def test_manyRunsMalformed(self) -> None:
        """Nothing is staged of a part with a malformed record at its end."""
        records: list[Any] = [{"topic": f"u{each % 3}", "value": each} for each in range(700)]
        self.askLater(
            "/sink/stage", query="q", batch=1, part="0", records=[*records, {"topic": "u", "value": 1, "payload": b""}]
        )
        self.clock.pump([0] * 10)
        self.assertLater(400)
        self.assertEqual(self.journal.stagedTopics("q", 1), set())

    def test_longRuns(self) -> None:
        """Neighbouring records of one topic are one run, up to a number."""
        self.patch(journal_paths, "_RUN_RECORDS", 3)
        self.assertEqual(self.commit(self.stage(*range(8))), {"offset": 1})
        self.assertEqual(self.values(), list(range(8)))

    def test_abort(self) -> None:
        """What is aborted cannot be committed any more: 409."""
        token = self.stage(1)
        self.assertEqual(self.ask("/sink/abort", query="q", batch=1), {})
        self.askLater("/sink/commit", query="q", batch=1, tokens=[token])
        self.assertLater(409)

    def test_unknownToken(self) -> None:
        """Nor can what was never staged, or for another batch."""
        self.askLater("/sink/commit", query="q", batch=2, tokens=[self.stage(1)])
        self.assertLater(409)

    def test_readOnly(self) -> None:
        """While nothing is kept, neither is this: 503."""
        token = self.stage(1)
        self.journal.readOnly = "the disk is full"
        error = self.assertRaises(BrokerError, self.ask, "/sink/commit", query="q", batch=1, tokens=[token])
        self.assertEqual(int(error.status), 503)
        self.askLater("/sink/stage", query="q", batch=1, part="0", records=[])
        self.assertLater(503)

    def test_refused(self) -> None:
        """If the disk fails meanwhile, that is the answer, and nothing is brought."""
        token = self.stage(1)
        self.askLater("/sink/commit", query="q", batch=1, tokens=[token])
        self.journal.readOnly = "the disk is full"
        self.journal.commit("the disk is full")
        self.assertLater(503)
        self.assertEqual(self.bob.messages, [])

    def test_forbidden(self) -> None:
        """Only the broker publishes to its own topics, and a topic has a name."""
        for topic, error in (("$sys/x", Forbidden), ("$dead/x", Forbidden), ("", InvalidTopic)):
            records = [{"topic": topic, "value": 1}]
            self.assertRaises(error, self.ask, "/sink/stage", query="q", batch=1, part="0", records=records)

    def test_malformed(self) -> None:
        """Whatever has a wrong type is refused."""
        good = {"query": "q", "batch": 1, "part": "0", "records": [{"topic": "t", "value": 1}]}
        deep: Any = 1
        for _ in range(NESTING):
            deep = [deep]
        wrong: dict[str, Any]
        for wrong in ({"query": ""}, {"query": 1}, {"query": "q" * (NAME_BYTES + 1)}, {"batch": -1}, {"batch": "1"},
                      {"batch": None}, {"part": ""}, {"part": 0}, {"records": {}}, {"records": [1]},
                      {"records": [{"topic": "t"}]}, {"records": [{"value": 1}]},
                      {"records": [{"topic": 1, "value": 1}]},
                      {"records": [{"topic": "t", "value": 1, "headers": [1]}]},
                      {"records": [{"topic": "t", "value": 1, "headers": {1: 1}}]},
                      {"records": [{"topic": "t", "value": 1, "headers": {"message_id": 1}}]},
                      {"records": [{"topic": "t", "value": 1, "headers": {"x": "x" * 65536}}]},
                      {"records": [{"topic": "t", "value": 1, "headers": {"x": deep}}]}):  # fmt: skip
            self.assertRaises(BadRequest, self.ask, "/sink/stage", **(good | wrong))
        tokens: Any
        for tokens in (None, "1", [1], {}):
            self.assertRaises(BadRequest, self.ask, "/sink/commit", query="q", batch=1, tokens=tokens)
        self.assertRaises(BadRequest, self.ask, "/sink/abort", query="q")

    def test_values(self) -> None:
        """A value is any that MessagePack has."""
        values = [None, True, 1.5, "text", b"bytes", [1, [2]], {"a": {"b": None}}, 1 << 63]
        self.commit(self.stage(*values))
        self.assertEqual(self.values(), values)

    def test_queues(self) -> None:
        """Queues get what is committed as anybody does."""
        consumer = self.broker.join("minimq")
        self.assertIsNone(self.broker.consume(consumer, "d.t"))
        self.commit(self.stage("job"))
        found = self.broker.consume(consumer, "d.t")
        assert found is not None
        self.assertEqual(found.message[:2], Message(msgpack.packb("job"), Content.MESSAGEPACK)[:2])
