"""What a client keeps account of over several connections, without any connection."""

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from fleximq.client.errors import (
    BufferFull,
    ConnectionLost,
    JoinRefused,
    Overrun,
    SubscribeFailed,
    Untrusted,
    isTransient,
)
from fleximq.client.payloads import packed
from fleximq.client.protocol.client_state import ClientState
from fleximq.client.protocol.completion import Pending
from fleximq.client.protocol.conversation import Conversation
from fleximq.client.protocol.inbox import Inbox
from fleximq.client.settings import ClientSettings, State
from fleximq.errors import SettingError
from tests.wire.flexi_frames import cut, frame

LOST = ConnectionLost("gone")


class LedgerCase(SynchronousTestCase):
    """A clientState that is told what comes, and notes what it says."""

    def setUp(self) -> None:
        """Have joined."""
        self.states: list[tuple[State, Any]] = []
        self.asked = 0
        self.said: list[bytes] = []
        self.have(ClientSettings(buffer=1000))

    def have(self, settings: ClientSettings) -> None:
        """Have a new clientState."""
        self.clientState = ClientState(
            settings,
            self.said.append,
            self.said.append,
            lambda: None,
            lambda *state: self.states.append(state),
            self.noteRequest,
            lambda job, kind, more: self.clientState.addSettlement(job, kind, more),
        )
        self.join()

    def noteRequest(self) -> None:
        """Count a request."""
        self.asked += 1

    def join(self, id: int = 1000) -> Pending[int]:
        """Make a connection."""
        joined = self.clientState.begin(Conversation())
        self.clientState.dataReceived(frame("REP", id, {"status": 200}))
        return joined

    def heard(self) -> list[Any]:
        """Return what was said by itself, and forget it."""
        found = list(cut(b"".join(self.said)))
        self.said.clear()
        return found

    def pong(self, *pings: Any) -> None:
        """Answer PINGs."""
        for ping in pings:
            self.clientState.dataReceived(
                frame("PONG", 1, {"keepalive": {"timestamp": ping.header["keepalive"]["timestamp"]}})
            )

    def refuse(self, status: int, path: str = "", payload: bytes = b"") -> None:
        """Refuse something."""
        header = {"status": status, "routing": [{"client_id": 1000, "path": path}]}
        self.clientState.dataReceived(frame("REP", 1, header, payload))

    def subscribe(self, topic: str, start: object = None) -> Any:
        """Subscribe, and return the box."""
        made = self.clientState.newSubscription(topic, start)
        first, _, second = cut(made.data)
        self.pong(first, second)
        self.clientState.confirmSubscription(made)
        return made.box


class ConnectionTests(LedgerCase):
    """Connections that come and go."""

    def test_joined(self) -> None:
        """With the first connection it asks for the interval, and is there."""
        [ping] = self.heard()
        self.assertEqual(ping.header["keepalive"]["interval"], 30)
        self.assertEqual((self.states, self.clientState.state), ([(State.JOINED, None)], State.JOINED))

    def test_refusedJoin(self) -> None:
        """Who is not let in is told with the status."""
        joined = self.clientState.begin(Conversation())
        self.clientState.dataReceived(frame("REP", 0, {"status": 401}))
        self.assertEqual(self.assertRaises(JoinRefused, joined.result).status, 401)

    def test_again(self) -> None:
        """Each name is subscribed once, those from the past first and behind what came; then it is there."""
        self.subscribe("b"), self.subscribe("b"), self.subscribe("c.*")
        past = self.subscribe("a", "first")
        self.clientState.dataReceived(frame("PUB", 7, {"topic": "a", "offset": 41}, b"\1"))
        self.clientState.lose(LOST)
        self.heard()
        joined = self.join(1001)
        frames = self.heard()
        subs = [each.header for each in frames if each.kind == "SUB"]
        self.assertEqual(subs, [{"topic": "a", "from": 42}, {"topic": "b"}, {"topic": "c.*"}])
        self.assertEqual({each.sender for each in frames}, {1001})
        self.assertFalse(joined.done)
        self.pong(*(each for each in frames if each.kind == "PING"))
        self.assertEqual((joined.result(), past.isConfirmed), (1001, True))
        self.assertEqual([state for state, _ in self.states], [State.JOINED, State.AWAY, State.JOINED])

    def test_refusedAgain(self) -> None:
        """A subscription that is refused on the new connection ends; the others go on."""
        one, two = self.subscribe("a"), self.subscribe("b")
        self.clientState.lose(LOST)
        self.heard()
        joined = self.join()
        pings = [each for each in self.heard() if each.kind == "PING"][1:]
        self.pong(pings[0])
        self.refuse(603)
        self.pong(*pings[1:])
        self.assertIsInstance(one.end, SubscribeFailed)
        self.assertEqual((two.end, joined.done), (None, True))

    def test_waiting(self) -> None:
        """Whoever waits for an answer is told at once that there will be none."""
        _, barrier = self.clientState.barrier()
        _, _, reply = self.clientState.request(5, "/p", b"")
        self.assertTrue(self.clientState.needsAnswers)
        self.clientState.lose(LOST)
        self.assertRaises(ConnectionLost, barrier.result)
        self.assertRaises(ConnectionLost, reply.result)
        self.assertFalse(self.clientState.needsAnswers)

    def test_ids(self) -> None:
        """Another client that knows earlier ids of requests cannot guess the next one."""
        first, second = (self.clientState.request("svc", "/p", b"")[1] for _ in range(2))
        self.assertNotEqual(first[:5], second[:5])

    def test_ended(self) -> None:
        """The end is told once, to boxes and to those who wait for a connection."""
        box = self.subscribe("a")
        self.clientState.lose(LOST)
        arrival = self.clientState.whenJoined()
        self.clientState.end(LOST)
        self.clientState.end(None)
        self.assertIsInstance(box.end, ConnectionLost)
        self.assertRaises(ConnectionLost, arrival.result)
        self.assertRaises(ConnectionLost, self.clientState.whenJoined().result)
        self.assertEqual([state for state, _ in self.states], [State.JOINED, State.AWAY, State.CLOSED])

    def test_missing(self) -> None:
        """The loss names the subscriptions that miss something: not those from the past."""
        self.subscribe("a")
        self.subscribe("b.*")
        self.subscribe("c", "first")
        self.clientState.lose(LOST)
        self.assertEqual(self.states[-1][1].missing, ("a", "b.*"))

    def test_waitedTooLong(self) -> None:
        """Who waits no longer for a connection is forgotten."""
        self.clientState.lose(LOST)
        arrival = self.clientState.whenJoined()
        self.clientState.cancelWait(arrival)
        self.clientState.cancelWait(arrival)
        self.join()
        self.assertFalse(arrival.done)

    def test_away(self) -> None:
        """Without a connection nothing is asked, so that nobody waits for what never comes."""
        clientState = self.clientState
        clientState.lose(LOST)
        for call in (
            clientState.barrier,
            lambda: clientState.newSubscription("a", None),
            lambda: clientState.request(5, "/p", b""),
        ):
            self.assertRaises(ConnectionLost, call)
        self.assertFalse(clientState.inbox.boxes)

    def test_silence(self) -> None:
        """The broker is asked in each interval, and given up after three in which nothing came."""
        self.heard()
        self.assertEqual([self.clientState.tick(False) for _ in range(4)], [True, True, True, False])
        self.assertEqual([each.kind for each in self.heard()], ["PING"] * 3)

    def test_noSilence(self) -> None:
        """Anything that comes is a sign of life, and nobody is given up who is not read."""
        for _ in range(10):
            self.assertTrue(self.clientState.tick(False))
            self.clientState.dataReceived(frame("PONG", 1, {"keepalive": {"timestamp": 0}}))
        self.assertTrue(all(self.clientState.tick(True) for _ in range(10)))


class LaterTests(LedgerCase):
    """What is said while there is no connection."""

    def publish(self, n: int, size: int = 1) -> None:
        """Publish while away."""
        self.clientState.bufferUntilJoined(size, lambda said: said.publication(f"t{n}", b"\1"))

    def test_sent(self) -> None:
        """It is sent in order, with the new id."""
        self.clientState.lose(LOST)
        self.heard()
        self.publish(1)
        self.publish(2)
        self.join(1001)
        _, *pubs = self.heard()
        self.assertEqual([(each.header["topic"], each.sender) for each in pubs], [("t1", 1001), ("t2", 1001)])
        self.assertTrue(self.clientState.accounts.needsFlush)

    def test_full(self) -> None:
        """What does not fit is refused; at the bound it fits."""
        self.clientState.lose(LOST)
        self.publish(1, 1000 - 64)
        self.assertRaises(BufferFull, self.publish, 2, 0)

    def test_over(self) -> None:
        """When there will be no connection, nothing is kept."""
        self.clientState.end(None)
        self.assertRaises(ConnectionLost, self.publish, 1)

    def test_uncertain(self) -> None:
        """What was sent before a loss is told, once; what was kept while away only when that was sent and lost."""
        self.clientState.accounts.countSent(self.clientState.accounts.current())
        self.clientState.lose(LOST)
        self.assertRaises(ConnectionLost, self.clientState.checkLosses)
        self.publish(1)
        self.clientState.lose(LOST)
        self.clientState.checkLosses()
        self.join()
        self.clientState.lose(LOST)
        self.assertRaises(ConnectionLost, self.clientState.checkLosses)

    def test_refusedBeforeLoss(self) -> None:
        """The loss tells the refusals before it, so that the next flush does not blame later messages for them."""
        self.clientState.accounts.countSent(self.clientState.accounts.current())
        self.refuse(413, "a")
        self.clientState.lose(LOST)
        lost = self.assertRaises(ConnectionLost, self.clientState.checkLosses)
        self.assertEqual([each.status for each in lost.refused], [413])
        self.assertIn("413", str(lost))
        self.heard()
        self.join()
        data, barrier = self.clientState.barrier()
        self.pong(*cut(data))
        self.assertEqual(barrier.result().count, 0)
        self.clientState.lose(LOST)
        self.assertNotIn("413", str(self.clientState.lost))

    def test_keptBehindSubscriptions(self) -> None:
        """What answers the new subscriptions says nothing of what was kept meanwhile, and is sent behind them."""
        self.subscribe("a")
        self.clientState.lose(LOST)
        self.heard()
        self.publish(1)
        self.join()
        self.pong(*(each for each in self.heard() if each.kind == "PING"))
        self.assertEqual(self.clientState.state, State.JOINED)
        self.clientState.lose(LOST)
        self.assertRaises(ConnectionLost, self.clientState.checkLosses)


class HeardTests(LedgerCase):
    """What comes."""

    def request(self, path: str, payload: bytes = b"\1", **more: Any) -> None:
        """Ask the client."""
        header = {"routing": [{"client_id": 1000, "path": path}], "reqrep": {"type": "request", "id": "i"}, **more}
        self.clientState.dataReceived(frame("REQ", 5, header, payload))

    def waiting(self) -> list[str]:
        """Return the paths of the requests that wait, and take them."""
        taken = []
        while (accepted := self.clientState.requests.take()) is not None:
            taken.append(accepted.request.path)
        return taken

    def test_requests(self) -> None:
        """Served paths are handed on; others are answered with 404."""
        self.heard()
        self.clientState.served["/a"] = lambda request: None
        self.request("/a")
        self.request("/b")
        self.assertEqual((self.asked, self.waiting()), (1, ["/a"]))
        self.assertEqual([each.status for each in self.heard()], [404])

    def test_tooManyRequests(self) -> None:
        """Beyond the limit, 1 MiB at least, requests are answered with 503 until an earlier one is answered."""
        self.have(ClientSettings(prefetch=1))
        self.clientState.served["/a"] = lambda request: None
        self.heard()
        self.request("/a", bytes(1 << 20))
        self.request("/a")
        self.assertEqual([(each.status, each.value) for each in self.heard()],
                         [(503, "this client has too many unanswered requests")])  # fmt: skip
        first = self.clientState.requests.take()
        assert first is not None
        self.request("/a")
        self.assertEqual([each.status for each in self.heard()], [503])
        self.clientState.requests.answered(first)
        self.request("/a")
        self.assertEqual((self.heard(), self.asked, self.waiting()), ([], 2, ["/a"]))

    def test_requestsUpToPrefetch(self) -> None:
        """``prefetch`` is the limit where it is more than 1 MiB."""
        self.have(ClientSettings(prefetch=3 << 20))
        self.clientState.served["/a"] = lambda request: None
        self.heard()
        for _ in range(5):
            self.request("/a", bytes(1 << 20))
        self.assertEqual((len(self.waiting()), [each.status for each in self.heard()]), (3, [503, 503]))

    def test_longHeaders(self) -> None:
        """Requests of long headers count what the decoded headers may take."""
        self.have(ClientSettings(prefetch=1))
        self.clientState.served["/a"] = lambda request: None
        self.heard()
        for _ in range(3):
            self.request("/a", more=bytes(10_000))
        self.assertEqual((len(self.waiting()), [each.status for each in self.heard()]), (2, [503]))

    def test_requestsOfLostConnection(self) -> None:
        """Requests that wait when the connection is lost are not answered, since the broker answers them."""
        self.clientState.served["/a"] = lambda request: None
        self.request("/a", bytes(1 << 20))
        self.clientState.lose(LOST)
        self.assertEqual((self.waiting(), self.clientState.requests.size), ([], 0))

    def test_pinged(self) -> None:
        """A PING is answered."""
        self.heard()
        self.clientState.dataReceived(frame("PING", 1, {"keepalive": {"timestamp": 9}}))
        [pong] = self.heard()
        self.assertEqual((pong.kind, pong.header), ("PONG", {"keepalive": {"timestamp": 9}}))

    def test_anEndedConsumerIsNoSubscription(self) -> None:
        """The payload of its end names the queue; that of a subscription's end does not."""
        consumer = self.clientState.newConsumer("a", 1).box
        subscription = self.clientState.newSubscription("a", None).box
        self.refuse(603, "a", packed({"error": "no", "queue": "a"}))
        self.assertIsInstance(consumer.end, SubscribeFailed)
        self.assertIsNone(subscription.end)
        self.refuse(603, "a")
        self.assertIsInstance(subscription.end, SubscribeFailed)

    def test_aRefusedPublicationEndsNoConsumer(self) -> None:
        """403 with the topic as path."""
        consumer = self.clientState.newConsumer("a", 1).box
        self.refuse(403, "a")
        self.assertIsNone(consumer.end)

    def test_left(self) -> None:
        """What is refused before a PONG for which nobody waits any more is told by the next flush."""
        data, barrier = self.clientState.barrier()
        self.clientState.detachBarrier(barrier)
        self.refuse(403, "a")
        self.pong(*cut(data))
        data, barrier = self.clientState.barrier()
        self.pong(*cut(data))
        self.assertEqual(barrier.result().count, 1)

    def test_refusalAfterAPongBelongsToTheNextFlush(self) -> None:
        """One before it to its own."""
        for before in (0, 1):
            data, barrier = self.clientState.barrier()
            self.pong(*cut(data))
            self.assertEqual(barrier.result().count, before)
            self.refuse(403, "a")

    def test_refusalBetweenItsPingsIsThatOfASubscription(self) -> None:
        """If it names no topic; all others are left to the next flush."""
        self.refuse(400, "old")
        made = self.clientState.newSubscription("a", None)
        first, _, second = cut(made.data)
        self.refuse(400)
        self.pong(first)
        self.refuse(503, "a")
        self.refuse(603)
        self.pong(second)
        error = self.assertRaises(SubscribeFailed, self.clientState.confirmSubscription, made)
        self.assertEqual((error.status, error.path), (603, "a"))
        self.clientState.dataReceived(frame("PUB", 7, {"topic": "a"}, b"\1"))
        data, barrier = self.clientState.barrier()
        self.pong(*cut(data))
        self.assertEqual([each.status for each in barrier.result().all], [400, 400, 503])
        self.assertEqual(self.clientState.inbox.bufferedBytes, 0)

    def test_deliveryBeforeTheConfirmationIsGiven(self) -> None:
        """It follows the SUB."""
        made = self.clientState.newSubscription("a", None)
        first, _, second = cut(made.data)
        self.pong(first)
        self.clientState.dataReceived(frame("PUB", 7, {"topic": "a"}, b"\1"))
        self.pong(second)
        self.clientState.confirmSubscription(made)
        self.assertEqual(len(made.box.waiting), 1)

    def test_wrongStartLeavesNoSubscription(self) -> None:
        """It cannot be packed."""
        self.assertRaises(TypeError, self.clientState.newSubscription, "a", {"time": object()})
        self.assertFalse(self.clientState.inbox.boxes)

    def test_onlyTheTargetOrTheBrokerAnswersARequest(self) -> None:
        """And only while somebody waits for the answer."""
        for sender, isAnswer in ((6, False), (5, True), (1, True)):
            _, id, reply = self.clientState.request(5, "/p", b"")
            header = {"reqrep": {"type": "correlation", "id": id}}
            self.clientState.dataReceived(frame("REP", sender, header))
            self.assertEqual(reply.done, isAnswer)
            self.clientState.forgetRequest(id)
            self.clientState.dataReceived(frame("REP", 5, header))
            self.assertEqual(reply.done, isAnswer)
        self.assertFalse(self.clientState.needsAnswers)

    def test_overrunSubscriptionIsEndedAndUnsubscribed(self) -> None:
        """The others go on."""
        self.clientState.inbox = Inbox(lambda: None, self.clientState._overrun, maximum=300)
        box, other = self.subscribe("a"), self.subscribe("b")
        self.heard()
        for _ in range(3):
            self.clientState.dataReceived(frame("PUB", 7, {"topic": "a"}, bytes(100)))
        self.assertIsInstance(box.end, Overrun)
        self.assertIsNone(other.end)
        self.assertEqual([(each.kind, each.header) for each in self.heard()], [("UNSUB", {"topic": "a"})])


class TransientTests(SynchronousTestCase):
    """Errors after which another attempt is of use."""

    def test_transient(self) -> None:
        """Another attempt is of use unless somebody does not trust or does not let in."""
        self.assertTrue(
            isTransient(LOST) and isTransient(JoinRefused(503, "full")) and isTransient(JoinRefused(429, "slowly"))
        )
        self.assertFalse(
            isTransient(Untrusted("no")) or isTransient(JoinRefused(401, "no")) or isTransient(JoinRefused(604, "no"))
        )

    def test_pending(self) -> None:
        """It is settled once, and tells so."""
        told: list[None] = []
        pending: Pending[int] = Pending()
        pending.onDone = lambda: told.append(None)
        pending.succeed(1)
        pending.fail(LOST)
        self.assertEqual((pending.result(), len(told)), (1, 1))

    def test_settings(self) -> None:
        """Values that make no sense are refused, and credentials are not shown."""
        numbers: Any = ({"threads": 0}, {"timeout": 0}, {"keep_alive": 0}, {"buffer": -1}, {"prefetch": 0})
        for wrong in (*numbers, {"reconnect": False}):
            self.assertRaises(SettingError, ClientSettings, **wrong)
        others: Any = (("alice", "secret"), {"type": "token", "token": 5}, {"type": "token", "token": "\udcff"})
        for wrong in others:
            error = self.assertRaises(SettingError, ClientSettings, credentials=wrong)
            self.assertNotIn("secret", str(error))
        self.assertRaises(SettingError, ClientSettings, name="\udcff")
        self.assertNotIn("secret", repr(ClientSettings(credentials={"type": "token", "token": "secret"})))
        intervals = [ClientSettings(keep_alive=seconds).interval for seconds in (0.1, 30, 1000, None)]
        self.assertEqual(intervals, [5, 30, 300, 300])
