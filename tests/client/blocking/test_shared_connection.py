"""One socket between several threads: nobody is left waiting, and no message is torn."""

import signal
import socket
import threading
import time

from twisted.trial.unittest import SynchronousTestCase

from fleximq.client.blocking import shared_connection
from fleximq.client.blocking.shared_connection import TRANSITIONS, SharedConnection, WireEvent, WireState
from fleximq.client.errors import ConnectionLost
from fleximq.client.events import Delivery, Event
from fleximq.client.protocol.conversation import Conversation
from fleximq.values.transitions import UnexpectedEvent
from tests.client.scripted import PATIENCE, InThread, Peer
from tests.wire.flexi_frames import Heard

LARGE = 8 << 20


class WireSocketCase(SynchronousTestCase):
    """A wire socket, and a peer at its other end."""

    def setUp(self) -> None:
        """Connect two sockets."""
        ours, theirs = socket.socketpair()
        self.peer = Peer(theirs)
        self.heard: list[Event] = []
        self.isFull = False
        self.conversation = Conversation()
        self.conversation.id = 1000
        self.wire = SharedConnection(ours, self.conversation, self.heard.append, self.heard.extend, lambda: self.isFull)
        self.addCleanup(self.wire.close)
        self.addCleanup(self.peer.hangUp)

    def waitFor(self, count: int, timeout: float = PATIENCE, needed: bool = True) -> bool:
        """Wait until so much was heard."""
        return self.wire.waitFor(lambda: len(self.heard) >= count, timeout, needed)


class ReadingTests(WireSocketCase):
    """Whoever waits reads."""

    def test_one(self) -> None:
        """A single thread reads for itself."""
        self.peer.publish("a", 1)
        self.assertTrue(self.waitFor(1))

    def test_result(self) -> None:
        """What is returned is what was ready."""
        self.peer.publish("a", 1)
        found = self.wire.waitFor(lambda: self.heard and self.heard[0], PATIENCE)
        assert isinstance(found, Delivery)
        self.assertEqual(found.value, 1)

    def test_timeout(self) -> None:
        """Nothing comes in time; the connection goes on."""
        self.assertFalse(self.waitFor(1, 0.001))
        self.peer.publish("a", 1)
        self.assertTrue(self.waitFor(1))

    def test_noTime(self) -> None:
        """Without any time, what has come already is read."""
        self.peer.publish("a", 1)
        self.assertTrue(self.waitFor(1, 0))
        self.assertFalse(self.waitFor(2, 0))

    def test_signal(self) -> None:
        """A signal is heard by who waits without end, even if the system gives it to another thread."""

        class Interrupted(Exception):
            pass

        def interrupt(*_: object) -> None:
            raise Interrupted

        def give() -> None:
            time.sleep(0.1)  # the wait has begun, or begins with it: both have to end
            signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)

        self.addCleanup(signal.signal, signal.SIGUSR1, signal.signal(signal.SIGUSR1, interrupt))
        late = threading.Timer(PATIENCE / 4, self.peer.publish, ("a", 1))
        late.start()
        self.addCleanup(late.cancel)
        other = InThread(give)
        self.assertRaises(Interrupted, self.wire.waitFor, lambda: self.heard, None)
        other.result()
        self.assertEqual(self.heard, [])

    def test_several(self) -> None:
        """Of several that wait each gets what it waits for, whoever reads it."""
        threads = [InThread(lambda n=n: self.waitFor(n)) for n in (3, 1, 2, 4)]  # type: ignore[misc]
        for n in range(4):
            self.peer.publish("a", n)
        self.assertEqual([each.result() for each in threads], [True] * 4)

    def test_successor(self) -> None:
        """When the one who reads has waited long enough, another one reads on."""
        entered = threading.Event()

        def ready() -> bool:
            entered.set()
            return len(self.heard) >= 1

        first = InThread(lambda: self.waitFor(1, 0.05))
        second = InThread(lambda: self.wire.waitFor(ready, PATIENCE))
        entered.wait(PATIENCE)
        self.assertFalse(first.result())
        self.peer.publish("a", 1)
        self.assertTrue(second.result())

    def test_wakened(self) -> None:
        """Who is full and needs nothing is told when something was taken."""
        self.isFull = True
        self.peer.publish("a", 1)
        entered = threading.Event()

        def ready() -> bool:
            entered.set()
            return bool(self.heard)

        waiting = InThread(lambda: self.wire.waitFor(ready, PATIENCE, needed=False))
        entered.wait(PATIENCE)
        self.assertFalse(self.waitFor(1, 0.01, needed=False))
        self.assertEqual(self.heard, [])
        with self.wire.lock:
            self.isFull = False
            self.wire.wake()
        self.assertTrue(waiting.result())

    def test_needed(self) -> None:
        """Who needs an answer reads although it is full."""
        self.isFull = True
        self.peer.publish("a", 1)
        self.assertTrue(self.waitFor(1))

    def test_stuck(self) -> None:
        """Who is full and needs nothing still finds out that the connection has ended."""
        self.patch(shared_connection, "_FULL_CHECK_SECONDS", 0.01)
        self.isFull = True
        self.peer.hangUp()
        self.assertRaises(ConnectionLost, self.waitFor, 1, PATIENCE, False)

    def test_brokenHeard(self) -> None:
        """An error of who hears ends the connection: what came behind it is lost."""
        self.wire._onDeliveries = lambda run: 1 / 0  # type: ignore[assignment]
        self.peer.publish("a", 1)
        self.assertRaises(ZeroDivisionError, self.waitFor, 1)
        self.assertRaises(ConnectionLost, self.waitFor, 1)

    def test_brokenReady(self) -> None:
        """An error of who asks is his own; others go on."""
        self.assertRaises(ZeroDivisionError, self.wire.waitFor, lambda: 1 / 0, PATIENCE)
        self.peer.publish("a", 1)
        self.assertTrue(self.waitFor(1))


class EndTests(WireSocketCase):
    """The connection ends."""

    def test_before(self) -> None:
        """What came before the end is heard, then the end."""
        self.peer.publish("a", 1)
        self.peer.hangUp()
        self.assertTrue(self.waitFor(1))
        self.assertRaises(ConnectionLost, self.waitFor, 2)
        self.assertTrue(self.waitFor(1))

    def test_garbage(self) -> None:
        """What is no FlexiMQ ends it; what came before in the same piece is heard."""
        self.peer.publish("a", 1)
        self.peer.stream.sendall(b"\x02" + bytes(40))
        error = self.assertRaises(ConnectionLost, self.waitFor, 2)
        self.assertIn("not FlexiMQ", str(error))
        self.assertEqual(len(self.heard), 1)

    def test_all(self) -> None:
        """All who wait are told, whoever notices."""
        threads = [InThread(lambda: self.waitFor(1)) for _ in range(4)]
        self.peer.hangUp()
        for each in threads:
            self.assertRaises(ConnectionLost, each.result)

    def test_closed(self) -> None:
        """AsyncClosedOnExit tells all who wait, and can be done twice."""
        threads = [InThread(lambda: self.waitFor(1)) for _ in range(4)]
        self.wire.close()
        self.wire.close()
        for each in threads:
            self.assertIn("closed", str(self.assertRaises(ConnectionLost, each.result)))
        self.assertRaises(ConnectionLost, self.wire.send, b"x")

    def test_saidBeforeTheEnd(self) -> None:
        """Where sending fails, what the broker said before it closed is heard first."""
        self.peer.refuse(413)
        self.peer.hangUp()
        self.assertRaises(ConnectionLost, self.sendForEver)
        self.assertEqual(len(self.heard), 1)

    def sendForEver(self) -> None:
        """Send until it fails."""
        while True:
            self.wire.send(bytes(100))


class SendingTests(WireSocketCase):
    """Whole messages, whatever happens."""

    def test_bothFull(self) -> None:
        """Two sides that send large messages to each other both get through."""
        sending = InThread(lambda: self.wire.send(self.conversation.publication("b", bytes(LARGE))))
        self.peer.stream.sendall(Conversation().publication("a", bytes(LARGE)))
        self.assertEqual(len(self.peer.hear("PUB").payload), LARGE)
        sending.result()
        self.assertTrue(self.waitFor(1))

    def test_bothFullWhileAnotherWaits(self) -> None:
        """So they do where another thread waits, and has waited long enough in between."""
        waiting = InThread(lambda: self.waitFor(1, 0.01))
        self.test_bothFull()
        waiting.result()

    def test_wholeMessages(self) -> None:
        """Large messages of several threads do not mix."""
        threads = [
            InThread(lambda n=n: self.wire.send(self.conversation.publication("b", bytes((n,)) * (LARGE >> 2))))  # type: ignore[misc]
            for n in range(4)
        ]
        bodies = [self.peer.hear("PUB").payload for _ in threads]
        for each in threads:
            each.result()
        self.assertEqual(sorted(bodies), [bytes((n,)) * (LARGE >> 2) for n in range(4)])

    def test_cutByPeer(self) -> None:
        """A peer that goes in the middle of a message is noticed."""
        sending = InThread(lambda: self.wire.send(bytes(LARGE)))
        self.peer.stream.recv(1)
        self.peer.hangUp()
        self.assertRaises(ConnectionLost, sending.result)

    def test_closedWhileSending(self) -> None:
        """AsyncClosedOnExit ends a thread that cannot send."""
        sending = InThread(lambda: self.wire.send(bytes(LARGE)))
        self.peer.stream.recv(1)
        self.wire.close()
        self.assertRaises(ConnectionLost, sending.result)

    def test_interrupted(self) -> None:
        """Who is interrupted in a message ends the connection: its half cannot be taken back."""
        calls = iter([None])

        def interrupted() -> None:
            next(calls)
            raise KeyboardInterrupt

        self.wire._waitToSend = interrupted  # type: ignore[method-assign]
        self.assertRaises(KeyboardInterrupt, self.wire.send, bytes(LARGE))
        self.assertIn("interrupted", str(self.assertRaises(ConnectionLost, self.wire.send, b"x")))

    def test_glance(self) -> None:
        """Who sends much hears what the broker says, without waiting for anything."""
        self.peer.refuse(403)
        receiving = InThread(self.peer.untilEnd)
        for _ in range(8):
            self.wire.send(self.conversation.publication("b", bytes(1 << 16)))
        self.assertEqual(len(self.heard), 1)
        self.wire.close()
        receiving.result()


class OwedTests(WireSocketCase):
    """What is answered by itself."""

    def ping(self, stamp: int) -> None:
        """Let the broker ask for a sign of life."""
        self.peer.say("PING", 1, {"keepalive": {"timestamp": stamp, "interval": 30}})

    def pongOf(self, heard: Heard) -> int:
        """Return the timestamp of a PONG."""
        self.assertEqual((heard.kind, heard.sender), ("PONG", 1000))
        return int(heard.header["keepalive"]["timestamp"])

    def test_pongs(self) -> None:
        """PINGs are answered while a thread waits, and it does not notice."""
        waiting = InThread(lambda: self.waitFor(1))
        for stamp in (5, 6):
            self.ping(stamp)
            self.assertEqual(self.pongOf(self.peer.next()), stamp)
        self.peer.publish("a", 1)
        self.assertTrue(waiting.result())
        self.assertEqual(len(self.heard), 1)

    def test_pongOfSender(self) -> None:
        """PINGs are answered by a thread that only sends."""
        self.ping(5)
        receiving = InThread(self.peer.untilEnd)
        for _ in range(8):
            self.wire.send(self.conversation.publication("b", bytes(1 << 16)))
        self.wire.close()
        self.assertEqual([self.pongOf(each) for each in receiving.result() if each.kind == "PONG"], [5])

    def test_owedWhileFull(self) -> None:
        """An answer that does not fit is sent whole as soon as there is room."""
        message = self.conversation.publication("b", b"")
        with self.wire.lock:
            while self.wire._sendSome(message) == len(message):
                continue
        self.ping(5)
        waiting = InThread(lambda: self.waitFor(1))
        sent = b""
        while b"timestamp\x05" not in sent:
            sent += self.peer.stream.recv(1 << 16)
        self.assertTrue(sent.endswith(self.conversation.pong(5)))
        self.peer.publish("a", 1)
        self.assertTrue(waiting.result())

    def test_bound(self) -> None:
        """What nobody waits for is left out when too much is owed already."""
        with self.wire.lock:
            for _ in range(100):
                self.wire.sendLater(bytes(1 << 16))
        self.assertLessEqual(sum(map(len, self.wire._pendingOutput)), (1 << 20) + (1 << 16))
        self.wire._pendingOutput.clear()


class TransitionTests(SynchronousTestCase):
    """The table of the socket's states."""

    def test_all(self) -> None:
        """Each state and event: the next state, or an error in tests."""
        unconnected, connected, ended, reconnecting, lost, closed = WireState
        attached, endSeen, isLost, isLostForNow, isClosed = WireEvent
        expected = {
            attached: {unconnected: connected, reconnecting: connected},
            endSeen: {connected: ended},
            isLost: {connected: lost, ended: lost},
            isLostForNow: {connected: reconnecting, ended: reconnecting},
            isClosed: dict.fromkeys(WireState, closed),
        }
        for event in WireEvent:
            for state in WireState:
                if state in expected[event]:
                    self.assertIs(TRANSITIONS[state, event], expected[event][state])
                else:
                    self.assertRaises(UnexpectedEvent, TRANSITIONS.__getitem__, (state, event))
