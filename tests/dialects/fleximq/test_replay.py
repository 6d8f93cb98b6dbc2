"""FlexiMQ subscriptions that begin in the past."""

from typing import Any

import msgpack

from fleximq.broker.envelope import Envelope, MessageSource
from fleximq.limits import Limits
from fleximq.values.message import Content, Message
from tests.dialects.flexi_peer import FlexiCase, FlexiPeer, FlexiServer
from tests.slow_journal import SlowJournal
from tests.wire.flexi_frames import frame
from tests.wire.flexi_variants import LAYOUT_B


class ReplayCase(FlexiCase):
    """A server with a journal that keeps ``d.#``, a publisher and a reader."""

    def setUp(self) -> None:
        """Begin with an empty journal that reads at once."""
        super().setUp()
        self.meet()

    def meet(self, **settings: Any) -> None:
        """Begin anew."""
        self.journal = SlowJournal()
        self.server: FlexiServer = self.makeServer(journal=self.journal, **({"durable": ("d.#",)} | settings))
        self.alice = self.server.join()
        self.bob = self.server.join()

    def keep(self, *values: Any, topic: str = "d.t", by: FlexiPeer | None = None) -> None:
        """Publish these and let them be committed."""
        for value in values:
            (by or self.alice).publish(topic, value)
        self.journal.commit()
        self.settle()

    def settle(self) -> None:
        """Let everything happen that waits for the reactor."""
        for _ in range(50):
            self.clock.advance(0)

    def follow(self, start: Any, topic: str = "d.t", by: FlexiPeer | None = None) -> None:
        """Subscribe from a place on."""
        (by or self.bob).tell("SUB", {"topic": topic, "from": start})
        self.settle()

    def got(self, peer: FlexiPeer | None = None) -> list[tuple[int | None, Any]]:
        """Return offset and value of what came, which must be nothing but PUBs."""
        heard = (peer or self.bob).messages()
        self.assertEqual({each.kind for each in heard} - {"PUB"}, set(), heard)
        return [(each.header.get("offset"), each.value) for each in heard]


class LargeRunTests(ReplayCase):
    """A run that is passed on as a view of its read."""

    def test_everyForm(self) -> None:
        """It arrives in each layout, live and with offsets, and is recorded."""
        carol, dave = self.server.join().subscribe("d.t"), self.server.connect()
        dave.variant = LAYOUT_B
        dave.join()
        dave.subscribe("d.t")
        self.keep("warm")
        self.follow("first")
        values = [bytes([number]) * 5000 for number in range(20)]
        self.alice.say(b"".join(frame("PUB", self.alice.id, {"topic": "d.t"}, msgpack.packb(each)) for each in values))
        self.journal.commit()
        self.settle()
        expected = list(enumerate(["warm", *values], 1))
        self.assertEqual(self.got(), expected)
        for peer in (carol, dave):
            self.assertEqual(self.got(peer), [(None, value) for _, value in expected])
        self.follow("first", by=self.alice)
        self.assertEqual(self.got(self.alice), expected)


class StartTests(ReplayCase):
    """Where a subscription begins."""

    def setUp(self) -> None:
        """Four messages of two topics."""
        super().setUp()
        self.journal.now = 1_000_000
        self.keep("a", "b")
        self.journal.now = 2_000_000
        self.keep("x", topic="d.u")
        self.keep("c")

    def test_first(self) -> None:
        """``first`` brings everything, then what comes."""
        self.follow("first")
        self.keep("d")
        self.assertEqual(self.got(), [(1, "a"), (2, "b"), (4, "c"), (5, "d")])

    def test_last(self) -> None:
        """``last`` brings the last that is kept, then what comes."""
        self.follow("last")
        self.keep("d")
        self.assertEqual(self.got(), [(4, "c"), (5, "d")])

    def test_offset(self) -> None:
        """An offset brings that message first, or the next one of the topic."""
        for offset, values in ((1, "abc"), (2, "bc"), (3, "c"), (4, "c"), (5, "")):
            reader = self.server.join()
            self.follow(offset, by=reader)
            self.assertEqual([value for _, value in self.got(reader)], list(values))

    def test_beyond(self) -> None:
        """An offset beyond the end means from now on."""
        self.follow(1 << 63)
        self.keep("d")
        self.assertEqual(self.got(), [(5, "d")])

    def test_time(self) -> None:
        """A time brings what was kept then or later."""
        for time, values in ((0, "abc"), (1000, "abc"), (1001, "c"), (2000, "c"), (2001, ""), ((1 << 64) - 1, "")):
            reader = self.server.join()
            self.follow({"time": time}, by=reader)
            self.assertEqual([value for _, value in self.got(reader)], list(values), time)

    def test_timeThenLive(self) -> None:
        """What comes while a time is being looked up comes once, in order."""
        self.journal.patient = True
        self.follow({"time": 2000})
        self.keep("d")
        self.assertEqual(self.got(), [])
        while self.journal.asked:
            self.journal.answer()
            self.settle()
        self.keep("e")
        self.assertEqual(self.got(), [(4, "c"), (5, "d"), (6, "e")])

    def test_empty(self) -> None:
        """Of a durable topic that has nothing, all that comes is brought, wherever it was to begin."""
        for start in ("first", "last", 0, 1, 3, {"time": 0}):
            self.meet()
            self.keep("x", topic="d.u")
            self.follow(start)
            self.keep("a")
            self.assertEqual(self.got(), [(2, "a")], start)

    def test_header(self) -> None:
        """The publisher's pairs are there as they were sent, then topic, time and offset, and its own id."""
        self.alice.tell("PUB", {"colour": "red", "topic": "d.t", "key": b"k"}, "k")
        self.journal.commit()
        self.follow(5)
        self.keep("e")
        first, second = self.bob.messages()
        self.assertEqual(first.header, {"colour": "red", "topic": "d.t", "key": b"k", "stored_at": 2000, "offset": 5})
        self.assertEqual((first.sender, second.sender), (self.alice.id, self.alice.id))
        self.assertEqual(second.header, {"topic": "d.t", "stored_at": 2000, "offset": 6})
        self.assertEqual(list(first.header)[-1], "offset")

    def test_ownOffset(self) -> None:
        """A publisher's keys ``offset`` and ``stored_at`` are not mistaken for the journal's, replayed or live."""
        self.follow(5)
        self.alice.tell("PUB", {"topic": "d.t", "offset": "mine", "stored_at": "mine"}, "k")
        self.journal.commit()
        self.settle()
        self.follow(5)
        self.assertEqual(
            [each.header for each in self.bob.messages()], [{"topic": "d.t", "stored_at": 2000, "offset": 5}] * 2
        )

    def test_restart(self) -> None:
        """A subscription that is held begins anew at the place that is named."""
        self.follow("first")
        self.got()
        self.follow(2)
        self.assertEqual(self.got(), [(2, "b"), (4, "c")])
        self.keep("d")
        self.assertEqual(self.got(), [(5, "d")])

    def test_afterPlain(self) -> None:
        """One that is held without a place becomes one that has offsets."""
        self.bob.subscribe("d.t")
        self.follow("last")
        self.keep("d")
        self.assertEqual(self.got(), [(4, "c"), (5, "d")])

    def test_plainAfter(self) -> None:
        """A SUB without a place changes nothing where one with a place is held."""
        self.follow("last")
        self.bob.subscribe("d.t")
        self.keep("d")
        self.assertEqual(self.got(), [(4, "c"), (5, "d")])

    def test_unsubscribe(self) -> None:
        """UNSUB ends it, before, during and after the past."""
        self.follow("first")
        self.got()
        self.bob.tell("UNSUB", {"topic": "d.t"})
        self.keep("d")
        self.assertEqual(self.got(), [])
        self.bob.tell("SUB", {"topic": "d.t", "from": "first"})
        self.journal.patient = True
        self.bob.tell("UNSUB", {"topic": "d.t"})
        self.settle()
        self.keep("e")
        self.bob.messages()
        self.follow("first")
        self.bob.tell("UNSUB", {"topic": "d.t"})
        self.journal.answer(self.journal.asked)
        self.settle()
        self.assertEqual(self.got(), [])

    def test_ownMessages(self) -> None:
        """A publisher follows itself as anybody does, and its PONG comes behind its messages."""
        self.follow("last", by=self.alice)
        self.got(self.alice)
        self.alice.publish("d.t", "own").ping()
        self.assertEqual(self.alice.messages(), [])
        self.journal.commit()
        self.settle()
        self.assertEqual([each.kind for each in self.alice.messages()], ["PUB", "PONG"])

    def test_dialects(self) -> None:
        """What other dialects published comes as it does live: its payload as MessagePack, ids in the header."""
        self.follow("last")
        self.got()
        server = self.server
        foreign = server.foreign()
        topic = server.broker.topicFor(foreign, "d.t")
        body = [Message(b"text", Content.TEXT, message_id="m1"), Message(b"\xff", Content.BYTES)]
        server.broker.publish(Envelope(topic, foreign, MessageSource()), body, 2)
        self.journal.commit()
        self.settle()
        live = [(each.header, each.value, each.sender) for each in self.bob.messages()]
        self.follow(5)
        replayed = [(each.header, each.value, each.sender) for each in self.bob.messages()]
        self.assertEqual(live, replayed)
        self.assertEqual(
            live,
            [
                ({"topic": "d.t", "message_id": "m1", "stored_at": 2000, "offset": 5}, "text", foreign.id),
                ({"topic": "d.t", "stored_at": 2000, "offset": 6}, b"\xff", foreign.id),
            ],
        )


class RefusalTests(ReplayCase):
    """What cannot be."""

    def test_malformed(self) -> None:
        """A malformed place: 400, and nothing is subscribed."""
        for start in ("", "FIRST", "5", -1, 1.0, 1 << 64, True, None, b"first", [], [1], {}, {"time": -1},
                      {"time": "5"}, {"time": True}, {"time": 5.0}, {"time": 1, "x": 2}, {"offset": 1}):  # fmt: skip
            try:
                self.follow(start)
            except OverflowError:
                continue
            [heard] = self.bob.messages()
            self.assertError(heard, self.bob, 400)
        self.keep("a")
        self.assertEqual(self.got(), [])

    def test_unsubIgnores(self) -> None:
        """In other types the key means nothing."""
        self.bob.tell("UNSUB", {"topic": "d.t", "from": -1})
        self.bob.tell("PUB", {"topic": "t", "from": -1}, 1)
        self.assertEqual(self.bob.barrier(), [])

    def test_notDurable(self) -> None:
        """A topic that is not durable: 603; so are the broker's own."""
        for topic in ("t", "$sys/clients/joined", "d"):
            durable = topic == "d"
            self.follow("first", topic)
            heard = self.bob.messages()
            self.assertEqual([each.header.get("status") for each in heard], [] if durable else [603], topic)

    def test_noJournal(self) -> None:
        """Without a journal no subscription can begin in the past: 603."""
        self.server = self.makeServer(durable=("d.#",))
        bob = self.server.join()
        for topic in ("d.t", "d.#"):
            bob.tell("SUB", {"topic": topic, "from": "first"})
            [heard] = bob.messages()
            self.assertError(heard, bob, 603)

    def test_badTopic(self) -> None:
        """An empty or too long topic, and a pattern of too many levels: 603."""
        for topic in ("", "d" * 1025, "*." * 32 + "*"):
            self.follow("first", topic)
            [heard] = self.bob.messages()
            self.assertError(heard, self.bob, 603)

    def test_gone(self) -> None:
        """Below the first offset that is kept: 404 with that offset; there it can begin."""
        self.keep("a", "b", "c")
        self.journal.forget(3)
        self.follow(2)
        [heard] = self.bob.messages()
        self.assertEqual((heard.kind, heard.header["status"]), ("REP", 404))
        self.assertEqual(heard.value["first"], 3)
        self.assertIsInstance(heard.value["error"], str)
        self.keep("d")
        self.assertEqual(self.got(), [])
        self.follow(heard.value["first"])
        self.assertEqual(self.got(), [(3, "c"), (4, "d")])

    def test_goneKeeps(self) -> None:
        """What is held under the name stays as it was."""
        self.keep("a", "b", "c")
        self.follow("last")
        self.got()
        self.journal.forget(3)
        self.follow(1)
        self.assertEqual([each.header["status"] for each in self.bob.messages()], [404])
        self.keep("d")
        self.assertEqual(self.got(), [(4, "d")])

    def test_overtaken(self) -> None:
        """What retention takes before it was read ends the subscription, with 404 and the path of its topic."""
        self.keep("a", "b", "c")
        self.journal.patient = True
        self.follow(1)
        self.journal.forget(3)
        self.journal.answer()
        self.settle()
        [heard] = self.bob.messages()
        self.assertEqual((heard.header["status"], heard.value["first"]), (404, 3))
        self.assertEqual(heard.header["routing"], [{"client_id": self.bob.id, "path": "d.t"}])
        self.journal.patient = False
        self.keep("d")
        self.assertEqual(self.got(), [])

    def test_notOvertaken(self) -> None:
        """What retention takes behind a reader does not concern it."""
        self.keep("a", "b", "c")
        self.journal.patient = True
        self.follow(3)
        self.journal.forget(3)
        self.journal.answer()
        self.settle()
        self.assertEqual(self.got(), [(3, "c")])

    def test_unreadable(self) -> None:
        """A journal that cannot be read ends the subscription with 500."""
        self.keep("a")
        self.journal.read = lambda offset, wanted, most, found: found([], offset)  # type: ignore[method-assign]
        self.follow("first")
        [heard] = self.bob.messages()
        self.assertEqual(heard.header["status"], 500)
        self.keep("b")
        self.assertEqual(self.got(), [])


class PatternTests(ReplayCase):
    """Wildcards, and subscriptions that overlap."""

    def setUp(self) -> None:
        """Messages of several topics, one of which is not durable."""
        super().setUp()
        for value, topic in enumerate(("d.a", "d.b", "n.a", "d/a", "d.a.x"), 1):
            self.keep(value, topic=topic)

    def test_pattern(self) -> None:
        """A pattern brings the durable topics that match, in the order of offsets; others it does not."""
        self.follow("first", "*.a")
        self.keep(6, topic="n.a")
        self.keep(7, topic="d.a")
        self.assertEqual(self.got(), [(1, 1), (3, 4), (5, 7)])

    def test_last(self) -> None:
        """``last`` of a pattern is the last message of all."""
        self.follow("last", "d.*")
        self.assertEqual(self.got(), [(3, 4)])

    def test_newTopic(self) -> None:
        """A topic that comes into being later is brought too."""
        self.follow("last", "d.#")
        self.keep("new", topic="d.new")
        self.assertEqual(self.got(), [(4, 5), (5, "new")])

    def test_gone(self) -> None:
        """Of a pattern's topics the oldest counts."""
        self.journal.forget(2)
        self.follow(1, "d.#")
        [heard] = self.bob.messages()
        self.assertEqual((heard.header["status"], heard.value["first"]), (404, 2))
        self.follow(2, "d.#")
        self.assertEqual(self.got(), [(2, 2), (3, 4), (4, 5)])

    def test_overlapping(self) -> None:
        """Subscriptions that overlap bring one copy of each offset, replayed and live."""
        self.journal.patient = True
        for topic in ("d.a", "d.*", "d.#"):
            self.follow("first", topic)
        self.journal.patient = False
        self.journal.answer(self.journal.asked)
        self.settle()
        self.keep(6, topic="d.a")
        self.assertEqual(self.got(), [(1, 1), (2, 2), (3, 4), (4, 5), (5, 6)])

    def test_different(self) -> None:
        """Each begins where it was told to."""
        self.journal.patient = True
        self.follow("first", "d.b")
        self.follow(3, "d.a")
        self.follow(4, "d.a.x")
        self.journal.patient = False
        self.journal.answer(self.journal.asked)
        self.settle()
        self.assertEqual(self.got(), [(2, 2), (4, 5)])
        self.keep(6, topic="d.a")
        self.assertEqual(self.got(), [(5, 6)])

    def test_withPlain(self) -> None:
        """What a subscription with a place brings comes with its offset, and once, though another matches."""
        for first in (True, False):
            bob = self.server.join()
            if first:
                bob.subscribe("#")
            self.follow("last", "d.a", by=bob)
            if not first:
                bob.subscribe("#")
            self.got(bob)
            end = self.journal.end
            self.keep("a", topic="d.a")
            self.keep("b", topic="d.b")
            self.keep("n", topic="n.a")
            self.assertEqual(self.got(bob), [(end, "a"), (None, "b"), (None, "n")])
            bob.tell("UNSUB", {"topic": "d.a"})
            self.keep("c", topic="d.a")
            self.assertEqual(self.got(bob), [(None, "c")])

    def test_unsubscribeOne(self) -> None:
        """The end of one leaves the others."""
        self.follow("last", "d.a")
        self.follow("last", "d.*")
        self.got()
        self.bob.tell("UNSUB", {"topic": "d.*"})
        self.keep(6, topic="d.a")
        self.keep(7, topic="d.b")
        self.assertEqual(self.got(), [(5, 6)])

    def test_narrowed(self) -> None:
        """What is meant for few is not kept, and comes at once without an offset to those who follow."""
        self.follow("last", "d.a")
        self.got()
        self.alice.tell("PUB", {"topic": "d.a", "routing": [{"client_id": self.bob.id}]}, 1)
        self.assertEqual(self.got(), [(None, 1)])
        self.assertEqual(len(self.journal.records), 4)


class FlowTests(ReplayCase):
    """The past in portions, and readers that do not keep up."""

    def test_live(self) -> None:
        """What is committed while the past is read comes once, in order."""
        self.keep(*range(10))
        self.journal.patient = True
        self.follow("first")
        for value in range(10, 15):
            self.keep(value)
            if self.journal.asked:
                self.journal.answer()
                self.settle()
        self.journal.patient = False
        while self.journal.asked:
            self.journal.answer()
            self.settle()
        self.keep(15)
        self.assertEqual(self.got(), [(value + 1, value) for value in range(16)])

    def test_portions(self) -> None:
        """Much comes in several readings, one after the other."""
        self.keep(*(b"x" * 100_000 for _ in range(50)))
        self.journal.patient = True
        self.follow("first")
        readings = 0
        while self.journal.asked:
            self.assertEqual(self.journal.asked, 1)
            self.journal.answer()
            self.settle()
            readings += 1
        self.assertEqual(readings, 5)
        self.assertEqual([offset for offset, _ in self.got()], list(range(1, 51)))

    def test_slow(self) -> None:
        """Who does not read is not read for, nor disconnected, however small the mark; then the rest comes."""
        self.meet(limits=Limits(outboxBytes=10_000))
        self.keep(*(b"x" * 100_000 for _ in range(50)))
        self.bob.protocol.outbox.pauseProducing()
        self.follow("first")
        self.keep("live")
        self.assertEqual(self.got(), [])
        reads = self.journal.reads
        self.assertLess(reads, 3)
        self.assertFalse(self.bob.closed)
        for _ in range(60):
            self.bob.protocol.outbox.resumeProducing()
            self.settle()
        self.assertEqual([offset for offset, _ in self.got()], list(range(1, 52)))
        self.assertFalse(self.bob.closed)

    def test_slowLive(self) -> None:
        """Who falls behind when the past is over is brought the rest by the journal, and not disconnected."""
        self.meet(limits=Limits(outboxBytes=10_000))
        self.follow("first")
        self.bob.protocol.outbox.pauseProducing()
        for _ in range(20):
            self.keep(b"x" * 100_000)
        self.assertLess(self.bob.protocol.outbox.waiting, 600_000)
        for _ in range(60):
            self.bob.protocol.outbox.resumeProducing()
            self.settle()
        self.keep("end")
        self.assertEqual([offset for offset, _ in self.got()], list(range(1, 22)))
        self.assertFalse(self.bob.closed)

    def test_leaves(self) -> None:
        """Who leaves in the middle is read for no more, and hurts nobody."""
        self.keep(*range(5))
        self.journal.patient = True
        self.follow("first")
        self.bob.leave()
        self.journal.answer()
        self.settle()
        self.assertEqual(self.journal.asked, 0)
        self.keep(6)
        self.assertEqual(self.bob.heard(), b"")

    def test_refusedRuns(self) -> None:
        """What the journal refused is brought to nobody."""
        self.follow("first")
        self.alice.publish("d.t", "a")
        self.journal.commit("the disk is full")
        self.settle()
        self.assertEqual(self.got(), [])

    def test_timeToLive(self) -> None:
        """What has expired is left out of the past."""
        self.meet(messageTtl=("d.t=10",))
        self.keep("old")
        self.clock.advance(self.journal.now / 1e6 + 11)
        self.journal.now = 1 << 60
        self.keep("new")
        self.keep("other", topic="d.u")
        self.follow("first", "d.#")
        self.assertEqual([value for _, value in self.got()], ["new", "other"])

    def test_expiresIn(self) -> None:
        """What has expired by its own time is left out, on any topic."""
        self.alice.publish("d.t", "old", expires_in=10_000)
        self.alice.publish("d.t", "lasting")
        self.journal.commit()
        self.clock.advance(self.journal.now / 1e6 + 11)
        self.journal.now = 1 << 60
        self.alice.publish("d.t", "new", expires_in=10_000)
        self.journal.commit()
        self.follow("first", "d.#")
        self.assertEqual([value for _, value in self.got()], ["lasting", "new"])

    def test_layoutB(self) -> None:
        """Clients of the other layout get the same."""
        self.keep("a", "b")
        self.follow("first")
        expected = self.got()
        peer = self.server.connect()
        peer.variant = LAYOUT_B
        peer.join({"client_name": "b"})
        self.follow("first", by=peer)
        self.keep("c")
        self.assertEqual(self.got(peer), [*expected, (3, "c")])


class TransactionTests(ReplayCase):
    """What is published all at once."""

    def setUp(self) -> None:
        """Somebody follows, and something is staged."""
        super().setUp()
        self.meet(retain=("d.r",))
        self.follow("first")
        self.ask("/sink/stage", part="0", records=[{"topic": "d.t", "value": value} for value in "ab"])

    def ask(self, path: str, **arguments: Any) -> None:
        """Ask the broker, let it be committed, and forget the answer."""
        self.alice.request(1, path, "r", {"query": "q", "batch": 1} | arguments)
        self.journal.commit()
        self.settle()
        self.alice.messages()

    def test_unreadable(self) -> None:
        """If it cannot be read back, those who follow end with an error, and do not miss it silently."""
        read = self.journal.read
        self.journal.read = lambda offset, wanted, most, found: found([], offset)  # type: ignore[method-assign]
        self.ask("/sink/commit", tokens=["1"])
        self.assertEqual([each.header["status"] for each in self.bob.messages()], [500])
        self.journal.read = read  # type: ignore[method-assign]
        self.follow("first")
        self.assertEqual(self.got(), [(1, "a"), (2, "b")])

    def test_onlyOnce(self) -> None:
        """Who is being brought up to date meanwhile gets what comes behind it once."""
        self.keep("r", topic="d.r")
        self.journal.patient = True
        carol = self.server.join()
        carol.subscribe("d.*")
        self.ask("/sink/commit", tokens=["1"])
        bring = self.journal.postpone()
        self.keep("behind")
        while self.journal.asked:
            self.journal.answer()
            self.settle()
        bring()
        self.settle()
        self.assertEqual(self.got(carol), [(None, "r"), (None, "a"), (None, "b"), (None, "behind")])
        self.assertEqual(self.got(), [(2, "a"), (3, "b"), (4, "behind")])


class RetainedTests(ReplayCase):
    """The latest message, for those who subscribe anew."""

    def meet(self, **settings: Any) -> None:
        """Retain ``r.#``."""
        super().meet(retain=("r.#",), **settings)

    def test_latest(self) -> None:
        """A new subscriber gets the latest message, without an offset, and then what comes."""
        self.keep("old", "new", topic="r.a")
        self.bob.subscribe("r.a")
        self.settle()
        self.keep("newer", topic="r.a")
        self.assertEqual(self.got(), [(None, "new"), (None, "newer")])

    def test_pattern(self) -> None:
        """A pattern gets the latest of each topic, in the order in which they were kept."""
        for value, topic in enumerate(("r.a", "r.b", "d.a", "r.c", "r.a")):
            self.keep(value, topic=topic)
        self.bob.subscribe("#")
        self.settle()
        self.assertEqual(self.got(), [(None, 1), (None, 3), (None, 4)])

    def test_again(self) -> None:
        """A SUB that changes nothing brings nothing; one after an UNSUB does."""
        self.keep("a", topic="r.a")
        for _ in range(2):
            self.bob.subscribe("r.a")
        self.settle()
        self.assertEqual(self.got(), [(None, "a")])
        self.bob.tell("UNSUB", {"topic": "r.a"}).subscribe("r.a")
        self.settle()
        self.assertEqual(self.got(), [(None, "a")])

    def test_meanwhile(self) -> None:
        """What is published while it is looked up comes behind it, once; other topics do not wait for it."""
        self.keep("a", topic="r.a")
        self.journal.patient = True
        self.bob.subscribe("#")
        self.keep("b", topic="r.a")
        self.alice.publish("n", "n")
        self.assertEqual(self.got(), [(None, "n")])
        while self.journal.asked:
            self.journal.answer()
            self.settle()
        self.keep("c", topic="r.a")
        self.assertEqual(self.got(), [(None, "a"), (None, "b"), (None, "c")])

    def test_afterwards(self) -> None:
        """When it has caught up a subscription is like any other: nothing is left of the reading."""
        self.keep("a", topic="r.a")
        self.bob.subscribe("r.a")
        self.settle()
        self.assertEqual(self.server.broker.topics.proxies, {})

    def test_follow(self) -> None:
        """Who begins at a place gets what is there, not the latest besides."""
        self.keep("a", topic="r.a")
        self.follow("first", "r.a")
        self.assertEqual(self.got(), [(1, "a")])

    def test_empty(self) -> None:
        """An empty payload is a message like others."""
        self.keep("a", topic="r.a")
        self.alice.tell("PUB", {"topic": "r.a"})
        self.journal.commit()
        self.bob.subscribe("r.a")
        self.settle()
        [heard] = self.bob.messages()
        self.assertEqual((heard.kind, heard.payload), ("PUB", b""))

    def test_unsubscribed(self) -> None:
        """Who unsubscribes before it came gets nothing."""
        self.keep("a", topic="r.a")
        self.journal.patient = True
        self.bob.subscribe("r.a").tell("UNSUB", {"topic": "r.a"})
        self.journal.answer(self.journal.asked)
        self.settle()
        self.assertEqual(self.got(), [])
