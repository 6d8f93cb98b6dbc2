"""The blocking client against a broker that follows a script."""

import asyncio
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from fleximq.client.backoff import Backoff
from fleximq.client.blocking import Client, connect, thread_client
from fleximq.client.blocking.shared_connection import SharedConnection
from fleximq.client.errors import (
    ConnectionLost,
    JoinRefused,
    RequestFailed,
)
from fleximq.client.events import Delivery
from fleximq.client.protocol import client_state
from fleximq.client.settings import State
from fleximq.client.sockets import dial
from tests.client.cases import Place
from tests.client.scripted import ID, PATIENCE, InThread, Peer, Scripted

_broker = Place()
ROOT = Path(__file__).parents[3]


class JoiningTests(SynchronousTestCase):
    """Connecting and joining."""

    def test_timeToConnectCountsAsTimeToJoin(self) -> None:
        """``timeout`` limits both together."""
        waited = []

        def slowly(url: Any, timeout: float, *more: Any) -> Any:
            time.sleep(0.1)
            return dial(url, timeout, *more)

        def waitFor(connection: Any, ready: Any, timeout: float, *more: Any) -> Any:
            waited.append(timeout)
            return original(connection, ready, timeout, *more)

        original = SharedConnection.waitFor
        self.patch(thread_client, "dial", slowly)
        self.patch(SharedConnection, "waitFor", waitFor)
        with Scripted(lambda peer: peer.untilEnd()) as url:
            self.assertRaises(ConnectionLost, connect, url, timeout=0.2)
        self.assertLess(waited[0], 0.11)

    def test_refusalBeforeTheWholeJoinWasSentIsRaised(self) -> None:
        """Although the broker has closed the connection."""

        def script(peer: Peer) -> None:
            peer.say("REP", 0, {"status": 503}, "too many")
            peer.hangUp()

        with Scripted(script) as url:
            # More than the system's buffers hold.
            error = self.assertRaises(JoinRefused, connect, url, credentials={"token": "x" * 50_000_000})
        self.assertEqual(str(error), "503 service unavailable: too many")

    def test_asyncWithSaysWhatToWrite(self) -> None:
        """The client has no coroutines."""

        async def use() -> None:
            async with client:
                pass

        with Scripted(lambda peer: [peer.letIn(), *peer.untilEnd()]) as url:
            client = connect(url, reconnect=None, keep_alive=None)
            self.assertIn("write 'with connect", str(self.assertRaises(TypeError, asyncio.run, use())))
            client.hang_up()

    def test_loadsNothingOfTwistedOrTheBroker(self) -> None:
        """Nor does the form for asyncio."""
        program = (
            "import sys\n"
            "class Nothing:\n"
            "    def find_spec(self, name, path=None, target=None):\n"
            "        if name.split('.')[0] in ('twisted', 'zope', 'autobahn', 'OpenSSL'): raise ImportError(name)\n"
            "sys.meta_path.insert(0, Nothing())\n"
            "import fleximq.client.blocking, fleximq.client.asyncio\n"
            "print(*sorted({'.'.join(name.split('.')[:2]) for name in sys.modules if name.startswith('fleximq.')}))\n"
        )
        ended = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=300)
        self.assertEqual(ended.stderr, "")
        rooms = {name.split(".")[1] for name in ended.stdout.split()}
        self.assertEqual(rooms, {"client", "compiled", "errors", "limits", "status", "values", "wire"})


class ScriptedCase(SynchronousTestCase):
    """A client that a scripted broker has admitted."""

    def talk(self, script: Any, **wishes: Any) -> Client:
        """Return a client of this script, which begins after the JOIN."""

        def whole(peer: Peer) -> None:
            peer.letIn()
            script(peer)

        scripted = Scripted(whole)
        url = scripted.__enter__()
        self.addCleanup(scripted.__exit__, None, None, None)
        client = connect(url, **{"reconnect": None, "keep_alive": None, **wishes})
        self.addCleanup(client.hang_up)
        return client


class ClosingTests(ScriptedCase):
    """The end of a ``with`` block."""

    def test_blockThatFailsClosesAtOnceWithItsError(self) -> None:
        """Without a flush."""
        client = self.talk(lambda peer: self.assertEqual([each.kind for each in peer.untilEnd()], ["PUB"]))

        def block() -> None:
            with client:
                client.publish("a", 1)
                raise KeyError

        self.assertRaises(KeyError, block)

    def test_closeEndsIterationsOfOtherThreads(self) -> None:
        """Also of a thread that is reading."""
        client = self.talk(lambda peer: (peer.subscribed(), peer.subscribed(), peer.untilEnd()))
        one, two = client.subscribe("a"), client.subscribe("b")
        threads = [InThread(lambda: list(one)), InThread(lambda: list(two))]
        client.close()
        self.assertEqual([each.result() for each in threads], [[], []])


class SubscriptionTests(ScriptedCase):
    """Subscriptions."""

    def test_closingASubscriptionEndsItsIteration(self) -> None:
        """In another thread, even while that reads."""

        def script(peer: Peer) -> None:
            peer.subscribed()
            peer.publish("a", 1)
            peer.hear("UNSUB")
            peer.passBarrier()
            peer.untilEnd()

        subscription = self.talk(script).subscribe("a")
        first = threading.Event()

        def iterate() -> list[Delivery]:
            found = []
            for each in subscription:
                first.set()
                found.append(each)
            return found

        iterating = InThread(iterate)
        first.wait(PATIENCE)
        subscription.close()
        self.assertEqual(len(iterating.result()), 1)

    def test_threadsThatIterateShareTheDeliveries(self) -> None:
        """Each gets its part in order."""

        def script(peer: Peer) -> None:
            peer.subscribed()
            for n in range(1000):
                peer.publish("a", n)
            peer.passBarrier()
            peer.hear("UNSUB")
            peer.passBarrier()
            peer.untilEnd()

        client = self.talk(script)
        subscription = client.subscribe("a")
        threads = [InThread(lambda: [each.value for each in subscription]) for _ in range(2)]
        client.flush()
        subscription.close()
        one, two = (each.result() for each in threads)
        self.assertEqual((sorted(one + two), sorted(one), sorted(two)), (list(range(1000)), one, two))


class RaceTests(ScriptedCase):
    """A thread publishes while another one flushes, and then the connection is lost."""

    def raced(self, script: Any, between: Any) -> Client:
        """Return a client that has published, and did something else between its first step and its sending."""
        client = self.talk(script, reconnect=Backoff(first=30))
        said = client._inner._clientState.conversation
        publication = said.publication

        def made(*arguments: Any) -> bytes:
            between(client)
            return publication(*arguments)

        self.patch(said, "publication", made)
        client.publish("a", 1)
        return client

    def lostOf(self, client: Client) -> str:
        """Return what a flush says when the connection was lost."""
        client._inner._connection.waitFor(lambda: client.state is State.AWAY, PATIENCE)
        return str(self.assertRaises(ConnectionLost, client.flush, 1))

    def test_flushBeforeSendingConfirmsNothing(self) -> None:
        """It ended before the publication was sent."""

        def script(peer: Peer) -> None:
            peer.passBarrier()
            peer.hear("PUB")

        client = self.raced(script, lambda client: InThread(client.flush).result())
        self.assertIn("may be lost", self.lostOf(client))

    def test_flushAroundSendingConfirmsNothing(self) -> None:
        """It began before the publication was sent, and ended afterwards."""
        pinged, flushing = threading.Event(), list[InThread]()

        def script(peer: Peer) -> None:
            ping = peer.hear("PING")
            pinged.set()
            peer.hear("PUB")
            peer.pong(ping)
            flushing[0].result()

        def between(client: Client) -> None:
            flushing.append(InThread(client.flush))
            pinged.wait(PATIENCE)

        client = self.raced(script, between)
        flushing[0].result()
        self.assertIn("may be lost", self.lostOf(client))


class RequestTests(ScriptedCase):
    """Requests and answers."""

    def test_answerBeforeALossIsReturned(self) -> None:
        """Although not all of the request was sent."""

        def script(peer: Peer) -> None:
            peer.refuse(413, "too much", "/p", "guessed")
            peer.hangUp()

        self.patch(client_state, "token_urlsafe", lambda length: "guessed")
        client = self.talk(script)
        error = self.assertRaises(RequestFailed, client.ask, "/p", bytes(50_000_000))
        self.assertEqual((error.status, error.words), (413, "too much"))
        self.assertRaises(ConnectionLost, client.ask, "/p")

    def test_threadsAnswerAtOnce(self) -> None:
        """As many as ``threads``."""

        def script(peer: Peer) -> None:
            ping = peer.hear("PING")
            for id in "ab":
                routing = [{"client_id": ID, "path": "/p"}]
                peer.say("REQ", 5, {"routing": routing, "reqrep": {"type": "request", "id": id}})
            peer.pong(ping)
            answered.update(peer.hear("REP").header["reqrep"]["id"] for _ in "ab")
            isAnswered.set()

        answered, isAnswered = set[str](), threading.Event()
        both = threading.Barrier(2, timeout=PATIENCE)
        client = self.talk(script, threads=2)
        client.serve("/p", lambda request: both.wait() >= 0)
        client.flush()
        isAnswered.wait(PATIENCE)
        self.assertEqual(answered, {"a", "b"})

    def test_requestsBeyondTheLimitAreRefusedWhileThreadsAreBusy(self) -> None:
        """With 503; PINGs are answered as always."""

        def script(peer: Peer) -> None:
            ping = peer.hear("PING")
            routing = [{"client_id": ID, "path": "/p"}]
            for id in "abc":
                peer.say("REQ", 5, {"routing": routing, "reqrep": {"type": "request", "id": id}}, bytes(1 << 20))
            refused.extend((each.status, each.header["reqrep"]["id"]) for each in (peer.hear("REP") for _ in "bc"))
            peer.say("PING", 1, {"keepalive": {"timestamp": 9}})
            peer.hear("PONG")
            isRefused.set()
            self.assertEqual(peer.hear("REP").status, 200)
            peer.pong(ping)

        refused: list[Any] = []
        isRefused = threading.Event()
        client = self.talk(script, prefetch=1)
        client.serve("/p", lambda request: isRefused.wait(PATIENCE))
        client.flush()
        self.assertEqual(refused, [(503, "b"), (503, "c")])


class CrowdTests(SynchronousTestCase):
    """Many threads that share one client of a real broker."""

    def test_publishersReadersRequestersAndFlushesDoNotDisturbEachOther(self) -> None:
        """All deliveries arrive in order, and none is counted as unread in the end."""
        client = connect(f"tcp://127.0.0.1:{_broker.broker.port()}")
        self.addCleanup(client.hang_up)
        topic = f"t{uuid.uuid4().hex[:12]}"
        one, two = client.subscribe(f"{topic}.*"), client.subscribe(f"{topic}.a")
        count = 20_000

        def publish(level: str) -> None:
            client.publish_many(f"{topic}.{level}", range(count))
            for n in range(1000):
                client.publish(f"{topic}.{level}", n)
            client.flush()

        def ask() -> set[str]:
            return {client.ask("/broker/about")["name"] for _ in range(200)}

        def subscribeAgain() -> None:
            for _ in range(50):
                with client.subscribe(f"{topic}.b"):
                    client.flush()

        every = count + 1000
        taking = [
            InThread(lambda: [one.next() for _ in range(2 * every)]),
            InThread(lambda: [two.next() for _ in range(every)]),
        ]
        others = [
            InThread(lambda: publish("a")),
            InThread(lambda: publish("b")),
            InThread(ask),
            InThread(subscribeAgain),
        ]
        for each in others:
            each.result()
        expected = [*range(count), *range(1000)]
        both, alone = (each.result() for each in taking)
        self.assertEqual([each.value for each in alone], expected)
        for level in "ab":
            self.assertEqual([each.value for each in both if each.topic.endswith(level)], expected)
        self.assertEqual(client._inner._clientState.inbox.bufferedBytes, 0)
