"""What a new subscriber of an Identity channel is told of its past."""

from typing import Any

from fleximq.broker.envelope import Envelope, MessageSource
from fleximq.dialects.identity import form
from fleximq.values.message import Content, Message
from fleximq.wire.payload_conversion import toUtf8
from tests.broker.parts import turn
from tests.dialects.test_identity_ws import IdentityCase
from tests.dialects.websocket_peer import WebSocketPeer
from tests.slow_journal import SlowJournal


class HistoryTests(IdentityCase):
    """The last three messages of a channel, behind the SUB-ACK."""

    def setUp(self) -> None:
        """Keep the channels d.#."""
        super().setUp()
        self.begin(history=3)

    def begin(self, **settings: Any) -> None:
        """Begin anew, with an empty journal."""
        self.journal = SlowJournal()
        self.configure(journal=self.journal, **({"durable": ("d.#",)} | settings))
        self.alice = self.user("d.c")

    def settle(self) -> None:
        """Let everything happen that waits for the reactor."""
        for _ in range(20):
            self.clock.advance(0)

    def say(self, *messages: str, channel: str = "d.c") -> None:
        """Publish these and let them be committed."""
        for message in messages:
            self.alice.askText(f"PUBLISH:{channel}:{message}")
        self.journal.commit()
        self.settle()

    def subscribe(self, peer: WebSocketPeer, channel: str = "d.c") -> list[str]:
        """Return what a SUBSCRIBE brings."""
        heard = peer.askText(f"SUBSCRIBE:{channel}")
        self.settle()
        return heard + peer.texts()

    def test_last(self) -> None:
        """The last ones come with the names of those who sent them, then what comes."""
        self.say("1", "2", "3", "4")
        peer = self.user()
        past = [f"MSG:d.c:user-00000000:{message}" for message in "234"]
        self.assertEqual(self.subscribe(peer), ["SUB-ACK:d.c", *past])
        self.say("5")
        self.assertEqual(peer.texts(), ["MSG:d.c:user-00000000:5"])

    def test_slices(self) -> None:
        """A turn converts one of these messages, which take 20 ms each, and each is converted once for all readers."""
        self.begin(history=32)
        broker = self.context.broker
        publisher = broker.join("any")
        envelope = Envelope(broker.topicFor(publisher, "d.c"), publisher, MessageSource())
        hostile = b"\xdc\xff\xff" + b"\x80" * 0xFFFF
        broker.publish(envelope, [Message(hostile, Content.MESSAGEPACK)] * 32, 32)
        self.journal.commit()
        self.settle()
        converted = 0

        def convert(message: Message) -> bytes:
            nonlocal converted
            converted += 1
            return toUtf8(message)

        self.patch(form, "toUtf8", convert)
        self.journal.patient = True
        peers = [self.user() for _ in range(5)]
        for peer in peers:
            peer.askText("SUBSCRIBE:d.c")
        self.journal.answer(self.journal.asked)
        before = converted
        while turn(self.clock) or self.journal.asked:
            self.journal.answer(self.journal.asked)
            self.assertLessEqual(converted - before, 1)
            before = converted
        self.assertEqual([len(peer.texts()) for peer in peers], [32] * 5)
        self.assertEqual(converted, 32)

    def test_fewer(self) -> None:
        """If there are fewer, all come."""
        for messages in ((), ("1",), ("1", "2", "3")):
            self.begin(history=3)
            self.say(*messages)
            self.assertEqual(len(self.subscribe(self.user())), 1 + len(messages))

    def test_farApart(self) -> None:
        """They are found however much of other channels lies between them."""
        self.alice.askText("SUBSCRIBE:d.x")
        for message in "1234":
            self.say(message)
            self.say(*(["x"] * 60), channel="d.x")
        heard = self.subscribe(self.user())
        self.assertEqual([text[-1] for text in heard[1:]], ["2", "3", "4"])

    def test_others(self) -> None:
        """Messages of other dialects are there, in the form in which they come live."""
        foreign = self.broker.join("fleximq")
        topic = self.broker.topicFor(foreign, "d.c")
        body = [Message(b"\x93\x01\x02\x03", Content.MESSAGEPACK), Message(b"\xff", Content.BYTES)]
        self.broker.publish(Envelope(topic, foreign, MessageSource()), body, 2)
        self.journal.commit()
        self.settle()
        live = self.alice.texts()
        self.assertEqual(self.subscribe(self.user())[1:], live)
        self.assertEqual(live[0], f"MSG:d.c:fleximq-{foreign.id}:[1,2,3]")

    def test_meanwhile(self) -> None:
        """What is said while the past is read comes behind it, once."""
        self.say("1", "2")
        self.journal.patient = True
        peer = self.user("d.c")
        self.say("3")
        self.assertEqual(peer.texts(), [])
        while self.journal.asked:
            self.journal.answer()
            self.settle()
        self.say("4")
        self.assertEqual([text[-1] for text in peer.texts()], ["1", "2", "3", "4"])
        self.assertEqual(self.broker.topics.proxies, {})

    def test_searchEnds(self) -> None:
        """UNSUBSCRIBE ends the search for the history, so that repeats of both cost one reading."""
        self.say("1", "2", "3", "4")
        self.journal.patient = True
        peer = self.user()
        before = self.journal.reads
        for _ in range(20):
            peer.askText("SUBSCRIBE:d.c")
            peer.askText("UNSUBSCRIBE:d.c")
        self.answerAll()
        self.assertEqual(self.journal.reads - before, 1)
        self.journal.patient = False
        self.assertEqual([text[-1] for text in self.subscribe(peer)[1:]], ["2", "3", "4"])

    def test_oneSearch(self) -> None:
        """The search for a second channel waits for the first one's, and nothing is omitted meanwhile."""
        self.alice.askText("SUBSCRIBE:d.x")
        self.say("1", "2", "3", "4")
        self.say("a", "b", "c", "d", channel="d.x")
        self.journal.patient = True
        peer = self.user("d.c", "d.x")
        self.assertEqual(self.journal.asked, 1)
        self.say("5")
        self.say("e", "f", channel="d.x")
        self.answerAll()
        self.assertEqual([text[-1] for text in peer.texts()], [*"234", *"bcd", "5", *"ef"])

    def answerAll(self) -> None:
        """Answer all readings."""
        while self.journal.asked:
            self.journal.answer()
            self.settle()

    def test_twice(self) -> None:
        """A SUBSCRIBE that changes nothing brings nothing but its SUB-ACK."""
        self.say("1")
        peer = self.user()
        self.assertEqual(len(self.subscribe(peer)), 2)
        self.assertEqual(self.subscribe(peer), ["SUB-ACK:d.c"])

    def test_notDurable(self) -> None:
        """A channel that is not durable has no past."""
        self.alice.askText("SUBSCRIBE:c")
        self.say("1", channel="c")
        self.assertEqual(self.subscribe(self.user(), "c"), ["SUB-ACK:c"])

    def test_off(self) -> None:
        """Without the option nothing is told of the past."""
        self.begin()
        self.say("1")
        self.assertEqual(self.subscribe(self.user()), ["SUB-ACK:d.c"])

    def test_unreadable(self) -> None:
        """If the past cannot be read, what comes does all the same."""
        self.say("1", "2", "3", "4")
        self.journal.read = lambda offset, wanted, most, found: found([], offset)  # type: ignore[method-assign]
        peer = self.user()
        self.assertEqual(self.subscribe(peer), ["SUB-ACK:d.c"])
        self.say("5")
        self.assertEqual(peer.texts(), ["MSG:d.c:user-00000000:5"])

    def test_retained(self) -> None:
        """Where the latest message is retained it comes without any history."""
        self.begin(retain=("d.c",))
        self.say("1", "2")
        self.assertEqual(self.subscribe(self.user()), ["SUB-ACK:d.c", "MSG:d.c:user-00000000:2"])

    def test_historyOfRetained(self) -> None:
        """With both, the history has the latest in it."""
        self.begin(retain=("d.c",), history=2)
        self.say("1", "2")
        self.assertEqual([text[-1] for text in self.subscribe(self.user())[1:]], ["1", "2"])

    def test_wildcards(self) -> None:
        """A channel's name is always taken as it stands."""
        self.begin(retain=("d.#",))
        self.say("1")
        self.assertEqual(self.subscribe(self.user(), "d.*"), ["SUB-ACK:d.*"])
