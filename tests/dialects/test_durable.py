"""Publishing what is durable, in every dialect: what is answered, when, and in which order."""

from dataclasses import replace
from typing import Any

from fleximq.broker.envelope import Envelope, MessageSource
from fleximq.broker.publishing import transactions
from fleximq.dialects.blipmq import BlipFactory
from fleximq.dialects.connection.slow_consumer import Block
from fleximq.dialects.fleximq import FlexiFactory
from fleximq.limits import Limits
from tests.broker.parts import text
from tests.dialects.blipmq.case import BlipCase, auth, hello, nack, ping, poll, pong, publish, subscribe
from tests.dialects.conversations import Peer
from tests.dialects.flexi_peer import FlexiCase, FlexiPeer, FlexiServer
from tests.dialects.minimq.case import MiniCase
from tests.dialects.test_fleximq_ws import FlexiWebSocketCase
from tests.dialects.test_identity_ws import IdentityCase
from tests.journal_records import published
from tests.slow_journal import SlowJournal
from tests.wire.flexi_frames import frame
from tests.wire.flexi_variants import LAYOUT_B

FULL = "no space left on device"
WORDS = f"durable publish failed: {FULL}"


class FlexiDurableTests(FlexiCase):
    """FlexiMQ: silence and a PONG, or REP 503 before it."""

    def setUp(self) -> None:
        """Make ``d`` durable, and let Bob listen."""
        super().setUp()
        self.begin()

    def begin(self, **settings: Any) -> None:
        """Begin with a new journal."""
        self.journal = SlowJournal()
        self.server: FlexiServer = self.makeServer(journal=self.journal, durable=("d", "d.*"), **settings)
        self.alice, self.bob = self.server.join(), self.server.join()
        self.bob.subscribe("d", "t")

    def ping(self, peer: FlexiPeer, timestamp: int = 1) -> None:
        """Ask for a PONG."""
        peer.tell("PING", {"keepalive": {"timestamp": timestamp}})

    def kinds(self, peer: FlexiPeer) -> list[Any]:
        """Return what a peer has heard: the status of each REP, the timestamp of each PONG, the kind of all else."""
        self.clock.advance(0)
        shown = {"REP": lambda each: each.status, "PONG": lambda each: each.header["keepalive"]["timestamp"]}
        return [shown.get(each.kind, lambda each: each.kind)(each) for each in peer.messages()]

    def commit(self, reason: str | None = None, runs: int | None = None) -> None:
        """Commit, and let the reactor turn."""
        self.journal.commit(reason, runs)
        self.clock.advance(0)

    def test_kept(self) -> None:
        """The message is delivered, and the PONG is sent, after the commit."""
        self.alice.publish("d", 1).publish("d", 2)
        self.ping(self.alice)
        self.assertEqual((self.kinds(self.alice), self.bob.messages()), ([], []))
        self.commit()
        self.assertEqual((self.kinds(self.alice), self.bob.values()), ([1], [1, 2]))

    def test_bytes(self) -> None:
        """What arrives is what was sent, byte for byte."""
        sent = frame("PUB", self.alice.id, {"x": 1, "topic": "d"}, b"\xa1a")
        self.alice.say(sent + sent)
        self.commit()
        self.assertEqual(self.bob.heard(), sent + sent)

    def test_refused(self) -> None:
        """Each message that is not kept is answered by a REP 503 that names the topic, before the PONG."""
        self.alice.publish("d", 1).publish("d", 2)
        self.ping(self.alice)
        self.commit(FULL)
        *errors, last = self.alice.messages()
        self.assertEqual([each.value for each in errors], [WORDS, WORDS])
        for each in errors:
            self.assertError(each, self.alice, 503, path="d")
        self.assertEqual((last.kind, self.bob.messages()), ("PONG", []))
        self.assertFalse(self.alice.closed)
        self.assertEqual(self.server.counts("error"), {"error: 503": 2})

    def test_refusedAtOnce(self) -> None:
        """So is what the journal does not take in."""
        self.journal.readOnly = FULL
        self.alice.publish("d", 1).publish("t", 2).publish("d", 3)
        self.ping(self.alice)
        self.assertEqual(self.kinds(self.alice), [503, 503, 1])
        self.assertEqual(self.bob.values(), [2])

    def test_subscribingInOrder(self) -> None:
        """A SUB brings nothing that its client published before, an UNSUB leaves nothing of that out."""
        for number, kind in enumerate(("PUB", "SUB", "PUB", "UNSUB", "PUB", "SUB", "PUB", "UNSUB", "UNSUB", "PUB")):
            if kind == "PUB":
                self.alice.publish("d", number)
            else:
                self.alice.tell(kind, {"topic": "d"})
        self.ping(self.alice)
        self.assertEqual(self.kinds(self.alice), [])
        self.commit()
        heard = self.alice.messages()
        self.assertEqual([each.value for each in heard[:-1]], [2, 6])
        self.assertEqual((heard[-1].kind, self.bob.values()), ("PONG", [0, 2, 4, 6, 9]))
        self.alice.tell("SUB", {"topic": "d"}).publish("d", 10)
        self.commit()
        self.assertEqual(self.alice.values(), [10])

    def test_patternsInOrder(self) -> None:
        """So with a pattern, whichever topics the messages were published to."""
        for number, kind in enumerate(("PUB", "SUB", "PUB", "UNSUB", "PUB")):
            if kind == "PUB":
                self.alice.publish("d", number)
            else:
                self.alice.tell(kind, {"topic": "#"})
        self.ping(self.alice)
        self.commit()
        heard = self.alice.messages()
        self.assertEqual(([each.value for each in heard[:-1]], heard[-1].kind), ([2], "PONG"))

    def test_patternAtOnce(self) -> None:
        """Where nothing of its client waits, a pattern is subscribed to at once."""
        self.alice.tell("SUB", {"topic": "#"})
        self.bob.publish("t", 1)
        self.assertEqual(self.alice.values(), [1])

    def test_subscribingRefusedInOrder(self) -> None:
        """What a SUB is refused with comes before the PONG behind it, and not when its client is gone."""
        self.alice.publish("d", 1).tell("SUB", {"topic": "d", "from": 99}).tell("SUB", {"topic": "d", "from": 0})
        self.ping(self.alice)
        self.commit()
        self.assertEqual(self.kinds(self.alice)[-2:], [404, 1])
        self.bob.heard()
        self.bob.publish("d", 1).tell("SUB", {"topic": "d", "from": 0})
        self.bob.leave()
        self.commit()
        self.assertEqual(self.bob.messages(), [])

    def test_inRuns(self) -> None:
        """Runs of one topic and others, kept or not, keep the order of each topic."""
        frames = [
            frame("PUB", self.alice.id, {"topic": "d" if number % 5 else "t"}, bytes([number])) for number in range(60)
        ]
        self.alice.say(b"".join(frames))
        self.assertEqual(self.bob.values(), list(range(0, 60, 5)))
        self.commit()
        self.assertEqual(self.bob.values(), [number for number in range(60) if number % 5])

    def test_errorsKeepTheirOrder(self) -> None:
        """Answers behind a PONG that waits wait too, errors at once included; a refusal comes before its PONG."""
        bad = frame("PUB", self.alice.id, {"topic": ""})
        self.alice.publish("d", 1)
        self.ping(self.alice, 1)
        self.alice.say(bad)
        self.alice.publish("d", 2)
        self.ping(self.alice, 2)
        self.alice.request(1, "/nothing", "r")
        self.assertEqual(self.kinds(self.alice), [])
        self.commit(runs=1)
        self.assertEqual(self.kinds(self.alice), [1, 400])
        self.commit(FULL)
        self.assertEqual(self.kinds(self.alice), [503, 2, 404])

    def test_refusedBehindAWaitingPong(self) -> None:
        """What is refused at once behind a PONG that waits is answered behind it."""
        self.alice.publish("d", 1)
        self.ping(self.alice)
        self.journal.readOnly = FULL
        self.alice.publish("d", 2)
        self.assertEqual(self.kinds(self.alice), [])
        self.commit()
        self.assertEqual(self.kinds(self.alice), [1, 503])

    def test_deliveriesDoNotWait(self) -> None:
        """What others send comes while a PONG waits."""
        self.bob.publish("d", 1)
        self.ping(self.bob)
        self.alice.publish("t", 2)
        self.assertEqual(self.bob.values(), [2])

    def test_ownOnly(self) -> None:
        """A PONG does not wait for another connection's messages."""
        self.alice.publish("d", 1)
        self.ping(self.bob)
        self.assertEqual(self.kinds(self.bob), [1])

    def test_layoutB(self) -> None:
        """Clients of layout B are answered in theirs."""
        self.alice = self.server.connect()
        self.alice.variant = LAYOUT_B
        self.alice.join()
        self.alice.publish("d", 1)
        self.ping(self.alice, 1)
        self.commit(FULL)
        self.assertEqual(self.kinds(self.alice), [503, 1])

    def test_halfClosed(self) -> None:
        """Whoever ends its input hears what was refused, though it asked for no PONG."""
        self.alice.publish("d", 1).endInput()
        self.assertFalse(self.alice.closed)
        self.commit(FULL)
        self.assertEqual((self.kinds(self.alice), self.alice.closed), ([503], True))

    def test_notJoined(self) -> None:
        """Whoever has not joined waits for nobody's messages when its connection ends."""
        self.alice.publish("d", 1)
        other, bad = self.server.connect().endInput(), self.server.connect()
        bad.send("PUB", {"topic": "d"})
        self.assertEqual((other.closed, bad.closed), (True, True))

    def test_left(self) -> None:
        """Whoever has left is told nothing, and its message is delivered."""
        self.alice.publish("d", 1)
        self.ping(self.alice)
        self.alice.leave()
        self.commit()
        self.assertEqual((self.alice.heard(), self.bob.values()), (b"", [1]))
        self.bob.publish("d", 2).leave()
        self.commit(FULL)
        self.assertEqual(self.bob.heard(), b"")

    def test_narrowed(self) -> None:
        """A narrowed message is not kept, and comes in its place."""
        routing = [{"client_id": self.bob.id, "path": ""}]
        self.alice.publish("d", 1).publish("d", 2, routing=routing).publish("d", 3)
        self.ping(self.alice)
        self.assertEqual(self.bob.messages(), [])
        self.commit()
        self.assertEqual((self.bob.values(), len(self.journal.records)), ([1, 2, 3], 2))

    def test_once(self) -> None:
        """A message_id that comes again is confirmed, and neither stored nor delivered."""
        self.alice.publish("d", 1, message_id="m")
        self.commit()
        self.alice.publish("d", 2, message_id="m").publish("d", 3, message_id="n")
        self.commit()
        self.ping(self.alice)
        self.assertEqual((self.kinds(self.alice), self.bob.values()), ([1], [1, 3]))

    def test_onceAtOnce(self) -> None:
        """While the first is on its way, the PONG of the repeat waits for it, on another connection as well."""
        self.alice.publish("d", 1, message_id="m")
        self.bob.publish("d", 1, message_id="m")
        self.ping(self.bob)
        self.assertEqual(self.kinds(self.bob), [])
        self.commit(FULL)
        self.assertEqual((self.kinds(self.alice), self.kinds(self.bob)), ([503], [503, 1]))
        self.bob.publish("d", 2, message_id="m")
        self.commit()
        self.assertEqual(self.bob.values(), [2])

    def test_onceWhereDurable(self) -> None:
        """On other topics a message_id says nothing, nor does it in a narrowed message."""
        routing = [{"client_id": self.bob.id, "path": ""}]
        for _ in range(2):
            self.alice.publish("t", 1, message_id="m").publish("d", 2, message_id="m", routing=routing)
        self.assertEqual(self.bob.values(), [1, 2, 1, 2])

    def test_queueFull(self) -> None:
        """A full queue is answered as ever: by a 500 for what does not fit."""
        self.begin(limits=Limits(queueMessages=1))
        other = self.server.foreign("blipmq")
        self.server.broker.openSubscription(other, "o", "d", 1)
        self.commit()
        self.alice.publish("d", 1).publish("d", 2)
        self.ping(self.alice)
        self.assertEqual(self.kinds(self.alice), [500])
        self.commit()
        self.assertEqual(self.kinds(self.alice), [1])
        self.assertEqual(self.bob.values(), [1])

    def test_manyPings(self) -> None:
        """Whoever asks for too many PONGs that have to wait is not read until they are sent."""
        self.begin(limits=Limits(outboxBytes=4096))
        self.alice.publish("d", 1)
        said = 0
        while not self.alice.paused and said < 1000:
            said += 1
            self.ping(self.alice, said)
        self.assertTrue(2 < said < 40, said)
        self.assertFalse(self.alice.closed)
        self.commit()
        self.assertEqual((self.kinds(self.alice), self.alice.paused), (list(range(1, said + 1)), False))

    def test_crowded(self) -> None:
        """While too much waits for the disk, those who publish what is durable are not read, and others are."""
        self.journal.overloaded = True
        self.alice.publish("d", 1)
        self.bob.publish("t", 2)
        self.assertEqual((self.alice.paused, self.bob.paused), (True, False))
        self.clock.pump([30] * 10)  # without listening there is no silence
        self.assertEqual((self.alice.closed, self.bob.closed), (False, True))
        self.commit()
        self.journal.overloaded = False
        self.assertFalse(self.alice.paused)
        self.alice.publish("d", 3)
        self.assertFalse(self.alice.paused)

    def test_behindTransaction(self) -> None:
        """What waits for a transaction that is read back stays within its bound; all of it comes, in order."""
        self.patch(transactions, "OVERLOAD_BYTES", 16_384)
        broker, tokens = self.server.broker, ["1"]
        staged = [
            published(
                Envelope(broker.topicFor(broker.brokerClient, "d"), broker.brokerClient, MessageSource()), text("first")
            )
        ]
        self.journal.stage("q", 1, "p", staged, lambda token, reason: None)
        self.commit()
        self.journal.patient = True
        broker.transactions.commit("q", 1, tokens, lambda offset, reason: None)
        self.commit()
        size, said = 1024, 0
        while not self.alice.paused and said < 100:
            self.alice.publish("d", said.to_bytes(4, "big") + bytes(size))
            self.commit()
            said += 1
        self.assertTrue(16_384 < broker.transactions.waitingBytes < 16_384 + 4 * size)
        self.assertEqual((1 < said <= 17, self.bob.messages(), self.bob.paused), (True, [], False))
        self.bob.publish("t", 1)
        self.assertFalse(self.bob.paused)
        self.bob.messages()
        self.journal.answer()
        self.clock.advance(0)
        got = [int.from_bytes(each.value[:4], "big") for each in self.bob.messages()[1:]]
        self.assertEqual(got, list(range(said)))
        self.assertEqual((broker.transactions.waitingBytes, self.alice.paused), (0, False))

    def test_blocked(self) -> None:
        """A consumer that does not keep up holds up its publisher also where the messages came through the journal."""
        self.begin(limits=Limits(outboxBytes=4096))
        policy = Block(self.clock)
        self.server.context = replace(self.server.context, policy=policy)
        self.server.factory = FlexiFactory(self.server.context)
        alice, bob = self.server.join(), self.server.join().subscribe("d")
        bob.protocol.outbox.pauseProducing()
        for _ in range(8):
            alice.publish("d", "x" * 1000)
            self.commit()
        self.assertEqual((alice.paused, bob.closed), (True, False))
        bob.protocol.outbox.resumeProducing()
        self.assertFalse(alice.paused)

    def test_crowdedAndLost(self) -> None:
        """A connection that is lost meanwhile is no trouble."""
        self.journal.overloaded = True
        self.alice.publish("d", 1).leave()
        self.journal.overloaded = False


class BlipDurableTests(BlipCase):
    """BlipMQ: QoS1 is kept, a NACK for each correlation id that is not."""

    def setUp(self) -> None:
        """Let the journal wait."""
        super().setUp()
        self.journal = SlowJournal()
        self.listen(journal=self.journal, durable=("d",))

    def commit(self, reason: str | None = None, runs: int | None = None) -> None:
        """Commit, and let the reactor turn."""
        self.journal.commit(reason, runs)
        self.clock.advance(0)

    def test_refused(self) -> None:
        """The NACKs come before the PONG, for each message of QoS1 and those of durable topics."""
        peer = self.login()
        asked = publish("t", b"a", correlation=5) + publish("t", b"b", correlation=6)
        asked += publish("t", b"c", 0, 7) + publish("d", b"d", 0, 8) + ping(9)
        self.assertEqual(peer.ask(asked), b"")
        self.commit(FULL)
        self.assertEqual(peer.heard(), b"".join(nack(number, 500, WORDS) for number in (5, 6, 8)) + pong(9))

    def test_refusedAtOnce(self) -> None:
        """The same where nothing is taken in."""
        peer = self.login()
        self.journal.readOnly = FULL
        asked = publish("t", b"a", correlation=5) + publish("t", b"b", correlation=6) + ping(9)
        self.assertEqual(peer.ask(asked), nack(5, 500, WORDS) + nack(6, 500, WORDS) + pong(9))

    def test_eachInItsPlace(self) -> None:
        """What is refused later comes behind the PONG of what was kept, and before its own."""
        peer = self.login()
        peer.say(publish("t", b"a", correlation=5) + ping(6))
        peer.say(publish("u", b"b", correlation=7) + subscribe("", correlation=8) + ping(9))
        self.commit(runs=1)
        self.assertEqual(peer.heard(), pong(6) + nack(8, 400, "empty topic"))
        self.commit(FULL)
        self.assertEqual(peer.heard(), nack(7, 500, WORDS) + pong(9))

    def test_ownMessage(self) -> None:
        """A POLL behind a message finds it, and what was asked behind that is answered behind it."""
        peer = self.login()
        peer.say(subscribe("t"))
        self.commit()
        id = int.from_bytes(peer.heard()[-8:], "big")
        self.assertEqual(peer.ask(publish("t", b"a") + poll(id, 60) + poll(id, 61) + subscribe("", correlation=8)), b"")
        self.commit()
        self.assertEqual(peer.heard(), publish("t", b"a", 1, 1) + nack(8, 400, "empty topic"))
        self.assertFalse(peer.paused)

    def test_ownMessageRefused(self) -> None:
        """If that is refused, there is nothing to find."""
        peer = self.login()
        peer.say(subscribe("t"))
        self.commit()
        id = int.from_bytes(peer.heard()[-8:], "big")
        peer.say(publish("t", b"a", correlation=5) + poll(id) + ping(6))
        self.commit(FULL)
        self.assertEqual(peer.heard(), nack(5, 500, WORDS) + pong(6))

    def test_ownOnly(self) -> None:
        """A PONG does not wait for another connection's messages."""
        self.login().say(publish("t", b"a"))
        self.assertEqual(self.login("other").ask(ping(5)), pong(5))

    def test_halfClosed(self) -> None:
        """Whoever ends its input hears what was refused, though it asked for no PONG."""
        peer = self.login()
        peer.say(publish("t", b"a", correlation=5)).endInput()
        self.assertFalse(peer.closed)
        self.commit(FULL)
        self.assertEqual((peer.heard(), peer.closed), (nack(5, 500, WORDS), True))

    def test_left(self) -> None:
        """Whoever has left is told nothing."""
        peer = self.login()
        peer.say(publish("t", b"a") + ping(5)).leave()
        self.commit(FULL)
        self.assertEqual(peer.heard(), b"")

    def test_crowded(self) -> None:
        """While too much waits for the disk, those who publish what is durable are not read, and others are."""
        self.journal.overloaded = True
        peer, other = self.login(), self.login()
        peer.say(publish("t", b"a"))
        other.say(publish("t2", b"a", 0))
        self.assertEqual((peer.paused, other.paused), (True, False))
        self.commit()
        self.journal.overloaded = False
        self.assertFalse(peer.paused)

    def test_manyPings(self) -> None:
        """Whoever asks for too many PONGs that have to wait is not read until they are sent."""
        self.listen(journal=self.journal, limits=Limits(outboxBytes=4096))
        peer = self.login().say(publish("t", b"a"))
        for number in range(40):
            peer.say(ping(number))
            if peer.paused:
                break
        self.assertTrue(2 < number < 39)
        self.commit()
        self.assertEqual((peer.heard(), peer.paused), (b"".join(map(pong, range(number + 1))), False))


class MiniDurableTests(MiniCase):
    """MiniMQ: the id, or an ERROR in its place."""

    def setUp(self) -> None:
        """Let the journal wait."""
        super().setUp()
        self.begin()

    def begin(self, **settings: Any) -> None:
        """Begin with a new journal."""
        self.journal = SlowJournal()
        self.listen(journal=self.journal, **settings)

    def commit(self, reason: str | None = None, runs: int | None = None) -> None:
        """Commit, and let the reactor turn."""
        self.journal.commit(reason, runs)
        self.clock.pump([0, 0])

    def test_refused(self) -> None:
        """Each id is replaced where it stands, and the answers around it stay."""
        peer = self.peer()
        asked = b"PRODUCE:1:::t:::x\nPRODUCE:2:::t:::x\nPING:\nPRODUCE:3:::u:::x\nFOO:\nPING:\n"
        self.assertEqual(peer.ask(asked), b"")
        self.commit(FULL)
        error = f"ERROR:500:{WORDS}\n".encode()
        self.assertEqual(peer.heard(), error * 2 + b"PONG:\n" + error + b"ERROR:400:unknown command\nPONG:\n")
        self.assertEqual(self.context.broker.counts.events["error: 503"], 3)

    def test_refusedInPart(self) -> None:
        """Of several runs only those that were not kept."""
        peer = self.peer().say(b"PRODUCE:1:::t:::x\nPRODUCE:2:::u:::x\nPRODUCE:3:::t:::x\n")
        self.commit(runs=1)
        self.commit(FULL)
        error = f"ERROR:500:{WORDS}\n".encode()
        self.assertEqual(peer.heard(), b"1\n" + error * 2)

    def test_refusedAtOnce(self) -> None:
        """The same where nothing is taken in; nothing is asked one by one."""
        peer = self.peer()
        self.journal.readOnly = FULL
        error = f"ERROR:500:{WORDS}\n".encode()
        self.assertEqual(peer.ask(b"PRODUCE:1:::t:::x\nPRODUCE:2:::t:::x\nPING:\n"), error * 2 + b"PONG:\n")
        self.assertFalse(self.journal.kept)

    def test_consume(self) -> None:
        """A CONSUME behind a message that was refused finds what there is."""
        peer = self.peer()
        peer.say(b"PRODUCE:1:::t:::x\nCONSUME:t\n")
        self.commit(FULL)
        self.assertEqual(peer.heard(), f"ERROR:500:{WORDS}\nNO_MSG\n".encode())

    def test_ownOnly(self) -> None:
        """An id does not wait for another connection's messages."""
        first, second = self.peer(), self.peer()
        first.say(b"PRODUCE:1:::t:::x\n")
        second.say(b"PRODUCE:2:::t:::x\n")
        self.commit(runs=1)
        self.assertEqual((first.heard(), second.heard()), (b"1\n", b""))
        self.commit()
        self.assertEqual(second.heard(), b"2\n")

    def test_acknowledged(self) -> None:
        """The PONG after an ACK waits for every commit, since the acknowledgement is recorded with one of them."""
        peer, other = self.peer(), self.peer()
        peer.say(b"PRODUCE:1:::t:::x\n")
        self.commit()
        self.assertEqual(peer.heard(), b"1\n")
        self.assertEqual(peer.ask(b"CONSUME:t\n"), b"1:::t:::x::::::\n")
        other.say(b"PRODUCE:2:::u:::x\n")
        self.assertEqual(peer.ask(b"ACK:1\nPING:\n"), b"")
        self.commit()
        self.assertEqual(peer.heard(), b"PONG:\n")

    def test_left(self) -> None:
        """The message of whoever has left is kept all the same; a refusal reaches nobody."""
        peer = self.peer().say(b"PRODUCE:1:::t:::x\n")
        peer.leave()
        self.commit()
        self.assertEqual(self.peer().ask(b"CONSUME:t\n"), b"1:::t:::x::::::\n")
        peer = self.peer().say(b"PRODUCE:2:::t:::x\n")
        peer.leave()
        self.commit(FULL)
        self.assertEqual(peer.heard(), b"")

    def test_crowded(self) -> None:
        """While too much waits for the disk, those who publish are not read, and others are."""
        self.journal.overloaded = True
        peer, other = self.peer(), self.peer()
        peer.say(b"PRODUCE:1:::t:::x\n")
        self.assertEqual(other.ask(b"PING:\n"), b"PONG:\n")
        self.assertEqual((peer.paused, other.paused), (True, False))
        self.commit()
        self.journal.overloaded = False
        self.assertEqual((peer.paused, peer.heard()), (False, b"1\n"))

    def test_notOnce(self) -> None:
        """An id that comes again is another message, as the document has it."""
        peer = self.peer().say(b"PRODUCE:1:::t:::x\nPRODUCE:1:::t:::y\n")
        self.commit()
        self.assertEqual(peer.heard(), b"1\n1\n")
        self.assertEqual(peer.ask(b"CONSUME:t\nCONSUME:t\n"), b"1:::t:::x::::::\n1:::t:::y::::::\n")

    def test_once(self) -> None:
        """With the setting it is the same message: its id is the answer, and it is not stored again."""
        self.begin(minimqIdempotent=True)
        peer = self.peer().say(b"PRODUCE:1:::t:::x\nPRODUCE:1:::t:::y\nPRODUCE:2:::t:::z\n")
        self.assertEqual(peer.heard(), b"")
        self.commit()
        self.assertEqual(peer.heard(), b"1\n1\n2\n")
        self.assertEqual(peer.ask(b"PRODUCE:2:::t:::w\n"), b"2\n")
        self.assertEqual(peer.ask(b"CONSUME:t\n" * 3), b"1:::t:::x::::::\n2:::t:::z::::::\nNO_MSG\n")

    def test_onceRefused(self) -> None:
        """A repeat of what is refused is refused in its own place; later it is stored."""
        self.begin(minimqIdempotent=True)
        first, second = self.peer(), self.peer()
        first.say(b"PRODUCE:1:::t:::x\n")
        second.say(b"PRODUCE:2:::u:::x\nPRODUCE:1:::t:::x\nPING:\n")
        self.commit(FULL, runs=1)
        self.commit()
        error = f"ERROR:500:{WORDS}\n".encode()
        self.assertEqual((first.heard(), second.heard()), (error, b"2\n" + error + b"PONG:\n"))
        first.say(b"PRODUCE:1:::t:::x\n")
        self.commit()
        self.assertEqual(first.heard(), b"1\n")

    def test_onceInAFullQueue(self) -> None:
        """A repeat of what is in a full queue is answered by its id; what is new is refused."""
        self.begin(minimqIdempotent=True, limits=Limits(queueMessages=1))
        peer = self.peer()
        self.assertEqual(peer.ask(b"CONSUME:t\n"), b"NO_MSG\n")
        peer.say(b"PRODUCE:1:::t:::x\n")
        self.commit()
        peer.heard()
        answers = peer.ask(b"PRODUCE:1:::t:::x\nPRODUCE:2:::t:::x\n").split(b"\n")
        self.assertEqual((answers[0], answers[1][:10]), (b"1", b"ERROR:500:"))


class IdentityDurableTests(IdentityCase):
    """Identity: silence, or ERROR:503."""

    def setUp(self) -> None:
        """Make ``d`` durable."""
        super().setUp()
        self.journal = SlowJournal()
        self.configure(journal=self.journal, durable=("d",))

    def commit(self, reason: str | None = None) -> None:
        """Commit, and let the reactor turn."""
        self.journal.commit(reason)
        self.clock.advance(0)

    def test_kept(self) -> None:
        """The MSG comes after the commit."""
        user = self.user("d")
        self.assertEqual(user.askText("PUBLISH:d:a", "PUBLISH:d:b"), [])
        self.commit()
        self.assertEqual(user.texts(), [f"MSG:d:user-00000000:{each}" for each in "ab"])

    def test_refused(self) -> None:
        """Each message that is not kept is answered by an error."""
        user = self.user("d")
        user.sayText("PUBLISH:d:a", "PUBLISH:d:b")
        self.commit(FULL)
        self.assertEqual(user.texts(), [f"ERROR:503:{WORDS}"] * 2)
        self.journal.readOnly = FULL
        self.assertEqual(user.askText("PUBLISH:d:c"), [f"ERROR:503:{WORDS}"])

    def test_left(self) -> None:
        """Whoever has left is told nothing."""
        user = self.user("d")
        user.sayText("PUBLISH:d:a").leave()
        self.commit(FULL)
        self.assertEqual(user.texts(), [])

    def test_crowded(self) -> None:
        """While too much waits for the disk, those who publish what is durable are not read, and never silent."""
        self.journal.overloaded = True
        user, other = self.user("d"), self.user("t")
        user.sayText("PUBLISH:d:a")
        other.sayText("PUBLISH:t:a")
        self.assertEqual((user.paused, other.paused), (True, False))
        self.clock.pump([30] * 10)
        self.assertEqual((user.closed, other.closed), (False, True))
        self.commit()
        self.journal.overloaded = False
        self.assertFalse(user.paused)


class FlexiWebSocketDurableTests(FlexiWebSocketCase):
    """FlexiMQ over WebSocket."""

    def setUp(self) -> None:
        """Make ``d`` durable."""
        super().setUp()
        self.journal = SlowJournal()
        self.configure(journal=self.journal, durable=("d",))

    def test_refused(self) -> None:
        """The error comes before the PONG."""
        peer = self.arrive().join()
        peer.tell("PUB", {"topic": "d"}).tell("PING", {"keepalive": {"timestamp": 1}})
        self.assertEqual(peer.messages(), [])
        self.journal.commit(FULL)
        self.clock.advance(0)
        self.assertEqual([(each.kind, each.status) for each in peer.messages()], [("REP", 503), ("PONG", None)])

    def test_crowded(self) -> None:
        """A connection that publishes what is durable is not read while too much waits for the disk."""
        self.journal.overloaded = True
        peer, other = self.arrive().join(), self.arrive().join()
        peer.tell("PUB", {"topic": "d"})
        other.tell("PUB", {"topic": "t"})
        self.assertEqual((peer.paused, other.paused), (True, False))
        self.journal.overloaded = False
        self.assertFalse(peer.paused)


class AcrossTests(MiniCase):
    """One topic, several dialects."""

    def test_everyDialect(self) -> None:
        """All that is published to a topic with a queue which outlives the broker is kept, but BlipMQ's QoS0."""
        journal = SlowJournal()
        self.listen(journal=journal)
        mini = self.peer().say(b"CONSUME:t\n")
        broker = self.context.broker
        for dialect in ("fleximq", "identity"):
            client = broker.join(dialect)
            broker.publish(Envelope(broker.topicFor(client, "t"), client, MessageSource()), text(dialect), 1)
        blip = Peer(BlipFactory(self.context))
        blip.say(hello() + auth() + publish("t", b"one") + publish("t", b"none", 0))
        self.assertEqual(mini.ask(b"CONSUME:t\n"), b"NO_MSG\nNO_MSG\n")
        journal.commit()
        contents = [line.split(b":::")[2] for line in mini.ask(b"CONSUME:t\n" * 4).splitlines()]
        self.assertEqual(contents, [b"fleximq", b"identity", b"one", b"none"])
        self.assertEqual([record.payload for record in journal.records], [b"fleximq", b"identity", b"one"])
