"""The Identity dialect: every rule of its document and of docs/reference/dialects.rst, over a WebSocket."""

from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer
from zope.interface.verify import verifyObject

from fleximq.broker.envelope import Envelope
from fleximq.dialects.fleximq import FlexiFactory
from fleximq.dialects.identity.form import IdentityForm
from fleximq.dialects.identity.session import IdentitySession
from fleximq.dialects.identity_ws import IdentityFactory
from fleximq.dialects.session import LINGER
from fleximq.dialects.websocket.frame_outbox import WebSocketOutbox
from fleximq.interfaces import ISubscriber
from fleximq.limits import KIBIBYTE, TOPIC_BYTES, Limits
from tests.dialects.admissions import REFUSAL, REFUSING
from tests.dialects.conversations import HERE, ConversationCase, inPieces, makeContext
from tests.dialects.flexi_peer import FlexiPeer
from tests.dialects.websocket.test_inflation import deflated
from tests.dialects.websocket_peer import BINARY, CLOSE, DEFLATE, PING, PONG, TEXT, Frame, WebSocketPeer, masked, text
from tests.nightly import repetitions


class IdentityCase(ConversationCase):
    """Identity clients of one broker; the first is ``user-00000000``."""

    def setUp(self) -> None:
        """Start with default settings."""
        super().setUp()
        self.configure()

    def configure(self, **settings: Any) -> None:
        """Start with other settings."""
        self.context = makeContext(self.clock, **settings)
        self.broker = self.context.broker
        self.factory = IdentityFactory(self.context)

    def arrive(self, **fields: Any) -> WebSocketPeer:
        """Return a new client that was upgraded, its greeting still unread."""
        return WebSocketPeer(self.factory, piece=self.piece).upgrade(**fields)

    def user(self, *channels: str) -> WebSocketPeer:
        """Return a new client that has read its greeting and subscribed to these channels."""
        peer = self.arrive()
        peer.texts()
        for channel in channels:
            self.assertEqual(peer.askText(f"SUBSCRIBE:{channel}"), [f"SUB-ACK:{channel}"])
        return peer


class GreetingTests(IdentityCase):
    """What a client hears first."""

    def test_alone(self) -> None:
        """Its name, and that there are no channels."""
        self.assertEqual(self.arrive().texts(), ["IDENTITY:user-00000000", "CHANNELS:"])

    def test_namesDiffer(self) -> None:
        """Everybody has a name of their own."""
        self.assertEqual([self.arrive().texts()[0] for _ in range(3)], [f"IDENTITY:user-0000000{n}" for n in range(3)])

    def test_channels(self) -> None:
        """The channels that somebody subscribes to, in whatever dialect, if this one can spell them."""
        self.user("news", "alpha")
        other = self.broker.join("fleximq")
        for name in ("sports", "a:b", "a,b", "a b", "gone"):
            self.broker.subscribe(other, _Nobody(), name)
        self.broker.unsubscribe(other, "gone")
        self.assertEqual(self.arrive().texts()[1], "CHANNELS:alpha,news,sports")

    def test_subprotocol(self) -> None:
        """The subprotocol is identity, where the client names it."""
        self.assertIn(b"Sec-WebSocket-Protocol: identity", self.arrive(Sec_WebSocket_Protocol="identity").head)

    def test_refused(self) -> None:
        """A peer that may not come in gets 403 instead."""
        self.configure(admission=REFUSING)
        self.assertIn(REFUSAL.encode(), self.arrive().head)

    def test_full(self) -> None:
        """Where there is no room, it is told so, and to try again later."""
        self.configure(limits=Limits(clients=1))
        self.user()
        frames = self.arrive().frames()
        self.assertEqual(frames[0].payload, b"ERROR:503:the broker has as many clients as it may")
        self.assertEqual(frames[1].payload[:2], b"\x03\xf5")


class SubscriptionTests(IdentityCase):
    """SUBSCRIBE and UNSUBSCRIBE."""

    def test_documentsExamples(self) -> None:
        """The examples of the document, section 2."""
        user = self.user()
        self.assertEqual(user.askText("SUBSCRIBE:news"), ["SUB-ACK:news"])
        self.assertEqual(user.askText("UNSUBSCRIBE:news"), ["UNSUB-ACK:news"])

    def test_again(self) -> None:
        """Subscribing again is acknowledged again, and one copy comes."""
        user = self.user("news", "news")
        self.assertEqual(user.askText("PUBLISH:news:x"), ["MSG:news:user-00000000:x"])

    def test_announced(self) -> None:
        """In a mesh a SUBSCRIBE is acknowledged when the other nodes know of it; later messages wait for that."""
        calls: list[Callable[[], None]] = []
        self.patch(self.broker, "announce", lambda topic, call: calls.append(call))
        user = self.user()
        self.assertEqual(user.askText("SUBSCRIBE:a", "PUBLISH:a:1", "SUBSCRIBE:b", "PUBLISH:b:2"), [])
        self.assertEqual(user.askText("PUBLISH:b:3"), [])
        for expected in (
            ["SUB-ACK:a", "MSG:a:user-00000000:1"],
            ["SUB-ACK:b", "MSG:b:user-00000000:2", "MSG:b:user-00000000:3"],
        ):
            calls.pop()()
            self.clock.advance(0)
            self.assertEqual(user.texts(), expected)
        user.askText("SUBSCRIBE:c", "PUBLISH:c:4")
        user.protocol.connectionLost()
        calls.pop()()
        self.assertEqual((calls, self.broker.topics.hasSubscribers("c")), ([], False))

    def test_acknowledgedNext(self) -> None:
        """The frame after a SUBSCRIBE is its acknowledgement, whatever else one read brings."""
        user = self.user("a")
        self.assertEqual(
            user.askText("PUBLISH:a:1", "SUBSCRIBE:b", "PUBLISH:b:2"),
            ["MSG:a:user-00000000:1", "SUB-ACK:b", "MSG:b:user-00000000:2"],
        )

    def test_acknowledgedBeforeItsOwnNews(self) -> None:
        """That also holds where the SUBSCRIBE itself is news to its sender."""
        user = self.user("$sys/topics/created")
        self.assertEqual(
            user.askText("SUBSCRIBE:fresh"),
            ["SUB-ACK:fresh", 'MSG:$sys/topics/created:fleximq-1:{"topic":"fresh"}'],
        )

    def test_invalidNames(self) -> None:
        """A name must not be empty or hold a comma, white space or control characters."""
        user = self.user()
        for name in ("", "a,b", "has space", "tab\t", "new\nline", "nbsp\xa0", "\u2003", "\u2028", "\x00", "\x85"):
            self.assertEqual(user.askText(f"SUBSCRIBE:{name}"), ["ERROR:400:Invalid channel name"], repr(name))

    def test_longNames(self) -> None:
        """A name of 1,024 bytes passes, one byte more does not."""
        user = self.user()
        for name, fits in (
            ("n" * TOPIC_BYTES, True),
            ("n" * (TOPIC_BYTES + 1), False),
            ("é" * (TOPIC_BYTES // 2), True),
            ("é" * (TOPIC_BYTES // 2) + "n", False),
        ):
            expected = f"SUB-ACK:{name}" if fits else "ERROR:400:Invalid channel name"
            self.assertEqual(user.askText(f"SUBSCRIBE:{name}"), [expected])

    def test_extraFields(self) -> None:
        """What stands behind the channel is ignored."""
        user = self.user()
        self.assertEqual(user.askText("SUBSCRIBE:news:more:fields"), ["SUB-ACK:news"])
        self.assertEqual(user.askText("UNSUBSCRIBE:news:more"), ["UNSUB-ACK:news"])

    def test_literal(self) -> None:
        """No name is a wildcard."""
        user, other = self.user("*", "a/#"), self.user("a/b", "c")
        other.sayText("PUBLISH:a/b:x", "PUBLISH:c:x")
        self.assertEqual(user.texts(), [])
        self.assertEqual(user.askText("PUBLISH:*:x"), ["MSG:*:user-00000000:x"])

    def test_caseSensitive(self) -> None:
        """News is not news."""
        user = self.user("news")
        self.assertEqual(user.askText("PUBLISH:News:x"), ["ERROR:401:Not subscribed"])

    def test_unsubscribe(self) -> None:
        """It ends what comes, for its sender only."""
        user, other = self.user("news"), self.user("news")
        self.assertEqual(user.askText("UNSUBSCRIBE:news"), ["UNSUB-ACK:news"])
        other.sayText("PUBLISH:news:x")
        self.assertEqual(user.texts(), [])
        self.assertEqual(other.texts(), ["MSG:news:user-00000001:x"])

    def test_unsubscribeAlways(self) -> None:
        """It is acknowledged whatever the name."""
        user = self.user()
        for name in ("never", "", "a,b", "has space", "n" * 2000):
            self.assertEqual(user.askText(f"UNSUBSCRIBE:{name}"), [f"UNSUB-ACK:{name}"])

    def test_tooMany(self) -> None:
        """There may be so many subscriptions and no more; ending one makes room."""
        self.configure(limits=Limits(subscriptions=2))
        user = self.user("a", "b")
        self.assertEqual(user.askText("SUBSCRIBE:c"), ["ERROR:429:more than 2 subscriptions"])
        self.assertEqual(user.askText("SUBSCRIBE:a"), ["SUB-ACK:a"])
        self.assertEqual(user.askText("UNSUBSCRIBE:a", "SUBSCRIBE:c"), ["UNSUB-ACK:a", "SUB-ACK:c"])

    def test_leaving(self) -> None:
        """A client that leaves takes its subscriptions with it."""
        self.user("news").leave()
        self.assertEqual(self.arrive().texts()[1], "CHANNELS:")


class PublishTests(IdentityCase):
    """PUBLISH and MSG."""

    def test_documentsExamples(self) -> None:
        """The examples of the document, sections 3, 4 and Extensions."""
        user = self.user("news", "images")
        self.assertEqual(user.askText("PUBLISH:news:Hello world!"), ["MSG:news:user-00000000:Hello world!"])
        self.assertEqual(user.askText("PUBLISH:other:x"), ["ERROR:401:Not subscribed"])
        self.assertEqual(
            user.askText("PUBLISH:news:Hello!||timestamp=1234567890"),
            ["MSG:news:user-00000000:Hello!||timestamp=1234567890"],
        )
        self.assertEqual(user.askText("PUBLISH:images:AAEC/w=="), ["MSG:images:user-00000000:AAEC/w=="])

    def test_everySubscriber(self) -> None:
        """All subscribers get it, the sender included, under the sender's name."""
        users = [self.user("news") for _ in range(3)]
        users[1].sayText("PUBLISH:news:x")
        for user in users:
            self.assertEqual(user.texts(), ["MSG:news:user-00000001:x"])

    def test_verbatim(self) -> None:
        """The message is everything behind the second colon."""
        user = self.user("c")
        for words in ("k:v:1:2", "", ":", " a b ", "l1\nl2", "你好😀", "PUBLISH:c:x", "x" * 200, "x" * 70000):
            self.assertEqual(user.askText(f"PUBLISH:c:{words}"), [f"MSG:c:user-00000000:{words}"])

    def test_orderOfChecks(self) -> None:
        """First the name, then the message, then the subscription."""
        user = self.user()
        self.assertEqual(user.askText("PUBLISH:a b"), ["ERROR:400:Invalid channel name"])
        self.assertEqual(user.askText("PUBLISH:"), ["ERROR:400:Invalid channel name"])
        self.assertEqual(user.askText("PUBLISH::x"), ["ERROR:400:Invalid channel name"])
        self.assertEqual(user.askText("PUBLISH:news"), ["ERROR:400:Missing message"])
        self.assertEqual(user.askText("PUBLISH:news:"), ["ERROR:401:Not subscribed"])

    def test_refusedMakesNoChannel(self) -> None:
        """What was refused brings no topic into being."""
        self.user().sayText("PUBLISH:news:x")
        self.assertIsNone(self.broker.topics.find("news"))

    def test_afterUnsubscribing(self) -> None:
        """Who unsubscribed may publish no more, also where it could before."""
        user = self.user("news")
        self.assertEqual(len(user.askText("PUBLISH:news:x")), 1)
        self.assertEqual(
            user.askText("UNSUBSCRIBE:news", "PUBLISH:news:x"), ["UNSUB-ACK:news", "ERROR:401:Not subscribed"]
        )

    def test_brokersOwn(self) -> None:
        """Only the broker publishes to its topics, though anybody may subscribe."""
        user = self.user("$dead/x", "$other", "$sys/topics/created")
        self.assertEqual(
            user.askText("PUBLISH:$sys/topics/created:x"), ["ERROR:403:only the broker publishes to this topic"]
        )
        self.assertEqual(user.askText("PUBLISH:$dead/x:x"), ["ERROR:403:only the broker publishes to this topic"])
        self.assertEqual(user.askText("PUBLISH:$other:x"), ["MSG:$other:user-00000000:x"])

    def test_presence(self) -> None:
        """What the broker publishes arrives as JSON."""
        user = self.user("$sys/topics/created")
        self.user("fresh")
        self.assertEqual(user.texts(), ['MSG:$sys/topics/created:fleximq-1:{"topic":"fresh"}'])

    def test_notKept(self) -> None:
        """What a full subscription that loses nothing refuses is answered, each message, and the others arrive."""
        self.configure(limits=Limits(queueMessages=2))
        poller = self.broker.join("blipmq")
        subscription = self.broker.openSubscription(poller, None, "news", qos=1)
        user = self.user("news")
        answers = user.askText(*(f"PUBLISH:news:{number}" for number in range(4)))
        self.assertEqual(sorted(each for each in answers if each.startswith("MSG")), [
            "MSG:news:user-00000000:0", "MSG:news:user-00000000:1",
        ])  # fmt: skip
        self.assertEqual([each[:10] for each in answers if not each.startswith("MSG")], ["ERROR:500:"] * 2)
        _, polled = self.broker.subscription(poller, None, subscription.id).poll(poller, 10)
        self.assertEqual([message.payload for message in polled], [b"0", b"1"])

    def test_foreign(self) -> None:
        """What FlexiMQ clients publish arrives as text under their names, and the other way round."""
        flexi = FlexiPeer(FlexiFactory(self.context), HERE, self.piece).join().subscribe("news")
        user = self.user("news")
        flexi.publish("news", "text").publish("news", {"a": [1, None]})
        name = f"fleximq-{flexi.id}"
        self.assertEqual(user.texts(), [f"MSG:news:{name}:text", f'MSG:news:{name}:{{"a":[1,null]}}'])
        flexi.values()
        user.sayText("PUBLISH:news:back", "PUBLISH:news:again")
        self.assertEqual(flexi.values(), ["back", "again"])


class IgnoredTests(IdentityCase):
    """What is passed over in silence."""

    def test_unknownWords(self) -> None:
        """Unknown words, wrong case and words without a colon."""
        user = self.user()
        for word in ("FOO:bar", "garbage", "", ":", "::", "PING", "subscribe:x", "COMPRESS:1", "IDENTITY:bob",
                     "SUBSCRIBE", "UNSUBSCRIBE", "PUBLISH", " SUBSCRIBE:x", "MSG:a:b:c"):  # fmt: skip
            self.assertEqual(user.askText(word), [], word)
        self.assertFalse(user.closed)

    def test_binary(self) -> None:
        """A binary frame is read as text, or ignored if it is none."""
        user = self.user()
        user.say(masked(BINARY, b"\xff\xfe") + masked(BINARY, b"SUBSCRIBE:\xff") + masked(BINARY, b"SUBSCRIBE:news"))
        self.assertEqual(user.texts(), ["SUB-ACK:news"])
        user.say(masked(BINARY, b"PUBLISH:news:\xff") + masked(BINARY, b"PUBLISH:news:x"))
        self.assertEqual(user.texts(), ["MSG:news:user-00000000:x"])


class RunTests(IdentityCase):
    """Neighbouring PUBLISHes go to the broker together."""

    def runs(self) -> list[tuple[str, list[bytes]]]:
        """Return a list that every run which is published is noted in."""
        runs: list[tuple[str, list[bytes]]] = []
        publish = self.broker.publish

        def note(envelope: Envelope, body: Any, count: int, onDecided: Any = None) -> None:
            self.assertEqual(len(body), count)
            runs.append((envelope.topic.name, body))
            publish(envelope, body, count, onDecided)

        self.broker.publish = note  # type: ignore[method-assign]
        return runs

    def test_runs(self) -> None:
        """One run for each channel, as long as only it is published to."""
        user = self.user("a", "b", "ab")
        user.askText("PUBLISH:a:0", "PUBLISH:b:0", "PUBLISH:ab:0")
        runs = self.runs()
        user.say(
            b"".join(map(text, ("PUBLISH:a:1", "PUBLISH:a:2", "PUBLISH:ab:3", "PUBLISH:b:4", "FOO", "PUBLISH:b:5")))
        )
        expected = ["a:1", "a:2", "ab:3", "b:4", "b:5"]
        self.assertEqual(user.texts(), [f"MSG:{each.replace(':', ':user-00000000:')}" for each in expected])
        if not self.piece:
            self.assertEqual(runs, [("a", [b"1", b"2"]), ("ab", [b"3"]), ("b", [b"4"]), ("b", [b"5"])])

    def test_errorBetween(self) -> None:
        """An error stands between the answers to its neighbours."""
        user = self.user("a")
        user.askText("PUBLISH:a:0")
        self.assertEqual(
            user.askText("PUBLISH:a:1", "PUBLISH:x:2", "PUBLISH:a", "PUBLISH:a:3"),
            ["MSG:a:user-00000000:1", "ERROR:401:Not subscribed", "ERROR:400:Missing message", "MSG:a:user-00000000:3"],
        )

    def test_colonsInMessages(self) -> None:
        """A message that looks like another channel's is none."""
        user = self.user("a", "a/b")
        self.assertEqual(
            user.askText("PUBLISH:a:x", "PUBLISH:a::b", "PUBLISH:a/b:a:", "PUBLISH:a:PUBLISH:a:"),
            [f"MSG:{each}" for each in ("a:user-00000000:x", "a:user-00000000::b", "a/b:user-00000000:a:",
                                        "a:user-00000000:PUBLISH:a:")],
        )  # fmt: skip

    def test_slowReader(self) -> None:
        """Texts for one that does not keep up are made when all others were written to; it gets them in order."""
        order: list[str] = []
        render = IdentityForm.render

        def rendering(form: IdentityForm, envelope: Envelope, body: Any, count: int) -> bytes:
            order.append("rendered")
            return render(form, envelope, body, count)

        self.patch(IdentityForm, "render", rendering)
        slow = self.user("a")
        factory = FlexiFactory(self.context)
        other, publisher = FlexiPeer(factory).join().subscribe("a"), FlexiPeer(factory).join()
        write = other.transport.write

        def writing(data: bytes) -> None:
            order.append("written")
            write(data)

        self.patch(other.transport, "write", writing)
        producer: Any = slow.transport.producer
        producer.pauseProducing()
        publisher.publish("a", "1").publish("a", "2")
        self.assertEqual(order, ["written", "rendered"] * 2)
        producer.resumeProducing()
        self.assertEqual(slow.texts(), [f"MSG:a:fleximq-{publisher.id}:{text}" for text in "12"])


class ConnectionTests(IdentityCase):
    """Limits, keep-alive and the end."""

    def test_limit(self) -> None:
        """A text of the limit passes, a longer one closes with 1009, in whatever frame it comes."""
        self.configure(limits=Limits(text=KIBIBYTE))
        start = "PUBLISH:c:"
        user = self.user("c")
        self.assertEqual(len(user.askText(start + "x" * (KIBIBYTE - len(start)))), 1)
        for frame in (
            text(start + "x" * (KIBIBYTE + 1 - len(start))),
            masked(TEXT, deflated(start.encode() + b"x" * (KIBIBYTE + 1 - len(start))), rsv=4),
        ):
            peer = self.arrive(Sec_WebSocket_Extensions=DEFLATE)
            peer.sayText("SUBSCRIBE:c").texts()
            peer.say(frame)
            self.assertEqual(peer.closeCode(), 1009)

    def test_compressed(self) -> None:
        """What comes in may be compressed; what goes out never is."""
        user = self.arrive(Sec_WebSocket_Extensions=DEFLATE)
        user.say(masked(TEXT, deflated(b"SUBSCRIBE:news"), rsv=4))
        self.assertEqual(user.texts()[2:], ["SUB-ACK:news"])

    def test_noUtf8(self) -> None:
        """A text frame that is none closes with 1007, as RFC 6455 wants it."""
        user = self.user()
        user.say(masked(TEXT, b"SUBSCRIBE:\xff"))
        self.assertEqual(user.closeCode(), 1007)

    def test_ping(self) -> None:
        """A client's PING is answered in order."""
        user = self.user("c")
        user.say(text("PUBLISH:c:1") + masked(PING, b"?") + text("PUBLISH:c:2"))
        self.assertEqual([frame.opcode for frame in user.frames()], [TEXT, PONG, TEXT])

    def test_keepAlive(self) -> None:
        """A silent client is pinged after an interval; one that answers stays."""
        self.configure(keepalive=10.0)
        user = self.user()
        for _ in range(10):
            self.clock.advance(10.0)
            self.assertEqual(user.frames(), [Frame(PING, b"")])
            user.say(masked(PONG))
        self.assertFalse(user.closed)

    def test_dead(self) -> None:
        """One that is silent for three intervals is closed, and then dropped."""
        self.configure(keepalive=10.0)
        user = self.user()
        self.clock.pump([10.0, 10.0, 9.9])
        self.assertEqual({frame.opcode for frame in user.frames()}, {PING})
        self.clock.advance(0.1)
        self.clock.advance(0)
        self.assertEqual(user.closeCode(), 1001)
        self.clock.advance(LINGER)
        self.assertTrue(user.aborted)
        user.leave()
        self.assertEqual(self.broker.counts.events["left: keep-alive"], 1)

    def test_nothingLeftBehind(self) -> None:
        """A client that is gone leaves no timer."""
        self.user("c").leave()
        self.assertEqual(len(self.broker.deadlines), 0)

    def test_closing(self) -> None:
        """A client's close frame is answered behind its messages."""
        user = self.user("c")
        user.say(text("PUBLISH:c:1") + masked(CLOSE, b"\x03\xe8"))
        self.assertEqual([frame.opcode for frame in user.frames()], [TEXT, CLOSE])
        self.assertTrue(user.closed)


class AnyBytesTests(SynchronousTestCase):
    """Whatever a client says."""

    @settings(max_examples=repetitions(80, 1000), deadline=None)
    @given(st.lists(st.tuples(st.sampled_from(["SUBSCRIBE:", "UNSUBSCRIBE:", "PUBLISH:", ""]), st.text(max_size=20))))
    def test_anyTexts(self, said: list[tuple[str, str]]) -> None:
        """Arbitrary texts close nothing, log no error, and every answer is one of the document's."""
        user = WebSocketPeer(IdentityFactory(makeContext(Clock()))).upgrade()
        answers = user.askText(*(word + rest for word, rest in said))
        self.assertTrue({each.partition(":")[0] for each in answers} <= {
            "IDENTITY", "CHANNELS", "SUB-ACK", "UNSUB-ACK", "MSG", "ERROR",
        })  # fmt: skip
        self.assertFalse(user.closed)
        self.assertEqual(self.flushLoggedErrors(), [])

    @settings(deadline=None)
    @given(st.lists(st.tuples(st.sampled_from("abc"), st.text(max_size=30)), max_size=20))
    def test_anyRuns(self, said: list[tuple[str, str]]) -> None:
        """However channels alternate, everything arrives in order."""
        user = WebSocketPeer(IdentityFactory(makeContext(Clock()))).upgrade()
        user.askText("SUBSCRIBE:a", "SUBSCRIBE:b", "SUBSCRIBE:c")
        heard = user.askText(*(f"PUBLISH:{channel}:{words}" for channel, words in said))
        self.assertEqual(heard, [f"MSG:{channel}:user-00000000:{words}" for channel, words in said])

    def test_interface(self) -> None:
        """A session is a subscriber."""
        peer = WebSocketPeer(IdentityFactory(makeContext(Clock())))
        verifyObject(ISubscriber, peer.protocol.session)
        self.assertIsInstance(peer.protocol.session, IdentitySession)
        self.assertIsInstance(peer.protocol.session.outbox, WebSocketOutbox)


@implementer(ISubscriber)
class _Nobody:
    """A subscriber that takes nothing."""

    form: Any = None

    def deliver(self, rendered: Any, count: int) -> None:
        """Drop it."""


globals().update(inPieces(RunTests))
