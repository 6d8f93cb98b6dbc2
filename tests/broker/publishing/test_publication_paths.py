"""Publications through the journal, and the order of a topic."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fleximq.broker.envelope import LastDelivery
from fleximq.broker.publishing.publication_paths import OVERLOAD_BYTES
from fleximq.errors import NotKept, NotRecorded
from fleximq.limits import Limits
from fleximq.values.death_reason import DeathReason
from fleximq.values.message import Content, Message
from tests.broker.parts import Friend, text
from tests.broker.test_broker import BrokerCase
from tests.journal_records import published
from tests.slow_journal import SlowJournal


class DurableCase(BrokerCase):
    """A broker with a journal that commits when it is told to; the topics under ``d`` are durable."""

    def setUp(self) -> None:
        """Note what publishers are told."""
        super().setUp()
        self.told: list[Any] = []
        self.open()

    def open(self, **rules: Any) -> None:
        """Begin with a new journal."""
        self.journal = SlowJournal()
        self.begin(self.journal, **{"durable": ("d.#", "d"), **rules})
        self.told.clear()

    def bring(self, *contents: str, name: str = "d", **more: Any) -> None:
        """Publish a run as Alice, and note what is told of it."""
        envelope = self.envelope(name, **more)
        self.broker.publish(envelope, text(*contents), len(contents), self.appendState)

    def appendState(self, reason: str | None, places: Any) -> None:
        """Note what is told."""
        self.told.append((reason, list(places)))

    def decided(self) -> list[int]:
        """Return what gets an entry when what Alice published is safe."""
        said: list[int] = []
        self.broker.whenCommitted(lambda: said.append(1), self.alice)
        return said


class WhichTests(DurableCase):
    """What goes through the journal."""

    def recorded(self, name: str, **more: Any) -> bool:
        """Tell whether a publication does."""
        before = self.journal.appended
        self.bring("x", name=name, **more)
        return self.journal.appended > before

    def test_pattern(self) -> None:
        """All that is published to a topic whose name matches, of whatever quality."""
        self.assertEqual([self.recorded(name) for name in ("d", "d.x", "e", "x.d")], [True, True, False, False])
        self.assertTrue(self.recorded("d", qos=0))

    def test_retained(self) -> None:
        """Patterns whose latest message is kept for new subscribers count as well."""
        self.open(retain=("r",))
        self.assertTrue(self.recorded("r"))

    def test_durable(self) -> None:
        """What its dialect says must be kept, wherever it goes."""
        self.assertTrue(self.recorded("e", durable=True))

    def test_queue(self) -> None:
        """All of QoS1 that goes to a topic with a queue which outlives the broker, as long as it has it."""
        taker = self.takers[self.bob.id]
        self.broker.topics.subscribe(taker, "e", durable=True)
        self.assertEqual([self.recorded("e"), self.recorded("e", qos=0)], [True, False])
        self.journal.commit()
        self.broker.topics.unsubscribe(taker, "e")
        self.assertFalse(self.recorded("e"))

    def test_system(self) -> None:
        """Never what the broker says of itself, whatever the patterns and queues."""
        self.open(durable=("#", "$sys.#"))
        name = "$sys/clients/joined"
        taker = self.takers[self.bob.id]
        self.broker.topics.subscribe(taker, name, durable=True)
        self.broker.join("any")
        self.assertEqual((len(taker.messages), self.journal.appended), (1, 0))
        self.assertFalse(self.broker.topics.get(name).durable)

    def test_inMemory(self) -> None:
        """Without a journal on disk nothing has to wait, and nobody is told."""
        self.begin(durable=("d",))
        taker = self.subscribe(self.bob, "d")
        self.bring("a", durable=True)
        self.assertEqual((taker.payloads(), self.told, self.decided()), ([b"a"], [], [1]))


class CommitTests(DurableCase):
    """What becomes of them."""

    def test_offset(self) -> None:
        """A run is delivered with the offset of its first message."""
        envelopes = []
        taker = self.subscribe(self.bob, "d")
        taker.form.render = lambda envelope, body, count: envelopes.append(envelope) or body  # type: ignore
        for contents in ("ab", "c"):
            self.bring(*contents)
        self.journal.commit()
        self.assertEqual([envelope.offset for envelope in envelopes], [1, 3])

    def test_told(self) -> None:
        """The publisher is told of each run, whose messages it names by their places."""
        self.bring("a", "b")
        self.bring("c")
        self.assertEqual(self.told, [])
        self.journal.commit(runs=1)
        self.journal.commit("the disk is full")
        self.assertEqual(self.told, [(None, [0, 1]), ("the disk is full", [0])])
        self.assertEqual(self.broker.counts.events["refused: journal"], 1)

    def test_refusedAtOnce(self) -> None:
        """A journal that takes nothing refuses the whole run, and nothing is left of it."""
        taker = self.subscribe(self.bob, "d")
        self.journal.readOnly = "the journal is read-only"
        error = self.assertRaises(NotRecorded, self.bring, "a", "b")
        self.assertEqual((list(error.refused), error.reason), ([0, 1], "the journal is read-only"))
        self.assertEqual(str(error), "durable publish failed: the journal is read-only")
        self.assertEqual((self.told, self.decided(), taker.payloads()), ([], [1], []))
        self.assertFalse(self.broker.topics.get("d").pendingRuns)
        self.journal.readOnly = ""
        self.bring("c")
        self.journal.commit()
        self.assertEqual(taker.payloads(), [b"c"])

    def test_wrongCount(self) -> None:
        """A source that returns another number of messages is an error of its dialect; the run is not appended."""
        self.assertRaises(ValueError, self.broker.publish, self.envelope("d"), text("a", "b"), 3)
        self.assertEqual((self.journal.kept, len(self.envelope("d").topic.pendingRuns)), ([], 0))

    def test_leftMeanwhile(self) -> None:
        """The message of a client that has left is delivered all the same."""
        taker = self.subscribe(self.bob, "d")
        self.bring("a")
        self.broker.leave(self.alice, "gone")
        self.journal.commit()
        self.assertEqual((taker.payloads(), self.told), ([b"a"], [(None, [0])]))

    def test_stoppedMeanwhile(self) -> None:
        """So is one of a broker that is stopping."""
        taker = self.subscribe(self.bob, "d")
        self.bring("a")
        self.broker.stop()
        self.journal.commit()
        self.assertEqual(taker.payloads(), [b"a"])

    def test_ownOnly(self) -> None:
        """What is safe for one client does not wait for another's."""
        self.bring("a")
        said: list[int] = []
        self.broker.whenCommitted(lambda: said.append(1), self.bob)
        self.assertEqual(
            (said, self.broker.arePublicationsDecided(self.bob), self.broker.arePublicationsDecided(self.alice)),
            ([1], True, False),
        )
        mine = self.decided()
        self.assertEqual(mine, [])
        self.journal.commit()
        self.assertEqual((mine, self.broker.arePublicationsDecided(self.alice)), ([1], True))

    def test_toldBeforeSafe(self) -> None:
        """A refusal is told before the client's answers are due, not before those to earlier messages."""
        said: list[Any] = []
        note = lambda reason, places: said.append(reason)  # noqa: E731
        for reason in ("first", "second"):
            self.broker.publish(self.envelope("d"), text(reason), 1, note)
            self.broker.whenCommitted(lambda reason=reason: said.append(f"after {reason}"), self.alice)  # type: ignore
        self.journal.commit("no")
        self.assertEqual(said, ["no", "after first", "no", "after second"])


class OrderTests(DurableCase):
    """A topic keeps its order."""

    def test_behind(self) -> None:
        """What is not kept waits behind what is on its way, whoever publishes it."""
        self.open(durable=())
        taker = self.subscribe(self.alice, "t")
        self.publish("a", durable=True)
        self.publish("b", "c")
        self.publish("d", durable=True)
        self.publish("e", qos=0)
        self.assertEqual(taker.payloads(), [])
        self.journal.commit(runs=1)
        self.assertEqual(taker.payloads(), [b"a", b"b", b"c"])
        self.journal.commit()
        self.assertEqual(taker.payloads(), [b"a", b"b", b"c", b"d", b"e"])
        self.assertEqual(len(self.journal.kept), 2)

    def test_behindRefused(self) -> None:
        """It comes also when that is refused."""
        taker = self.subscribe(self.bob, "t")
        self.publish("a", durable=True)
        self.publish("b")
        self.journal.commit("no")
        self.assertEqual(taker.payloads(), [b"b"])

    def test_waiterIsUnsafe(self) -> None:
        """Who published what waits is not told that it is done before it is."""
        taker = self.subscribe(self.alice, "t")
        self.publish("a", durable=True)
        envelope = self.envelope()._replace(publisher=self.bob)
        self.broker.publish(envelope, text("b"), 1)
        said: list[list[bytes]] = []
        self.broker.whenCommitted(lambda: said.append(taker.payloads()), self.bob)
        self.assertEqual(said, [])
        self.journal.commit()
        self.assertEqual(said, [[b"a", b"b"]])

    def test_otherTopics(self) -> None:
        """Other topics do not wait."""
        taker = self.subscribe(self.bob, "t", "u")
        self.publish("a", durable=True)
        self.publish("b", name="u")
        self.assertEqual(taker.payloads(), [b"b"])

    def test_backToSpeed(self) -> None:
        """When the line is empty the topic is as quick as before, its short way included."""
        self.subscribe(self.bob, "t")
        self.publish("a")
        topic = self.broker.topics.get("t")
        before = topic.onlyForm, topic.deliverCalls, topic.routes
        self.assertIsNotNone(topic.deliverCalls)
        self.publish("b", durable=True)
        self.assertEqual((topic.needsOrder, topic.onlyForm, topic.deliverCalls), (True, None, None))
        self.journal.commit()
        self.assertFalse(topic.needsOrder)
        self.assertEqual((topic.onlyForm, topic.deliverCalls, topic.routes), before)

    def test_keptInTheTable(self) -> None:
        """A topic with a line is not forgotten; afterwards it may be."""
        self.open(durable=(), limits=Limits(topics=1))
        self.publish("a", durable=True)
        topic = self.broker.topics.get("t")
        self.broker.topicFor(self.alice, "other")
        self.broker.topicFor(self.alice, "another")
        self.publish("b")
        taker = self.subscribe(self.bob, "t")
        self.broker.unsubscribe(self.bob, "t")
        self.broker.topicFor(self.alice, "more")
        self.assertIs(self.broker.topics.find("t"), topic)
        self.subscribe(self.bob, "t")
        self.journal.commit()
        self.assertEqual(taker.payloads(), [b"a", b"b"])
        self.broker.unsubscribe(self.bob, "t")
        self.broker.topicFor(self.alice, "last")
        self.assertIsNone(self.broker.topics.find("t"))

    def test_forgottenUnheard(self) -> None:
        """So is one that nobody ever subscribed to."""
        self.open(limits=Limits(topics=1))
        self.bring("a")
        self.journal.commit()
        self.broker.topicFor(self.alice, "other")
        self.assertIsNone(self.broker.topics.find("d"))

    def test_narrowed(self) -> None:
        """A narrowed publication is never kept, and does not overtake either."""
        friend = Friend()
        carol = self.broker.join("fleximq", friend)
        self.broker.subscribe(carol, friend, "d")
        self.bring("a")
        self.broker.publishNarrowed(self.envelope("d"), text("b"), 1, iter([carol.id, 77]))
        self.bring("c")
        self.assertEqual(friend.payloads(), [])
        self.journal.commit()
        self.assertEqual((friend.payloads(), len(self.journal.kept)), ([b"a", b"b", b"c"], 2))

    def test_narrowedLeft(self) -> None:
        """Nobody gets it who has left meanwhile."""
        friend = Friend()
        carol = self.broker.join("fleximq", friend)
        self.broker.subscribe(carol, friend, "d")
        self.bring("a")
        self.broker.publishNarrowed(self.envelope("d"), text("b"), 1, [carol.id])
        self.broker.leave(carol, "gone")
        self.journal.commit()
        self.assertEqual(friend.payloads(), [])

    def test_behindTransactions(self) -> None:
        """What waits behind a run that has to wait for a transaction to be read back waits for that, too."""
        taker = self.takers[self.bob.id]
        self.broker.topics.subscribe(taker, "t", durable=True)
        staged: list[str | None] = []
        body = [published(self.envelope(), text("0"))]
        self.journal.stage("q", 1, "p", body, lambda token, reason: staged.append(token))
        self.journal.commit()
        self.journal.patient = True
        self.broker.transactions.commit("q", 1, [token for token in staged if token], lambda offset, reason: None)
        self.publish("a")
        self.publish("b", qos=0)
        self.journal.commit()
        self.publish("c", qos=0)
        self.assertEqual(taker.payloads(), [])
        self.journal.answer()
        self.assertEqual(taker.payloads(), [b"0", b"a", b"b", b"c"])

    @given(st.lists(st.sampled_from(["kept", "plain", "narrowed", "commit", "one", "refuse"]), max_size=30))
    def test_model(self, steps: list[str]) -> None:
        """Whatever happens: what was not refused arrives, in order, and nothing is left over."""
        self.open(durable=())
        friend = Friend()
        carol = self.broker.join("fleximq", friend)
        self.broker.subscribe(carol, friend, "t")
        line: list[tuple[str, bool]] = []
        expected: list[bytes] = []

        def decide(runs: int, arrives: bool) -> None:
            while line and (runs or not line[0][1]):
                content, recorded = line.pop(0)
                runs -= recorded
                if arrives or not recorded:
                    expected.append(content.encode())

        for number, step in enumerate([*steps, "commit"]):
            content = f"{number}"
            if step == "kept":
                self.publish(content, durable=True)
                line.append((content, True))
            elif step == "plain":
                self.publish(content)
                line.append((content, False))
            elif step == "narrowed":
                self.broker.publishNarrowed(self.envelope(), text(content), 1, [carol.id])
                line.append((content, False))
            elif step == "one" and self.journal.decided < self.journal.appended:
                self.journal.commit(runs=1)
                decide(1, True)
            elif step in ("commit", "refuse"):
                self.journal.commit("no" if step == "refuse" else None)
                decide(len(line), step == "commit")
            decide(0, True)
            self.assertEqual(friend.payloads(), expected)
        topic = self.broker.topics.get("t")
        self.assertEqual(
            (len(topic.pendingRuns), topic.pendingCount, topic.pendingBytes, topic.needsOrder), (0, 0, 0, False)
        )


class GuardTests(DurableCase):
    """Queues that lose nothing, and what is on its way to them."""

    def fill(self, limit: int) -> int:
        """Open a subscription for so many messages, and return its id."""
        self.open(limits=Limits(queueMessages=limit))
        return self.broker.openSubscription(self.bob, None, "d", 1).id

    def test_onTheWay(self) -> None:
        """What is on its way counts against a queue's bound."""
        self.fill(3)
        self.bring("a", "b")
        error = self.assertRaises(NotKept, self.bring, "c", "d")
        self.assertEqual((list(error.refused), type(error)), ([1], NotKept))
        self.assertRaises(NotKept, self.bring, "e")
        self.journal.commit()
        self.assertEqual(self.told, [(None, [0, 1]), (None, [0])])

    def test_refusedMakesRoom(self) -> None:
        """What the journal refuses does not count any more."""
        self.fill(1)
        self.bring("a")
        self.journal.commit("no")
        self.bring("b")
        self.journal.commit()
        self.assertEqual(self.told, [("no", [0]), (None, [0])])

    def test_partly(self) -> None:
        """Of a run that fits in part, the places of that part are told; if the journal refuses that, all are."""
        self.fill(1)
        self.assertRaises(NotKept, self.bring, "a", "b")
        self.journal.commit()
        self.assertEqual(self.told, [(None, [0])])
        self.fill(1)
        self.journal.readOnly = "no"
        error = self.assertRaises(NotRecorded, self.bring, "a", "b")
        self.assertEqual(list(error.refused), [0, 1])

    def test_workQueue(self) -> None:
        """A work queue that refuses counts what is on its way, too."""
        self.open(limits=Limits(queueMessages=2))
        self.broker.consume(self.bob, "d")
        envelope = self.envelope("d", durable=True)
        self.broker.produce(envelope, text("a"), 1)
        self.assertRaises(NotKept, self.broker.produce, envelope, text("b", "c"), 2)
        self.broker.produce(envelope, text("b"), 1)
        self.assertRaises(NotKept, self.broker.produce, envelope, text("c"), 1)


class OnceTests(DurableCase):
    """Messages with an id, on durable topics."""

    def once(self, *ids: str, name: str = "d") -> None:
        """Publish messages with these ids, whose payloads are the ids, as Alice."""
        body = [Message(id.encode(), Content.TEXT, message_id=id) for id in ids]
        self.broker.publishOnce(self.envelope(name), body, ids, self.appendState)

    def test_repeated(self) -> None:
        """A repeat is neither stored nor delivered, and is safe at once."""
        taker = self.subscribe(self.bob, "d")
        self.once("a", "b")
        self.journal.commit()
        self.once("a")
        self.assertEqual((self.decided(), len(self.journal.kept), taker.payloads()), ([1], 1, [b"a", b"b"]))
        self.assertEqual(self.broker.counts.events["repeated publications"], 1)

    def test_partly(self) -> None:
        """New messages of the same run are; what is told of them names their places in the whole run."""
        taker = self.subscribe(self.bob, "d")
        self.once("a")
        self.journal.commit()
        self.once("a", "b", "a", "c")
        self.journal.commit()
        self.assertEqual((taker.payloads(), self.told), ([b"a", b"b", b"c"], [(None, [0]), (None, [1, 3])]))

    def test_waitsForTheFirst(self) -> None:
        """A repeat of what is on its way is safe when that is; whoever sends it."""
        self.once("a")
        envelope = self.envelope("d")._replace(publisher=self.bob)
        self.broker.publishOnce(envelope, text("a"), ["a"])
        said: list[int] = []
        self.broker.whenCommitted(lambda: said.append(1), self.bob)
        self.assertEqual(said, [])
        self.journal.commit()
        self.assertEqual((said, len(self.journal.kept)), ([1], 1))

    def test_refusedWithTheFirst(self) -> None:
        """If that is refused, so is the repeat; the next one is stored."""
        self.once("a")
        self.once("x", "a")
        self.journal.commit("no", runs=1)
        self.assertEqual(self.told, [("no", [0]), ("no", [1])])
        self.journal.commit()
        self.once("a")
        self.journal.commit()
        self.assertEqual(self.told[2:], [(None, [0]), (None, [0])])

    def test_refusedAtOnce(self) -> None:
        """What was refused at once is free too."""
        self.journal.readOnly = "no"
        error = self.assertRaises(NotRecorded, self.once, "a", "b")
        self.assertEqual(list(error.refused), [0, 1])
        self.journal.readOnly = ""
        self.once("b", "a")
        self.assertEqual(len(self.journal.kept), 1)

    def test_refusedByQueue(self) -> None:
        """So is what a full queue refused, under its place in the whole run."""
        self.open(limits=Limits(queueMessages=2))
        self.broker.openSubscription(self.bob, None, "d", 1)
        self.once("a")
        error = self.assertRaises(NotKept, self.once, "a", "b", "c", "c")
        self.assertEqual(list(error.refused), [2])
        self.assertEqual(self.told, [(error.reason, [3])])
        self.journal.commit()
        self.assertEqual(self.told[1:], [(None, [0]), (None, [0]), (None, [1])])

    def test_window(self) -> None:
        """After the window an id is new again."""
        self.open(idempotenceWindow=5.0)
        self.once("a")
        self.journal.commit()
        self.clock.advance(5)
        self.once("a")
        self.clock.advance(0.1)
        self.once("a")
        self.assertEqual(len(self.journal.kept), 2)

    def test_off(self) -> None:
        """Without a window every message is new."""
        self.open(idempotenceWindow=0.0)
        self.once("a", "a")
        self.once("a")
        self.assertEqual((len(self.journal.kept), len(self.broker.recentIds)), (2, 0))

    def test_notDurable(self) -> None:
        """On a topic that is not durable every message is new."""
        taker = self.subscribe(self.bob, "t")
        self.once("a", name="t")
        self.once("a", name="t")
        self.assertEqual((taker.payloads(), len(self.broker.recentIds)), ([b"a", b"a"], 0))

    def test_produced(self) -> None:
        """Work queues take part where that is asked for."""
        envelope = self.envelope("d", durable=True)
        for _ in range(2):
            self.broker.produceOnce(envelope, text("a"), ["a"], self.appendState)
        self.journal.commit()
        self.assertEqual((len(self.journal.kept), self.told), (1, [(None, [0]), (None, [0])]))


class CrowdTests(DurableCase):
    """When publishers should not be read."""

    def test_journal(self) -> None:
        """When the journal says so."""
        said: list[int] = []
        self.assertFalse(self.broker.overloaded)
        self.journal.overloaded = True
        self.assertTrue(self.broker.overloaded)
        self.broker.whenRelieved(lambda: said.append(1))
        self.assertEqual(said, [])
        self.journal.overloaded = False
        self.assertEqual((said, self.broker.overloaded), ([1], False))

    def test_behind(self) -> None:
        """And when too much waits behind what it has, though it is not kept itself."""
        self.open(durable=())
        self.publish("a", durable=True)
        envelope = self.envelope()
        half = Message(bytes(OVERLOAD_BYTES // 2), Content.BYTES)
        self.broker.publish(envelope, [half], 1)
        self.broker.publish(envelope, [half], 1)
        self.assertFalse(self.broker.overloaded)
        self.publish("b")
        self.assertTrue(self.broker.overloaded)
        said: list[bool] = []
        self.broker.whenRelieved(lambda: said.append(self.broker.overloaded))
        self.assertEqual(said, [])
        self.journal.commit()
        self.assertEqual(said, [False])


class DeadLetterTests(DurableCase):
    """Dead letters are as durable as others."""

    def setUp(self) -> None:
        """Let all of them be durable."""
        super().setUp()
        self.open(durable=("$dead.#",))
        self.taker = self.subscribe(self.bob, "$dead/t")

    def test_kept(self) -> None:
        """A dead letter of a durable topic comes after its commit."""
        last = LastDelivery(1, text("a")[0], 3, DeathReason.ATTEMPTS)
        self.broker.deadLetters.add(self.broker.queues.ensure("t").queue, last)
        self.assertEqual(self.taker.payloads(), [])
        self.journal.commit()
        self.assertEqual(self.taker.payloads(), [b"a"])

    def test_refused(self) -> None:
        """One that is refused, at once or later, is tried again until it is kept."""
        last = LastDelivery(1, text("a")[0], 3, DeathReason.ATTEMPTS)
        self.broker.deadLetters.add(self.broker.queues.ensure("t").queue, last)
        self.journal.commit("no")
        self.journal.readOnly = "no"
        self.clock.advance(30)
        self.journal.readOnly = ""
        self.clock.advance(30)
        self.journal.commit()
        self.clock.advance(100)
        self.journal.commit()
        self.assertEqual((self.taker.payloads(), len(self.journal.kept)), ([b"a"], 2))
