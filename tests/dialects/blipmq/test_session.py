"""BlipMQ conversations: the handshake, what is refused, PING, and the end."""

from fleximq.dialects.blipmq import BlipFactory
from fleximq.dialects.blipmq.protocol import BlipProtocol
from fleximq.limits import Limits
from fleximq.wire.blipmq_frame import FrameType, encodeFrame
from tests.dialects.admissions import REFUSAL, REFUSING
from tests.dialects.blipmq.case import (
    BlipCase,
    ack,
    auth,
    hello,
    nack,
    ping,
    poll,
    pong,
    publish,
    subscribe,
)
from tests.dialects.conversations import inPieces, makeContext
from tests.slow_journal import SlowJournal

UNAUTHENTICATED = "unauthenticated"


class ExampleTests(BlipCase):
    """The frames printed in the document, "Hex-Encoded Sample Frames"."""

    HELLO = bytes.fromhex("00 00 00 0B 01 00 00 00 00 00 00 00 01 00 01")
    AUTH = bytes.fromhex("00 00 00 12 02 00 00 00 00 00 00 00 02 00 07 64 65 76 2D 6B 65 79")
    SUBSCRIBE = bytes.fromhex("00 00 00 10 04 00 00 00 00 00 00 00 03 00 04 64 65 6D 6F 01")
    PUBLISH = bytes.fromhex("00 00 00 12 03 00 00 00 00 00 00 00 04 01 00 04 64 65 6D 6F 68 69")
    ACK_OF_SUBSCRIBE = bytes.fromhex("00 00 00 11 05 00 00 00 00 00 00 00 03 00 00 00 00 00 00 00")

    def test_conversation(self) -> None:
        """They make one conversation; the subscription's id is the only byte that the document leaves open."""
        peer = self.connect(self.factory)
        self.assertEqual(peer.ask(self.HELLO), ack(1))
        self.assertEqual(peer.ask(self.AUTH), ack(2))
        self.assertEqual(peer.ask(self.SUBSCRIBE), self.ACK_OF_SUBSCRIBE + b"\x01")
        self.assertEqual(peer.ask(self.PUBLISH), b"")
        self.assertEqual(peer.ask(poll(1)), publish("demo", b"hi", 1, correlation=1))

    def test_pipelined(self) -> None:
        """All of them may be sent at once."""
        peer = self.connect(self.factory)
        said = self.HELLO + self.AUTH + self.SUBSCRIBE + self.PUBLISH
        self.assertEqual(peer.ask(said), ack(1) + ack(2) + self.ACK_OF_SUBSCRIBE + b"\x01")


class HandshakeTests(BlipCase):
    """HELLO and AUTH."""

    def test_everythingElseBeforeHello(self) -> None:
        """Before AUTH every other frame gets 401, even an ACK, NACK, PONG or a malformed one."""
        peer = self.connect(self.factory)
        for kind in FrameType:
            if kind not in (FrameType.HELLO, FrameType.AUTH):
                self.assertEqual(peer.ask(encodeFrame(kind, 7, b"x")), nack(7, 401, UNAUTHENTICATED), kind)

    def test_everythingElseBeforeAuth(self) -> None:
        """A HELLO changes nothing about that."""
        peer = self.connect(self.factory)
        peer.ask(hello())
        for kind in FrameType:
            if kind not in (FrameType.HELLO, FrameType.AUTH):
                self.assertEqual(peer.ask(encodeFrame(kind, 7, b"x")), nack(7, 401, UNAUTHENTICATED), kind)

    def test_runBeforeAuth(self) -> None:
        """Each frame of a run is refused under its own correlation id."""
        said = b"".join(publish("t", b"x", 0, correlation) for correlation in (5, 6, 7))
        answers = b"".join(nack(correlation, 401, UNAUTHENTICATED) for correlation in (5, 6, 7))
        self.assertEqual(self.connect(self.factory).ask(said), answers)

    def test_authBeforeHello(self) -> None:
        """AUTH needs a HELLO first, whatever is in it."""
        peer = self.connect(self.factory)
        self.assertEqual(peer.ask(auth(8)), nack(8, 400, "HELLO not performed"))
        self.assertEqual(peer.ask(encodeFrame(FrameType.AUTH, 9, b"x")), nack(9, 400, "HELLO not performed"))

    def test_wrongVersion(self) -> None:
        """Another version gets 426, and the client may try again."""
        peer = self.connect(self.factory)
        self.assertEqual(peer.ask(hello(9, version=2)), nack(9, 426, "unsupported protocol version"))
        self.assertEqual(peer.ask(auth(10)), nack(10, 400, "HELLO not performed"))
        self.assertEqual(peer.ask(hello(11)), ack(11))

    def test_malformedHello(self) -> None:
        """A HELLO is exactly two bytes."""
        peer = self.connect(self.factory)
        for payload in (b"", b"\0", b"\0\1\0"):
            answer = peer.ask(encodeFrame(FrameType.HELLO, 5, payload))
            self.assertEqual(answer, nack(5, 400, "invalid HELLO payload"))

    def test_secondHello(self) -> None:
        """A second HELLO is an error, before AUTH and after it, even a malformed one."""
        peer = self.connect(self.factory)
        peer.ask(hello())
        self.assertEqual(peer.ask(hello(5)), nack(5, 400, "HELLO already performed"))
        self.assertEqual(peer.ask(auth()), ack(2))
        self.assertEqual(peer.ask(hello(6)), nack(6, 400, "HELLO already performed"))
        self.assertEqual(peer.ask(encodeFrame(FrameType.HELLO, 7, b"x")), nack(7, 400, "HELLO already performed"))

    def test_malformedAuth(self) -> None:
        """A malformed AUTH gets 400, and the client may try again."""
        peer = self.connect(self.factory)
        peer.ask(hello())
        for payload in (b"", b"\0", b"\0\2x", b"\0\1xy", b"\0\1\xff"):
            answer = peer.ask(encodeFrame(FrameType.AUTH, 12, payload))
            self.assertEqual(answer, nack(12, 400, "invalid AUTH payload"))
        self.assertEqual(peer.ask(auth(13)), ack(13))

    def test_secondAuth(self) -> None:
        """A second AUTH is an error."""
        self.assertEqual(self.login().ask(auth(14)), nack(14, 400, "already authenticated"))

    def test_anyKey(self) -> None:
        """With no keys configured, any key passes, the empty one included."""
        self.login("")
        self.login("ключ")

    def test_joins(self) -> None:
        """The client is known to the broker from AUTH on."""
        peer = self.connect(self.factory)
        peer.ask(hello())
        self.assertEqual(len(self.context.broker.clients), 0)
        peer.ask(auth())
        self.assertEqual([client.name for client in self.context.broker.clients], ["blipmq-1000"])

    def test_keyIsNowhere(self) -> None:
        """The key itself is not kept: neither by the broker nor by the session."""
        session = self.login("a-very-secret-key").protocol.session
        self.assertNotIn("a-very-secret-key", repr(vars(session)) + repr(list(self.context.broker.clients)))

    def test_refusedPeer(self) -> None:
        """A peer that may not come in is told so as the answer to AUTH, and the connection closes."""
        self.factory = BlipFactory(makeContext(self.clock, admission=REFUSING))
        peer = self.connect(self.factory)
        self.assertEqual(peer.ask(hello()), ack(1))
        self.assertEqual(peer.ask(auth(5) + ping(6)), nack(5, 401, REFUSAL))
        self.assertTrue(peer.closed)

    def test_full(self) -> None:
        """A broker with as many clients as it may answers AUTH with 500; the client may try again later."""
        self.listen(limits=Limits(clients=1))
        first, second = self.login(), self.connect(self.factory)
        second.ask(hello())
        self.assertEqual(second.ask(auth(5)), nack(5, 500, "the broker has as many clients as it may"))
        first.leave()
        self.assertEqual(second.ask(auth(6)), ack(6))


class DeadlineTests(BlipCase):
    """The handshake deadline."""

    def test_untilAuth(self) -> None:
        """It runs until AUTH, HELLO or not."""
        self.listen(handshakeTimeout=5.0)
        peer = self.connect(self.factory)
        peer.ask(hello())
        self.clock.advance(4.9)
        self.assertFalse(peer.closed)
        self.clock.advance(0.1)
        self.assertTrue(peer.closed)

    def test_afterAuth(self) -> None:
        """A client that has authenticated may be silent for as long as it likes."""
        peer = self.login()
        self.clock.advance(3600)
        self.assertFalse(peer.closed)


class RefusedPublishTests(BlipCase):
    """What a PUBLISH or SUBSCRIBE cannot say."""

    def test_publish(self) -> None:
        """Shape comes before the empty topic, and that before the QoS."""
        peer = self.login()
        for payload, words in (
            (b"", "invalid PUBLISH payload"),
            (b"\0\0", "invalid PUBLISH payload"),
            (b"\2\0\2t", "invalid PUBLISH payload"),
            (b"\2\0\1\xff", "invalid PUBLISH payload"),
            (b"\2\0\0x", "empty topic"),
            (b"\2\0\1tx", "invalid QoS value"),
        ):
            self.assertEqual(peer.ask(encodeFrame(FrameType.PUBLISH, 20, payload)), nack(20, 400, words), payload)

    def test_subscribe(self) -> None:
        """The same for a SUBSCRIBE."""
        peer = self.login()
        for payload, words in (
            (b"", "invalid SUBSCRIBE payload"),
            (b"\0\1t", "invalid SUBSCRIBE payload"),
            (b"\0\1\xff\2", "invalid SUBSCRIBE payload"),
            (b"\0\0\2", "empty topic"),
            (b"\0\1t\2", "invalid QoS value"),
        ):
            self.assertEqual(peer.ask(encodeFrame(FrameType.SUBSCRIBE, 21, payload)), nack(21, 400, words), payload)

    def test_trailingBytes(self) -> None:
        """SUBSCRIBE tolerates bytes behind it."""
        self.assertEqual(self.login().ask(encodeFrame(FrameType.SUBSCRIBE, 3, b"\0\1t\1more")), ack(3, 1))

    def test_longTopic(self) -> None:
        """A topic of 1,024 bytes is carried, a longer one gets 400."""
        peer = self.login()
        most = "é" * 512
        self.assertEqual(peer.ask(publish(most, b"x") + subscribe(most)), ack(3, 1))
        words = "topic is longer than 1024 bytes"
        answers = nack(5, 400, words) + nack(6, 400, words)
        self.assertEqual(peer.ask(publish(most + "x", b"x", correlation=5) + subscribe(most + "x", 1, 6)), answers)

    def test_brokersTopics(self) -> None:
        """Nobody but the broker publishes to ``$sys/`` and ``$dead/``; other topics with a dollar are free."""
        peer = self.login()
        for topic in ("$sys/x", "$dead/x"):
            self.assertEqual(peer.ask(publish(topic, b"x", 0, 5)), nack(5, 401, "not permitted"))
        self.assertEqual(peer.ask(publish("$other/x", b"x", 0, 6) + ping(7)), pong(7))

    def test_connectionLivesOn(self) -> None:
        """None of this ends the connection."""
        peer = self.login()
        peer.ask(publish("", b"x") + encodeFrame(FrameType.POLL, 5, b"x"))
        self.assertEqual(peer.ask(ping(9)), pong(9))

    def test_manySubscriptions(self) -> None:
        """A client with as many subscriptions as it may gets 500 for one more."""
        self.listen(limits=Limits(subscriptions=2))
        peer = self.login()
        answers = peer.ask(subscribe("a") + subscribe("b") + subscribe("c", correlation=9))
        self.assertEqual(answers, ack(3, 1) + ack(3, 2) + nack(9, 500, "more than 2 subscriptions"))

    def test_manySubscriptionsInAll(self) -> None:
        """So it does where all clients together have as many as they may."""
        self.listen(limits=Limits(queues=1))
        self.login().ask(subscribe("a"))
        answer = self.login().ask(subscribe("b", correlation=9))
        self.assertEqual(answer, nack(9, 500, "there are 1 subscriptions already"))

    def test_counted(self) -> None:
        """What was refused is counted by its status."""
        self.login().ask(publish("", b"x"))
        self.assertEqual(self.context.broker.counts.events["error: 400"], 1)


class PingTests(BlipCase):
    """PING, and what else is ignored."""

    def test_pong(self) -> None:
        """A PONG has the correlation id of its PING and no payload, whatever the PING carried."""
        self.assertEqual(self.login().ask(ping(2**64 - 1, b"abc")), pong(2**64 - 1))

    def test_ignored(self) -> None:
        """A client's PONG and NACK are ignored."""
        self.assertEqual(self.login().ask(pong(1) + nack(2, 500, "x") + encodeFrame(FrameType.NACK, 3)), b"")


class SafetyTests(BlipCase):
    """The PONG as a confirmation."""

    def setUp(self) -> None:
        """Let the journal wait."""
        super().setUp()
        self.journal = SlowJournal()
        self.listen(journal=self.journal)

    def test_waits(self) -> None:
        """A PONG comes when what was published with QoS1 before it is safe."""
        peer = self.login()
        self.assertEqual(peer.ask(publish("t", b"x") + ping(5)), b"")
        self.journal.commit()
        self.clock.advance(0)
        self.assertEqual(peer.heard(), pong(5))

    def test_quality0(self) -> None:
        """QoS0 promises nothing, so there is nothing to wait for."""
        self.assertEqual(self.login().ask(publish("t", b"x", 0) + ping(5)), pong(5))

    def test_laterAnswers(self) -> None:
        """Answers behind such a PONG wait for it, so that all come in the order of the questions."""
        peer = self.login()
        asked = publish("t", b"x") + ping(5) + publish("", b"x", correlation=6) + subscribe("t", correlation=7)
        self.assertEqual(peer.ask(asked), b"")
        self.journal.commit()
        self.clock.advance(0)
        self.assertEqual(peer.heard(), pong(5) + nack(6, 400, "empty topic") + ack(7, 1))

    def test_subscribe(self) -> None:
        """A SUBSCRIBE waits for what this client published before, so that the subscription does not get that."""
        peer = self.login()
        asked = publish("t", b"x") + subscribe("t", correlation=7) + publish("t", b"y") + poll(1)
        self.assertEqual(peer.ask(asked), b"")
        for _ in range(2):
            self.journal.commit()
            self.clock.advance(0)
        self.assertEqual(peer.heard(), ack(7, 1) + publish("t", b"y", correlation=1))

    def test_halfClosed(self) -> None:
        """A peer that has ended its input gets the PONG before the connection closes."""
        peer = self.login()
        peer.say(publish("t", b"x") + ping(5)).endInput()
        self.assertFalse(peer.closed)
        self.journal.commit()
        self.clock.advance(0)
        self.assertEqual(peer.heard(), pong(5))
        self.assertTrue(peer.closed)

    def test_badFrame(self) -> None:
        """So does one whose next frame is none."""
        peer = self.login()
        peer.say(publish("t", b"x") + ping(5) + bytes(4))
        self.assertFalse(peer.closed)
        self.journal.commit()
        self.clock.advance(0)
        self.assertEqual(peer.heard(), pong(5))
        self.assertTrue(peer.closed)

    def test_patience(self) -> None:
        """A journal that never commits does not keep such a connection for ever."""
        peer = self.login()
        peer.say(publish("t", b"x") + ping(5)).endInput()
        self.clock.advance(10)
        self.assertTrue(peer.closed)

    def test_lost(self) -> None:
        """A connection that is lost meanwhile is no trouble."""
        peer = self.login()
        peer.say(publish("t", b"x") + ping(5)).leave()
        self.journal.commit()
        self.clock.advance(0)
        self.assertEqual(peer.heard(), b"")


class FramingTests(BlipCase):
    """What is no frame."""

    def test_closes(self) -> None:
        """A bad length or type closes the connection, after all before it was answered and with no word of its own."""
        for bad in (
            bytes(4),
            (8).to_bytes(4, "big") + bytes(8),
            ((16 << 20) + 1).to_bytes(4, "big"),
            (9).to_bytes(4, "big") + b"\x0a" + bytes(8),
            (9).to_bytes(4, "big") + b"\x00" + bytes(8),
        ):
            peer = self.login()
            self.assertEqual(peer.ask(ping(5) + bad + ping(6)), pong(5), bad)
            self.assertTrue(peer.closed, bad)

    def test_reason(self) -> None:
        """The reason is counted."""
        self.login().say(bytes(4))
        self.assertEqual(self.context.broker.counts.events["error: 400"], 1)

    def test_beforeHello(self) -> None:
        """The same holds for the very first bytes."""
        peer = self.connect(self.factory)
        self.assertEqual(peer.ask(bytes(4)), b"")
        self.assertTrue(peer.closed)


class LargeFrameTests(BlipCase):
    """The largest frame."""

    def test_largest(self) -> None:
        """A frame of exactly 16 MiB is carried, both ways."""
        peer = self.login()
        id = self.subscribed(peer, "t")
        message = b"x" * ((16 << 20) - 9 - 3 - 1)
        peer.say(publish("t", message))
        self.assertTrue(peer.ask(poll(id)) == publish("t", message, 1, correlation=1))

    def test_announced(self) -> None:
        """Nothing is set aside for an announced length."""
        peer = self.login()
        peer.say((16 << 20).to_bytes(4, "big") + b"\3")
        self.assertEqual(peer.protocol.session._scanner.buffered, 5)


class EndTests(BlipCase):
    """How connections end."""

    def test_halfClosed(self) -> None:
        """A peer that ends its input gets its answers, then the connection closes."""
        peer = self.login()
        peer.say(ping(5)).endInput()
        self.assertEqual(peer.heard(), pong(5))
        self.assertTrue(peer.closed)

    def test_leaves(self) -> None:
        """A client whose connection is lost is no client any more."""
        self.login().leave()
        self.assertEqual(len(self.context.broker.clients), 0)

    def test_internalError(self) -> None:
        """What nobody foresaw is answered by 500 under the frame's correlation id, logged, and ends the connection."""
        peer = self.login()
        self.patch(self.context.broker, "openSubscription", _break)
        self.assertEqual(peer.ask(subscribe("t", correlation=5) + ping(6)), nack(5, 500, "internal error"))
        self.assertTrue(peer.closed)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_otherConnections(self) -> None:
        """And it is that connection only."""
        other, peer = self.login(), self.login()
        self.patch(self.context.broker, "openSubscription", _break)
        peer.say(subscribe("t"))
        self.flushLoggedErrors(ZeroDivisionError)
        self.assertEqual(other.ask(ping(5)), pong(5))


def _break(*arguments: object) -> None:
    raise ZeroDivisionError


class QuickAckTests(BlipCase):
    """Immediate acknowledgements."""

    def test_everyRead(self) -> None:
        """They are asked for after every read, once it was worked through."""
        peer = self.login()
        asked: list[bytes] = []
        self.patch(peer.protocol, "_quickAck", lambda: asked.append(peer.heard()))
        peer.protocol.dataReceived(ping(5))
        peer.protocol.dataReceived(ping(6))
        self.assertEqual(asked, [pong(5), pong(6)])

    def test_protocol(self) -> None:
        """The factory builds the protocol that does so."""
        self.assertIsInstance(self.login().protocol, BlipProtocol)


globals().update(inPieces(ExampleTests))
