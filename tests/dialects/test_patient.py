"""Peers that ask for more than they read, in the dialects that send only what was asked for."""

from typing import Any

from twisted.internet.protocol import Factory
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from fleximq.dialects.blipmq import BlipFactory
from fleximq.dialects.minimq import MiniFactory
from fleximq.dialects.patient import PatientProtocol, Reason
from fleximq.limits import Limits
from tests.dialects.blipmq import auth, hello, ping, pong
from tests.dialects.conversations import ConversationCase, Peer, makeContext


class UnreadTests(ConversationCase):
    """A peer whose transport takes nothing more."""

    def assertPatience(self, factory: Factory[Any], greeting: bytes, question: bytes, answer: bytes) -> None:
        """Questions are answered up to the limit, then left unread, and no answer is lost."""
        peer = Peer(factory)
        peer.ask(greeting)
        peer.transport.producer.pauseProducing()
        peer.say(question)
        self.assertFalse(peer.paused)
        while not peer.paused:
            peer.say(question)
        self.assertFalse(peer.closed)
        self.assertEqual(peer.heard(), b"")
        peer.transport.producer.resumeProducing()
        self.assertFalse(peer.paused)
        answers = peer.heard()
        self.assertEqual(answers, answer * (len(answers) // len(answer)))
        self.assertTrue(answers)

    def context(self) -> Any:
        """Return a context in which a connection may leave 1,000 bytes more unread than the transport holds."""
        return makeContext(Clock(), limits=Limits(outboxBytes=1000))

    def test_blipmq(self) -> None:
        """BlipMQ does not disconnect it."""
        self.assertPatience(BlipFactory(self.context()), hello() + auth(), ping(5), pong(5))

    def test_minimq(self) -> None:
        """Nor does MiniMQ."""
        self.assertPatience(MiniFactory(self.context()), b"PING:\n", b"PING:\n", b"PONG:\n")

    def test_leaves(self) -> None:
        """Such a peer may go."""
        peer = Peer(MiniFactory(self.context()))
        peer.say(b"PING:\n").transport.producer.pauseProducing()
        while not peer.paused:
            peer.say(b"PING:\n")
        peer.leave()
        self.assertEqual(peer.protocol.outbox.waiting, 0)


class ReasonTests(SynchronousTestCase):
    """More than one reason not to read."""

    def setUp(self) -> None:
        """Connect somebody."""
        self.peer = Peer(MiniFactory(makeContext(Clock())))
        self.protocol: PatientProtocol = self.peer.protocol

    def test_all(self) -> None:
        """Reading goes on when every reason was taken back."""
        self.protocol.reading.stop(Reason.UNREAD)
        self.protocol.reading.stop(Reason.UNANSWERED)
        self.protocol.reading.go(Reason.UNREAD)
        self.assertTrue(self.peer.paused)
        self.protocol.reading.go(Reason.UNANSWERED)
        self.assertFalse(self.peer.paused)

    def test_once(self) -> None:
        """A reason given twice is taken back once."""
        self.protocol.reading.stop(Reason.UNREAD)
        self.protocol.reading.stop(Reason.UNREAD)
        self.protocol.reading.go(Reason.UNREAD)
        self.assertFalse(self.peer.paused)

    def test_needless(self) -> None:
        """Taking back what was not given changes nothing."""
        self.protocol.reading.stop(Reason.UNREAD)
        self.protocol.reading.go(Reason.UNANSWERED)
        self.assertTrue(self.peer.paused)
