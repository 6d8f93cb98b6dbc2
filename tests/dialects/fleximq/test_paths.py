"""Broker paths whose answers come later, over FlexiMQ."""

import msgpack

from fleximq.broker.envelope import BROKER_ID
from fleximq.broker.paths.path_table import ARGUMENT_BYTES
from fleximq.dialects.fleximq.messages import LARGE_REQUEST, QUESTIONS, VALUE_QUESTIONS
from tests.dialects.flexi_peer import FlexiCase
from tests.slow_journal import SlowJournal


class PathCase(FlexiCase):
    """A client, and a journal that takes its time."""

    def setUp(self) -> None:
        """Begin with a journal that answers when it is told to."""
        super().setUp()
        self.journal = SlowJournal()
        self.journal.patient = True
        self.server = self.makeServer(journal=self.journal, durable=("d.#",))
        self.alice = self.server.join()

    def ask(self, id: str, path: str = "/journal/read", **arguments: object) -> None:
        """Ask the broker."""
        self.alice.request(BROKER_ID, path, id, arguments or {"position": 0})

    def answer(self, number: int = 1) -> None:
        """Let so many be answered."""
        self.journal.answer(number)
        self.clock.advance(0)


class LatePathTests(PathCase):
    """A client asks for bytes of the journal."""

    def test_later(self) -> None:
        """The answer comes when it is there, correlated; what is said behind the question does not wait."""
        self.ask("r")
        self.assertEqual(self.alice.barrier(), [])
        self.answer()
        [heard] = self.alice.messages()
        header = {
            "status": 200,
            "routing": [{"client_id": self.alice.id, "path": "/journal/read"}],
            "reqrep": {"type": "correlation", "id": "r"},
        }
        self.assertEqual((heard.kind, heard.sender, heard.header), ("REP", 1, header))
        self.assertEqual(heard.value, {"position": 0, "data": b"", "end": 0, "next": 0, "journal": self.journal.id})

    def test_large(self) -> None:
        """Much that was read goes out as it is, and the answer is one message like any other; behind it comes more."""
        data = bytes(range(256)) * 1024
        self.journal.readBytes = lambda position, most, found: found(8, memoryview(data), 9)  # type: ignore[method-assign]
        self.ask("r")
        self.ask("s", "/journal/bounds")
        [heard] = [each for each in self.alice.messages() if each.header["reqrep"]["id"] == "r"]
        end = 8 + len(data)
        self.assertEqual(heard.value, {"position": 8, "end": 9, "next": end, "journal": self.journal.id, "data": data})

    def test_error(self) -> None:
        """An error that comes later is answered as any other."""
        self.journal.reopen = lambda found: found("the disk is full")  # type: ignore[method-assign]
        self.ask("r", "/journal/reopen")
        [heard] = self.alice.messages()
        self.assertError(heard, self.alice, 503, "r", "/journal/reopen")

    def test_leaves(self) -> None:
        """Whoever has left by then is not answered."""
        self.ask("r")
        self.alice.leave()
        self.answer()
        self.assertEqual(self.alice.heard(), b"")

    def test_halfClosed(self) -> None:
        """Who ends its input gets its answers still, then the connection ends."""
        for id in "ab":
            self.ask(id)
        self.alice.endInput()
        self.answer()
        self.assertFalse(self.alice.closed)
        self.answer()
        self.assertTrue(self.alice.closed)
        self.assertEqual([each.status for each in self.alice.messages()], [200, 200])

    def test_many(self) -> None:
        """Only so many may be unanswered: 429; then more can be asked."""
        for number in range(QUESTIONS):
            self.ask(str(number))
        self.assertEqual(self.alice.messages(), [])
        self.ask("over")
        [heard] = self.alice.messages()
        self.assertError(heard, self.alice, 429, "over", "/journal/read")
        self.answer()
        self.ask("again")
        self.answer(QUESTIONS)
        self.assertEqual([each.status for each in self.alice.messages()], [200] * (QUESTIONS + 1))

    def test_refusedOnes(self) -> None:
        """Those that are refused do not count."""
        for _ in range(QUESTIONS + 1):
            self.ask("r", position="x")
        self.assertEqual({each.status for each in self.alice.messages()}, {400})
        self.ask("r")
        self.assertEqual(self.alice.messages(), [])


class ValuePathTests(FlexiCase):
    """A client that waits for values."""

    def test_manyReadersOfOneClientWait(self) -> None:
        """Up to a number, then 429; all are answered when the value is there, also on the way to other requests."""
        server = self.makeServer()
        alice, bob = server.join(), server.join()
        for number in range(VALUE_QUESTIONS):
            alice.request(BROKER_ID, "/value/get", str(number), {"keys": ["a"], "wait": 60_000})
        self.assertEqual(alice.messages(), [])
        alice.request(BROKER_ID, "/value/get", "over", {"keys": ["a"], "wait": 60_000})
        [heard] = alice.messages()
        self.assertError(heard, alice, 429, "over", "/value/get")
        self.assertEqual(alice.barrier(), [])
        alice.request(BROKER_ID, "/broker/about", "other", {})
        self.assertEqual([each.status for each in alice.messages()], [200])
        bob.request(BROKER_ID, "/value/put", "p", {"key": "a", "value": b"x"})
        self.assertEqual([each.status for each in bob.messages()], [200])
        answers = alice.messages()
        self.assertEqual(len(answers), VALUE_QUESTIONS)
        self.assertEqual({bytes(each.value["values"]["a"][1]) for each in answers}, {b"x"})

    def test_aValueAsLargeAsAMessage(self) -> None:
        """More than the arguments of other paths may have."""
        alice = self.makeServer().join()
        alice.request(BROKER_ID, "/value/put", "p", {"key": "a", "value": bytes(3 << 20)})
        alice.request(BROKER_ID, "/value/get", "g", {"keys": ["a"]})
        _, found = alice.messages()
        self.assertEqual(found.value["values"]["a"][1], bytes(3 << 20))


class StagingTests(PathCase):
    """A client stages records."""

    def test_sizes(self) -> None:
        """Arguments are small, but for what is staged."""
        room = ARGUMENT_BYTES - len(msgpack.packb({"position": 0, "x": b""})) - 1
        self.ask("r", position=0, x=b"x" * room)
        self.assertEqual(self.alice.messages(), [])
        self.ask("r", position=0, x=b"x" * (room + 1))
        self.assertEqual([each.status for each in self.alice.messages()], [400])
        records = [{"topic": "d.t", "value": b"x" * ARGUMENT_BYTES}]
        self.ask("s", "/sink/stage", query="q", batch=1, part="0", records=records)
        self.journal.commit()
        self.clock.advance(0)
        [heard] = self.alice.messages()
        self.assertEqual((heard.status, heard.value), (200, {"token": "1"}))
        self.ask("c", "/sink/commit", query="q", batch=1, tokens=["1" * 12] * 10_000)
        [heard] = self.alice.messages()
        self.assertEqual(heard.status, 409)

    def test_largeOnes(self) -> None:
        """A client is not read while an answer to a large request is due; to a small one it is."""
        for size, paused in ((100, False), (LARGE_REQUEST, True)):
            records = [{"topic": "d.t", "value": b"x" * size}]
            self.ask("s", "/sink/stage", query="q", batch=1, part="0", records=records)
            self.assertEqual(self.alice.paused, paused)
            self.journal.commit()
            self.clock.advance(0)
            self.assertEqual(([each.status for each in self.alice.messages()], self.alice.paused), ([200], False))
        self.ask("s", "/sink/stage", query="q", batch=1, part="0", records=[{"topic": "", "value": b"x" * size}])
        self.assertEqual(([each.status for each in self.alice.messages()], self.alice.paused), ([400], False))

    def test_sinkHeaders(self) -> None:
        """FlexiMQ subscribers get all keys that a sink gave, with and without offsets."""
        plain, follower = self.server.join(), self.server.join()
        plain.subscribe("d.t")
        follower.tell("SUB", {"topic": "d.t", "from": "first"})
        records = [{"topic": "d.t", "value": 1, "headers": {"key": "k", "colour": "red"}}]
        self.ask("s", "/sink/stage", query="q", batch=1, part="0", records=records)
        self.journal.commit()
        self.ask("c", "/sink/commit", query="q", batch=1, tokens=["1"])
        self.journal.commit()
        self.answer()
        header = {"topic": "d.t", "key": "k", "colour": "red"}
        for peer, more in ((plain, {}), (follower, {"stored_at": 1000, "offset": 1})):
            [heard] = peer.messages()
            self.assertEqual((heard.sender, heard.header, heard.value), (1, header | more, 1))
