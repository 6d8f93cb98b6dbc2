"""The blocking client against a broker that follows a script."""

import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from fleximq.client.backoff import Backoff
from fleximq.client.blocking import Client, connect, thread_client
from fleximq.client.blocking.shared_connection import SharedConnection
from fleximq.client.errors import (
    ConnectionLost,
    JoinRefused,
    Overrun,
    PublishFailed,
    RequestFailed,
    SubscribeFailed,
)
from fleximq.client.events import Delivery
from fleximq.client.protocol import client_state
from fleximq.client.protocol.inbox import Inbox
from fleximq.client.settings import State
from fleximq.client.sockets import dial
from fleximq.errors import SettingError
from tests.client.scripted import ID, PATIENCE, InThread, Peer, Scripted

ROOT = Path(__file__).parents[3]


class JoiningTests(SynchronousTestCase):
    """The way in."""

    def refusedBy(self, script: Any) -> Any:
        """Return the error of a connection to this script."""
        with Scripted(script) as url:
            return self.assertRaises((ConnectionLost, JoinRefused), connect, url, timeout=0.2)

    def test_letIn(self) -> None:
        """The client has the id that it was given, and asks for rare PINGs."""

        def script(peer: Peer) -> None:
            peer.hear("JOIN")
            peer.say("REP", ID, {"status": 200})
            self.assertEqual(peer.hear("PING").header["keepalive"]["interval"], 300)

        with Scripted(script) as url, connect(url, keep_alive=None) as client:
            self.assertEqual(client.id, ID)

    def test_credentials(self) -> None:
        """Credentials and name are shown."""
        joins = []
        with Scripted(lambda peer: joins.append(peer.letIn())) as url:
            connect(url, credentials={"type": "api_key", "api_key": "k"}, name="me").close()
        self.assertEqual(joins[0].header, {"client_name": "me", "auth": {"type": "api_key", "api_key": "k"}})

    def test_refused(self) -> None:
        """Who is not let in hears why."""

        def script(peer: Peer) -> None:
            peer.hear("JOIN")
            peer.say("REP", 0, {"status": 401}, "credentials are missing")

        error = self.refusedBy(script)
        self.assertIsInstance(error, JoinRefused)
        self.assertEqual((error.status, str(error)), (401, "401 unauthorized: credentials are missing"))

    def test_silence(self) -> None:
        """A broker that does not answer in time is none."""
        self.assertIn("did not answer", str(self.refusedBy(lambda peer: peer.untilEnd())))

    def test_slow(self) -> None:
        """The time that connecting took counts."""
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
        self.refusedBy(lambda peer: peer.untilEnd())
        self.assertLess(waited[0], 0.11)

    def test_end(self) -> None:
        """Nor is one that closes the connection."""
        self.assertIn("closed the connection", str(self.refusedBy(lambda peer: peer.hear("JOIN"))))

    def test_refusedUnasked(self) -> None:
        """Who is told so before he has asked, and cut off, hears why as well."""

        def script(peer: Peer) -> None:
            peer.say("REP", 0, {"status": 503}, "too many")
            peer.hangUp()

        with Scripted(script) as url:
            # More than the system takes off one's hands.
            error = self.assertRaises(JoinRefused, connect, url, credentials={"token": "x" * 50_000_000})
        self.assertEqual(str(error), "503 service unavailable: too many")

    def test_otherProtocol(self) -> None:
        """Nor is one who speaks something else."""
        error = self.refusedBy(lambda peer: peer.stream.sendall(b"SSH-2.0-OpenSSH_9.2p1 and a little more text\r\n"))
        self.assertIn("not FlexiMQ", str(error))

    def test_url(self) -> None:
        """What is no URL, or none for this client, is a wrong setting."""
        for url in ("localhost", "tcp://localhost", "stdio://"):
            self.assertRaises(SettingError, connect, url)

    def test_withoutTwisted(self) -> None:
        """The client needs nothing of Twisted, nor on asyncio, and loads nothing of the broker."""
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
    """A client of a scripted broker that has let it in."""

    def talk(self, script: Any, **wishes: Any) -> Client:
        """Return a client of this script, which begins behind the JOIN."""

        def whole(peer: Peer) -> None:
            peer.letIn()
            script(peer)

        scripted = Scripted(whole)
        url = scripted.__enter__()
        self.addCleanup(scripted.__exit__, None, None, None)
        client = connect(url, **{"reconnect": None, "keep_alive": None, **wishes})
        self.addCleanup(client.hang_up)
        return client


class FlushTests(ScriptedCase):
    """Flushes, and what was refused."""

    def test_passed(self) -> None:
        """A flush returns with its PONG, behind what was published."""
        heard = []

        def script(peer: Peer) -> None:
            heard.extend([peer.hear("PUB"), peer.hear("PUB")])
            peer.passBarrier()

        client = self.talk(script)
        client.publish("a", 1, key="k")
        client.publish_many("a", iter([2]))
        client.flush()
        self.assertEqual([each.header for each in heard], [{"topic": "a", "key": "k"}, {"topic": "a"}])

    def test_refused(self) -> None:
        """What was refused before the PONG is raised, once."""

        def script(peer: Peer) -> None:
            ping = peer.hear("PING")
            peer.refuse(403, "no", "a")
            peer.refuse(503, "full", "b")
            peer.pong(ping)
            peer.passBarrier()

        client = self.talk(script)
        error = self.assertRaises(PublishFailed, client.flush)
        self.assertEqual(
            (str(error), error.path, [other.status for other in error.others]), ("403 forbidden: no", "a", [503])
        )
        client.flush()

    def test_refusedAfter(self) -> None:
        """What comes behind the PONG belongs to the next flush."""

        def script(peer: Peer) -> None:
            peer.passBarrier()
            peer.refuse(403)
            peer.passBarrier()

        client = self.talk(script)
        client.flush()
        self.assertRaises(PublishFailed, client.flush)

    def test_lateness(self) -> None:
        """A flush that takes too long says so, and what was refused then is told by the next one."""

        def script(peer: Peer) -> None:
            ping = peer.hear("PING")
            again = peer.hear("PING")
            peer.refuse(403)
            peer.pong(ping)
            peer.pong(again)

        client = self.talk(script)
        self.assertRaises(TimeoutError, client.flush, timeout=0.01)
        self.assertRaises(PublishFailed, client.flush)

    def test_lost(self) -> None:
        """A connection that ends is told with what the broker said before."""

        def script(peer: Peer) -> None:
            peer.hear("PING")
            peer.refuse(413, "too much")

        client = self.talk(script)
        error = self.assertRaises(ConnectionLost, client.flush)
        self.assertIn("413 payload too large: too much", str(error))
        for call in (client.flush, lambda: client.publish("a", 1), lambda: client.subscribe("a")):
            self.assertRaises(ConnectionLost, call)

    def test_headers(self) -> None:
        """Header fields may have any name, but none is given twice."""
        heard = []

        def script(peer: Peer) -> None:
            heard.append(peer.hear("PUB"))
            peer.passBarrier()

        client = self.talk(script)
        for headers, named in (({"topic": "b"}, {}), ({"key": 1, "own": 2}, {"key": "k"})):
            error = self.assertRaises(ValueError, client.publish, "a", 1, headers=headers, **named)
            self.assertIn(next(iter(headers)), str(error))
        own = {"self": "s", "value": "v", "headers": "h", "message_id": "m"}
        client.publish("a", 1, key=b"k", correlation_id="c", reply_to="r", headers=own)
        client.flush()
        self.assertEqual(heard[0].header, {"topic": "a", "key": b"k", "correlation_id": "c", "reply_to": "r", **own})

    def test_unpackable(self) -> None:
        """A value that MessagePack does not have is refused before anything is sent."""
        client = self.talk(lambda peer: self.assertEqual(peer.untilEnd(), []))
        self.assertRaises(TypeError, client.publish, "a", object())
        self.assertRaises(OverflowError, client.publish, "a", 1 << 70)
        client.close()


class ClosingTests(ScriptedCase):
    """The end of a ``with`` block."""

    def test_flushed(self) -> None:
        """What was published is flushed."""

        def script(peer: Peer) -> None:
            peer.hear("PUB")
            peer.passBarrier()
            self.assertEqual(peer.untilEnd(), [])

        with self.talk(script) as client:
            client.publish("a", 1)

    def test_nothingToFlush(self) -> None:
        """Where nothing was published, nothing is waited for; a second time nothing happens."""
        with self.talk(lambda peer: self.assertEqual(peer.untilEnd(), [])) as client:
            client.close()

    def test_refused(self) -> None:
        """What was refused is raised there, and the connection ended all the same."""

        def script(peer: Peer) -> None:
            peer.hear("PUB")
            peer.refuse(403)
            peer.passBarrier()
            peer.untilEnd()

        client = self.talk(script)
        client.publish("a", 1)
        self.assertRaises(PublishFailed, client.close)
        self.assertRaises(ConnectionLost, client.flush)

    def test_error(self) -> None:
        """A block that fails closes at once, and its error is the one that is seen."""
        client = self.talk(lambda peer: self.assertEqual([each.kind for each in peer.untilEnd()], ["PUB"]))

        def block() -> None:
            with client:
                client.publish("a", 1)
                raise KeyError

        self.assertRaises(KeyError, block)

    def test_lost(self) -> None:
        """A connection that was lost with unflushed publications is an error; without, it is none."""
        client = self.talk(lambda peer: peer.hear("PUB"))
        client.publish("a", 1)
        self.assertRaises(ConnectionLost, client.close)
        self.talk(lambda peer: None).close()

    def test_endsIterations(self) -> None:
        """Iterations in other threads end, also one that is reading."""
        client = self.talk(lambda peer: (peer.subscribed(), peer.subscribed(), peer.untilEnd()))
        one, two = client.subscribe("a"), client.subscribe("b")
        threads = [InThread(lambda: list(one)), InThread(lambda: list(two))]
        client.close()
        self.assertEqual([each.result() for each in threads], [[], []])


class SubscriptionTests(ScriptedCase):
    """Subscriptions."""

    def test_order(self) -> None:
        """What comes is given in order, also what came with the answer."""

        def script(peer: Peer) -> None:
            peer.passBarrier()
            first, _, second = peer.hear("PING"), peer.hear("SUB"), peer.hear("PING")
            peer.pong(first)
            peer.publish("a", 0)
            peer.pong(second)
            peer.publish("a", 1)

        subscription = self.talk(script).subscribe("a")
        self.assertEqual([subscription.next().value, subscription.next().value], [0, 1])  # type: ignore[union-attr]

    def test_wrongStart(self) -> None:
        """A place that cannot be packed is refused, and nothing is kept for it."""
        client = self.talk(lambda peer: (peer.passBarrier(), peer.untilEnd()))
        self.assertRaises(TypeError, client.subscribe, "a", from_={"time": object()})
        self.assertEqual(client._inner._clientState.inbox._boxes, {})

    def test_timeout(self) -> None:
        """Nothing in time is None; nothing at all yet, with a time of 0, too."""
        subscription = self.talk(lambda peer: (peer.subscribed(), peer.untilEnd())).subscribe("a")
        self.assertIsNone(subscription.next(0))
        self.assertIsNone(subscription.next(0.01))

    def test_lost(self) -> None:
        """What came before the end is given, then the end is told, every time."""

        def script(peer: Peer) -> None:
            peer.subscribed()
            peer.publish("a", 1)

        subscription = self.talk(script).subscribe("a")
        got = []

        def iterate() -> None:
            for each in subscription:
                got.append(each.value)

        self.assertRaises(ConnectionLost, iterate)
        self.assertRaises(ConnectionLost, subscription.next)
        self.assertEqual(got, [1])

    def test_refused(self) -> None:
        """A refusal is the subscription's only between its two PINGs; the others are left to the next flush."""

        def script(peer: Peer) -> None:
            ping = peer.hear("PING")
            peer.refuse(400, "old")
            peer.pong(ping)
            first, _, second = peer.hear("PING"), peer.hear("SUB"), peer.hear("PING")
            peer.refuse(400, "older")
            peer.pong(first)
            peer.refuse(503, "journal", "a")
            peer.refuse(603, "no")
            peer.pong(second)
            peer.publish("a", 1)
            peer.passBarrier()

        client = self.talk(script)
        error = self.assertRaises(SubscribeFailed, client.subscribe, "a")
        self.assertEqual((error.status, error.words, error.path), (603, "no", "a"))
        error = self.assertRaises(PublishFailed, client.flush)
        self.assertEqual([error.words, *(other.words for other in error.others)], ["old", "older", "journal"])
        self.assertEqual(client._inner._clientState.inbox.bufferedBytes, 0)

    def test_from(self) -> None:
        """Where it begins is said as it was given; what comes has offsets."""
        subs = []

        def script(peer: Peer) -> None:
            for n in range(4):
                subs.append(peer.subscribed())
                peer.publish(f"t{n}", 1, offset=n)

        client = self.talk(script)
        for n, start in enumerate(["first", "last", 5, {"time": 7}]):
            delivery = client.subscribe(f"t{n}", from_=start).next()  # type: ignore[arg-type]
            assert delivery is not None
            self.assertEqual(delivery.offset, n)
        self.assertEqual([each.header["from"] for each in subs], ["first", "last", 5, {"time": 7}])

    def test_fromTwice(self) -> None:
        """Two with the same name, of which one begins in the past, are refused without asking the broker."""
        client = self.talk(lambda peer: (peer.subscribed(), peer.passBarrier(), peer.untilEnd()))
        client.subscribe("a", from_="first")
        self.assertRaises(ValueError, client.subscribe, "a")

    def test_endedByBroker(self) -> None:
        """A subscription that the broker ends gives what came, then says why."""

        def script(peer: Peer) -> None:
            peer.subscribed()
            peer.publish("a", 1, offset=4)
            header = {"status": 404, "routing": [{"client_id": ID, "path": "a"}]}
            peer.say("REP", 1, header, {"error": "the first offset that is kept is 9", "first": 9})
            peer.untilEnd()

        subscription = self.talk(script).subscribe("a", from_=4)
        self.assertEqual(subscription.next().offset, 4)  # type: ignore[union-attr]
        error = self.assertRaises(SubscribeFailed, subscription.next)
        self.assertEqual((error.status, error.words), (404, "the first offset that is kept is 9"))

    def test_close(self) -> None:
        """AsyncClosedOnExit unsubscribes; what came can be taken, then there is nothing more."""
        heard = []

        def script(peer: Peer) -> None:
            peer.subscribed()
            peer.publish("a", 1)
            peer.passBarrier()
            heard.extend([peer.hear("UNSUB"), peer.hear("PING")])
            peer.publish("a", 2)
            peer.passBarrier()

        client = self.talk(script)
        with client.subscribe("a") as subscription:
            client.flush()
        subscription.close()
        client.flush()
        self.assertEqual([each.value for each in subscription], [1])
        self.assertEqual(heard[0].header, {"topic": "a"})

    def test_closedByAnother(self) -> None:
        """An iteration ends when another thread closes the subscription, even while it reads."""

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

    def test_sameTopicTwice(self) -> None:
        """Both get all, and only the second to close unsubscribes."""

        def script(peer: Peer) -> None:
            peer.subscribed()
            peer.subscribed()
            peer.publish("a", 1)
            peer.passBarrier()
            peer.publish("a", 2)
            peer.hear("UNSUB")
            peer.untilEnd()

        client = self.talk(script)
        one, two = client.subscribe("a"), client.subscribe("a")
        client.flush()
        one.close()
        self.assertEqual([each.value for each in one], [1])
        self.assertEqual([two.next().value, two.next().value], [1, 2])  # type: ignore[union-attr]
        two.close()

    def test_twoThreads(self) -> None:
        """Two threads that iterate over one subscription share what comes."""

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

    def test_overrun(self) -> None:
        """A subscription that nobody takes from is ended when too much waits; what came can be taken."""

        def script(peer: Peer) -> None:
            peer.subscribed()
            ping = peer.hear("PING")
            for _ in range(5):
                peer.publish("a", bytes(1000))
            peer.pong(ping)
            peer.hear("UNSUB")
            peer.untilEnd()

        client = self.talk(script)
        client._inner._clientState.inbox = Inbox(client._inner._connection.wake, maximum=3000)
        subscription = client.subscribe("a")
        client.flush()
        self.assertEqual(subscription.waiting, 3)
        for _ in range(3):
            subscription.next()
        self.assertRaises(Overrun, subscription.next)


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

    def test_flushedBefore(self) -> None:
        """A flush that was over before the publication was sent says nothing of it."""

        def script(peer: Peer) -> None:
            peer.passBarrier()
            peer.hear("PUB")

        client = self.raced(script, lambda client: InThread(client.flush).result())
        self.assertIn("may be lost", self.lostOf(client))

    def test_flushedAround(self) -> None:
        """Nor does one that began before it was sent, and ended behind it."""
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

    def test_answered(self) -> None:
        """The answer's value is returned; one of somebody else, and one to nothing, are passed over."""

        def script(peer: Peer) -> None:
            request = peer.hear("REQ")
            self.assertEqual((request.header["routing"], request.value), ([{"client_id": 5, "path": "/p"}], {"x": 1}))
            peer.answer(request, "false", sender=6)
            peer.say("REP", 5, {"reqrep": {"type": "correlation", "id": "nothing"}}, "false")
            peer.answer(request, "right")

        self.assertEqual(self.talk(script).request(5, "/p", {"x": 1}), "right")

    def test_failed(self) -> None:
        """An error is raised with what was said."""

        def script(peer: Peer) -> None:
            peer.refuse(600, "there is no client 5", "/p", peer.hear("REQ").header["reqrep"]["id"])

        error = self.assertRaises(RequestFailed, self.talk(script).request, 5, "/p")
        self.assertEqual((error.status, error.words, error.path), (600, "there is no client 5", "/p"))

    def test_lateness(self) -> None:
        """An answer that comes too late is for nobody."""

        def script(peer: Peer) -> None:
            late = peer.hear("REQ")
            second = peer.hear("REQ")
            peer.answer(late, "late")
            peer.answer(second, "second")

        client = self.talk(script)
        self.assertRaises(TimeoutError, client.request, 5, "/p", timeout=0.01)
        self.assertEqual(client.ask("/p"), "second")
        self.assertEqual(client._inner._clientState._replies, {})

    def test_answeredAndLost(self) -> None:
        """An answer that came before the connection ended is given, though not all of the request was sent."""

        def script(peer: Peer) -> None:
            peer.refuse(413, "too much", "/p", "guessed")
            peer.hangUp()

        self.patch(client_state, "token_urlsafe", lambda length: "guessed")
        client = self.talk(script)
        error = self.assertRaises(RequestFailed, client.ask, "/p", bytes(50_000_000))
        self.assertEqual((error.status, error.words), (413, "too much"))
        self.assertRaises(ConnectionLost, client.ask, "/p")

    def test_lost(self) -> None:
        """A request under way when the connection ends fails."""
        self.assertRaises(ConnectionLost, self.talk(lambda peer: peer.hear("REQ")).ask, "/p")

    def test_asked(self) -> None:
        """Who asks this client is told that nothing is served here."""

        def script(peer: Peer) -> None:
            ping = peer.hear("PING")
            routing = [{"client_id": ID, "path": "/p"}]
            peer.say("REQ", 5, {"routing": routing, "reqrep": {"type": "request", "id": "i"}})
            peer.pong(ping)
            reply = peer.hear("REP")
            self.assertEqual((reply.status, reply.header["routing"][0]["client_id"]), (404, 5))

        self.talk(script).flush()

    def test_servedByThreads(self) -> None:
        """As many requests are answered at once as there are to be threads."""

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

    def test_requestsToBusyThreads(self) -> None:
        """While the functions are slow, requests beyond the limit are answered with 503, and PINGs as ever."""

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

    def test_threads(self) -> None:
        """Many threads ask, publish and iterate at once, and each gets what is its own."""

        def script(peer: Peer) -> None:
            peer.subscribed()
            for heard in iter(peer.next, None):
                if heard.kind == "REQ":
                    peer.answer(heard, heard.value)
                elif heard.kind == "PUB":
                    peer.publish("a", heard.value)
                elif heard.kind == "PING":
                    peer.pong(heard)
                elif heard.kind == "UNSUB":
                    peer.passBarrier()
                    peer.untilEnd()
                    return

        client = self.talk(script)
        subscription = client.subscribe("a")
        iterating = InThread(lambda: [each.value for each in subscription])
        asking = [InThread(lambda n=n: [client.ask("/p", n) for _ in range(100)]) for n in range(4)]  # type: ignore[misc]

        def publish() -> None:
            for n in range(500):
                client.publish("a", n)
            client.flush()

        publishing = InThread(publish)
        self.assertEqual([each.result() for each in asking], [[n] * 100 for n in range(4)])
        publishing.result()
        subscription.close()
        self.assertEqual(iterating.result(), list(range(500)))


class DirectTests(ScriptedCase):
    """Notifications and broadcasts."""

    def test_sent(self) -> None:
        """One target or several, and everybody."""
        heard = []

        def script(peer: Peer) -> None:
            heard.extend([peer.hear("NOTIF"), peer.hear("NOTIF"), peer.hear("BCAST")])
            peer.passBarrier()

        client = self.talk(script)
        client.notify(5, "/n", 1)
        client.notify([5, 6], "/n")
        client.broadcast("all")
        client.flush()
        self.assertEqual([len(each.header["routing"]) for each in heard[:2]], [1, 2])
        self.assertEqual([each.value for each in heard], [1, None, "all"])
