"""Every form of the client on a network that delays, cuts and splits, and with a broker that is started anew."""

import random
import socket
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from itertools import count
from pathlib import Path
from threading import Event
from typing import Any

import msgpack

from fleximq.client import blocking, reconnecting
from fleximq.client.backoff import Backoff
from fleximq.client.errors import BufferFull, ConnectionLost, RequestFailed
from fleximq.client.events import Gap
from fleximq.client.settings import State
from tests.broker_process import BrokerProcess
from tests.client.bad_network import BadNetwork
from tests.client.cases import SOON, NetworkCase, Place, inEveryForm
from tests.client.forms import OnTwisted, User
from tests.client.scripted import InThread, Peer, Scripted
from tests.nightly import repetitions
from tests.wire.flexi_frames import frame

_broker = Place()


class FlexiCase(NetworkCase):
    """A client behind a bad network, and a subscriber with a good one."""

    place = _broker

    def direct(self, **options: Any) -> Any:
        """Return a client that no fault disturbs, and that shares no loop with the others."""
        client = blocking.connect(f"tcp://127.0.0.1:{_broker.broker.port()}", **options)
        self.addCleanup(client.hang_up)
        return client


class Networks(FlexiCase):
    """A network that fails."""

    def test_subscriptionsAndServedPathsGoOnAfterACut(self) -> None:
        """Each once, on a connection with another id."""
        one, other = self.connected(), self.direct()
        first, second = one.subscribe(self.topic), one.subscribe(f"{self.topic}.*")
        one.serve("/id", lambda request: request.value)
        for n in range(3):
            id = one.id
            self.cut(one)
            self.assertNotEqual(one.id, id)
            other.publish(self.topic, n)
            other.publish(f"{self.topic}.a", -n)
            other.flush()
            self.assertEqual((self.values(first, 1), self.values(second, 1)), ([n], [-n]))
            self.assertEqual(other.request(one.id, "/id", n), n)
        one.ping()
        self.assertEqual((first.waiting, second.waiting), (0, 0))
        self.assertEqual(self.states, [State.JOINED, *[State.AWAY, State.JOINED] * 3])
        self.assertEqual(one.ask("/broker/about")["name"], "FlexiMQ")

    def test_gapsAreShownWhereTheyAreAskedFor(self) -> None:
        """The log names the subscriptions that miss messages."""
        one, other = self.connected(), self.direct()
        subscription = one.subscribe(self.topic, gaps=True)
        other.publish(self.topic, 1)
        self.assertEqual(self.values(subscription, 1), [1])
        with self.assertLogs("fleximq.client", "WARNING") as logged:
            self.cut(one)
        self.assertIn(f"Subscriptions miss messages until the client has rejoined: {self.topic} (", logged.output[0])
        other.publish(self.topic, 2)
        gap = subscription.next(SOON)
        self.assertIsInstance(gap, Gap)
        self.assertEqual((gap.topic, gap.value, self.values(subscription, 1)), (self.topic, None, [2]))

    def test_closedSubscriptionIsNotRestored(self) -> None:
        """The others are."""
        one, other = self.connected(), self.direct()
        subscription, rest = one.subscribe(self.topic), one.subscribe(f"{self.topic}.rest")
        subscription.close()
        self.cut(one)
        other.publish(self.topic, 1)
        other.publish(f"{self.topic}.rest", 2)
        self.assertEqual(self.values(rest, 1), [2])
        self.assertEqual(subscription.waiting, 0)

    def test_publicationsAreBufferedWhileAway(self) -> None:
        """They arrive later, in order; more than ``buffer`` bytes are refused."""
        one, subscription = self.connected(buffer=20_000), self.direct().subscribe(self.topic)
        self.away(one)
        published = 0

        def fill() -> None:
            nonlocal published
            while True:
                one.publish(self.topic, published)
                published += 1

        self.assertRaises(BufferFull, fill)
        self.assertGreater(published, 100)
        self.assertRaises(TimeoutError, one.flush, 0.05)
        self.assertRaises(TimeoutError, one.ask, "/broker/about", timeout=0.05)
        self.network.isDown = False
        one.flush()
        one.publish(self.topic, "behind")
        self.assertEqual(self.values(subscription, published + 1), [*range(published), "behind"])

    def test_requestDuringACutFailsAtOnce(self) -> None:
        """The next one succeeds."""
        one, other = self.connected(), self.direct()
        other.serve("/late", lambda request: time.sleep(0.5))
        asking = InThread(lambda: one.request(other.id, "/late", timeout=SOON))
        time.sleep(0.1)
        self.network.cut()
        self.assertRaises(ConnectionLost, asking.result)
        self.assertEqual(one.ask("/broker/about")["name"], "FlexiMQ")

    def test_unflushedPublicationsAreToldAsLostOnce(self) -> None:
        """By the flush, or by closing."""
        one = self.connected()
        one.publish(self.topic, 1)
        self.cut(one)
        self.assertRaises(ConnectionLost, one.flush)
        one.flush()
        one.publish(self.topic, 1)
        self.cut(one)
        self.assertRaises(ConnectionLost, one.close)

    def test_flushedPublicationsAreNotLost(self) -> None:
        """Closing raises no error."""
        one = self.connected()
        one.publish(self.topic, 1)
        one.flush()
        self.cut(one)
        one.close()

    def test_piecesThatArriveLateChangeNothing(self) -> None:
        """Of up to 40 bytes."""
        self.network.split, self.network.delay = 40, 0.0002
        one = self.connected()
        subscription = one.subscribe(self.topic)
        one.publish_many(self.topic, range(300))
        one.publish(self.topic, bytes(3000))
        one.flush()
        self.assertEqual(self.values(subscription, 301), [*range(300), bytes(3000)])

    def test_clientJoinsWhenConnectionsBringMoreThanItsJoin(self) -> None:
        """All before are cut within the handshake; what was published meanwhile waits."""
        one, subscription = self.connected(), self.direct().subscribe(self.topic)
        self.network.cutAfter = 100
        self.network.cut()
        self.until(lambda: one.state is State.AWAY)
        while True:
            one.publish(self.topic, 1)
            try:
                one.flush()
                break
            except ConnectionLost:
                pass
        self.assertEqual(self.values(subscription, 1), [1])

    def test_flushedPublicationsSurviveManyCuts(self) -> None:
        """Anywhere in the bytes; nothing hangs."""
        one, subscription = self.connected(), self.direct().subscribe(self.topic)
        confirmed: list[int] = []
        for batch in range(12):
            self.network.cutAfter = random.randint(100, 6000)
            if batch % 3 == 0:
                self.network.cut()
            numbers = range(batch * 40, batch * 40 + 40)
            while True:
                try:
                    one.publish_many(self.topic, numbers)
                    one.flush(SOON)
                    break
                except ConnectionLost:
                    self.network.cutAfter = random.randint(3000, 9000)
            confirmed += numbers
        self.network.cutAfter = None
        self.direct().publish(self.topic, "end")
        got = []
        while (value := self.values(subscription, 1)[0]) != "end":
            self.assertIsNotNone(value)
            got.append(value)
        self.assertEqual(sorted(set(got)), confirmed)

    def test_subscriberGetsNothingTwiceOverManyCuts(self) -> None:
        """And goes on."""
        one, other = self.connected(), self.direct()
        subscription = one.subscribe(self.topic)
        for n in range(10):
            self.network.cut()
            other.publish_many(self.topic, range(100 * n, 100 * n + 100))
            other.flush()
        self.until(lambda: one.state is State.JOINED)
        self.cut(one)
        other.publish(self.topic, "end")
        got = []
        while (value := self.values(subscription, 1)[0]) != "end":
            got.append(value)
        self.assertEqual(got, sorted(set(got)))

    def test_silentConnectionIsReplaced(self) -> None:
        """After three unanswered PINGs."""
        one = self.connected(keep_alive=0.1, timeout=5.0)
        self.network.isSilent = True
        self.until(lambda: State.AWAY in self.states)
        self.network.isSilent = False
        self.until(lambda: one.state is State.JOINED)
        one.flush()

    def test_otherAddressIsTriedFirstAfterALoss(self) -> None:
        """One that refuses or stays silent is passed over."""
        self.patch(reconnecting, "_ADDRESS_SECONDS", 0.5)
        nodes = [self.network, *(BadNetwork(_broker.broker.address).__enter__() for _ in range(3))]
        for each in nodes[1:]:
            self.addCleanup(each.__exit__, None, None, None)
        nodes[2].isDown = nodes[3].isSilent = True
        url = "tcp://" + ",".join(f"127.0.0.1:{each.port}" for each in nodes)
        one = self.connectedTo(url, on_state=lambda state, why: self.states.append(state))
        subscription = one.subscribe(self.topic)
        for n in range(3):
            before = one.url
            nodes[before == nodes[1].url].cut()
            self.until(lambda: len(self.states) == 2 * n + 3 and one.state is State.JOINED)  # noqa: B023
            self.assertEqual({one.url, before}, {each.url for each in nodes[:2]})
            one.publish(self.topic, n)
            one.flush()
            self.assertEqual(self.values(subscription, 1), [n])

    def test_clientThatConnectsOnceTriesAllAddresses(self) -> None:
        """At first."""
        self.patch(random, "sample", lambda urls, number: list(urls))
        self.network.isDown = True
        urls = [self.network.url, f"tcp://127.0.0.1:{_broker.broker.port()}"]
        self.assertEqual(self.connectedTo(urls, reconnect=None).url, urls[1])

    def test_errorNamesEachAddress(self) -> None:
        """A transient error is raised before another one."""
        self.network.isDown = True
        closed = socket.create_server(("127.0.0.1", 0))
        urls = [self.network.url, f"tcp://127.0.0.1:{closed.getsockname()[1]}"]
        closed.close()
        self.assertIn(f"cannot connect to {urls[1]}", str(self.assertRaises(ConnectionLost, self.connectedTo, urls)))

        def script(peer: Peer) -> None:
            peer.hear("JOIN")
            peer.refuse(401)

        with Scripted(script) as refusing:
            self.assertRaises(ConnectionLost, self.connectedTo, [refusing, urls[1]])

    def test_clientGivesUpAfterItsAttempts(self) -> None:
        """Waits and further calls fail."""
        one = self.connected(reconnect=Backoff(first=0.01, most=0.01, attempts=3))
        subscription = one.subscribe(self.topic)
        waiting = InThread(subscription.next)
        self.network.isDown = True
        self.network.cut()
        self.assertRaises(ConnectionLost, waiting.result)
        self.until(lambda: self.states == [State.JOINED, State.AWAY, State.CLOSED])
        for call in (lambda: one.publish(self.topic, 1), one.flush, subscription.next):
            self.assertRaises(ConnectionLost, call)

    def test_refusalForGoodEndsTheClientWithItsReason(self) -> None:
        """Without further attempts."""
        one = self.connected()
        subscription = one.subscribe(self.topic)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.network.target = listener.getsockname()[:2]
            self.network.cut()
            stream, _ = listener.accept()
            with stream:
                stream.recv(1000)
                stream.sendall(frame("REP", 0, {"status": 401}, msgpack.packb("no longer")))
                error = self.assertRaises(ConnectionLost, subscription.next)
        self.assertIn("401 unauthorized: no longer", str(error))
        self.until(lambda: self.states == [State.JOINED, State.AWAY, State.CLOSED])

    def test_clientWithoutReconnectEnds(self) -> None:
        """Deliveries before the loss can be read; then each call raises it."""
        one = self.connected(reconnect=None)
        subscription = one.subscribe(self.topic)
        one.publish(self.topic, 1)
        one.flush()
        self.network.cut()
        self.until(lambda: self.states[-1] is State.CLOSED)
        self.assertEqual(self.values(subscription, 1), [1])
        for _ in range(2):
            self.assertRaises(ConnectionLost, subscription.next)
        self.assertRaises(ConnectionLost, one.publish, self.topic, 1)
        self.assertEqual(self.network.made, 1)

    def test_clientCanBeClosedWhileAway(self) -> None:
        """It does not connect again."""
        one = self.connected()
        self.away(one)
        one.close()
        self.network.isDown = False
        self.assertIs(one.state, State.CLOSED)
        self.assertRaises(ConnectionLost, one.flush)


class Users(FlexiCase):
    """Several who use one client: everybody is told of his own loss."""

    def setUp(self) -> None:
        """Have a client and two who use it, besides the test itself."""
        super().setUp()
        self.client = self.connected()
        self.one, self.other = self.user(), self.user()

    def user(self) -> User:
        """Return a further one."""
        user = self.form.user()
        self.addCleanup(user.end)
        return user

    def publish(self, *users: User) -> None:
        """Let them publish."""
        for each in users:
            each.do(self.client, "publish", self.topic, 1)

    def flush(self, user: User) -> bool:
        """Let one flush, and return whether that went well."""
        try:
            user.do(self.client, "flush")
        except ConnectionLost:
            return False
        return True

    def test_eachUserIsToldOfHisLossOnce(self) -> None:
        """And no other."""
        self.publish(self.one, self.other)
        self.cut(self.client)
        self.assertEqual([self.flush(each) for each in (self.one, self.other)], [False, False])
        self.assertEqual([self.flush(each) for each in (self.one, self.other, self.user())], [True, True, True])
        self.client.flush()

    def test_flushThatFailsByTheLossTellsIt(self) -> None:
        """The next flush does not."""
        self.publish(self.one, self.other)
        self.network.isSilent = True
        flushing = [InThread(partial(self.flush, each)) for each in (self.one, self.other)]
        time.sleep(0.1)
        self.network.isSilent = False
        self.cut(self.client)
        self.assertEqual([each.result() for each in flushing], [False, False])
        self.assertEqual([self.flush(each) for each in (self.one, self.other)], [True, True])

    def test_lossOfAnEndedUserIsToldByTheNextFlush(self) -> None:
        """Whether the user ended before the loss or afterwards."""
        gone, going = self.user(), self.user()
        self.publish(gone, going)
        gone.end()
        self.cut(self.client)
        going.end()
        self.assertEqual([self.flush(each) for each in (self.one, self.other)], [False, True])

    def test_flushedPublicationsOfSeveralSurviveManyCuts(self) -> None:
        """Confirmed to any of them."""
        subscription = self.direct().subscribe(self.topic)
        self.network.cutAfter = 8000

        def work(first: int) -> list[int]:
            user = self.user()
            confirmed: list[int] = []
            for batch in range(first, first + 800, 40):
                while True:
                    user.do(self.client, "publish_many", self.topic, range(batch, batch + 20))
                    for number in range(batch + 20, batch + 40):
                        user.do(self.client, "publish", self.topic, number)
                    if self.flush(user):
                        break
                confirmed += range(batch, batch + 40)
            return confirmed

        working = [InThread(partial(work, 1000 * n)) for n in range(3)]
        confirmed = [number for each in working for number in each.result()]
        self.direct().publish(self.topic, "end")
        got = []
        while (value := self.values(subscription, 1)[0]) != "end":
            self.assertIsNotNone(value)
            got.append(value)
        self.assertEqual(set(got), set(confirmed))


class TwistedClosingTests(FlexiCase):
    """A client on Twisted that is closed while it connects again."""

    Form = OnTwisted

    def test_closingWhileConnectingIsNotLogged(self) -> None:
        """The attempt is cancelled."""
        client = self.connected()
        loop, dialled = client._inner._inner._loop, Event()

        async def dial(*arguments: Any) -> None:
            dialled.set()
            await loop.slot()[0]

        loop.dial = dial
        self.network.cut()
        self.assertTrue(dialled.wait(SOON))
        with self.assertNoLogs("fleximq.client"):
            client.hang_up()
        self.assertIs(client.state, State.CLOSED)


class Services(FlexiCase):
    """Three clients of one name, each behind a network of its own."""

    def setUp(self) -> None:
        """Have the servers, which note the requests that they answer."""
        super().setUp()
        self.networks = [BadNetwork(_broker.broker.address).__enter__() for _ in range(3)]
        self.answered: list[tuple[int, int]] = []
        for place, network in enumerate(self.networks):
            self.addCleanup(network.__exit__, None, None, None)
            self.connectedTo(network.url, name=self.topic).serve("/double", partial(self.double, place))

    def double(self, place: int, request: Any) -> int:
        """Answer, in a moment in which a server may be killed."""
        self.answered.append((place, request.value))
        time.sleep(0.002)
        return 2 * int(request.value)

    def ask(self, numbers: Iterator[int], isOver: Event) -> list[RequestFailed]:
        """Request, until it is over; return the failures."""
        client, failed = self.direct(), []
        for number in numbers:
            if isOver.is_set():
                break
            try:
                self.assertEqual(client.request(self.topic, "/double", number, SOON), 2 * number)
            except RequestFailed as error:
                failed.append(error)
        return failed

    def test_eachRequestIsAnsweredOnceOrFails(self) -> None:
        """A service that reconnects gets its share again."""
        numbers, isOver = count(), Event()
        asking = [InThread(partial(self.ask, numbers, isOver)) for _ in range(4)]
        for _ in range(repetitions(8, 60)):
            random.choice(self.networks).cut()
            time.sleep(repetitions(15, 100) / 100)
        isOver.set()
        for error in [each for asked in asking for each in asked.result()]:
            self.assertIn((error.status, error.words.split(" ")[0]), ((502, "the"), (600, "there")), error)
        seen = Counter(number for _, number in self.answered)
        self.assertEqual((seen.most_common(1)[0][1], {place for place, _ in self.answered}), (1, {0, 1, 2}))
        self.answered.clear()
        asker = self.direct()
        self.until(lambda: asker.request(self.topic, "/double", 1) and len({*self.answered}) == 3)


class Restarts(FlexiCase):
    """A broker with a journal that is killed and started anew."""

    def setUp(self) -> None:
        """Have a place for the journal."""
        super().setUp()
        self.journal = Path(self.mktemp()).absolute()
        self.begin()

    def begin(self) -> None:
        """Start a broker, and lead the network to it."""
        self.broker = BrokerProcess("--journal", str(self.journal), "--durable", "#").__enter__()
        self.addCleanup(self.broker.stop)
        self.network.target = self.broker.address

    def restart(self) -> None:
        """Kill the broker, and start it anew."""
        self.broker.stop(9)
        self.begin()

    def test_flushedPublicationsReplaysAndNamesSurviveARestart(self) -> None:
        """A replay goes on where it was."""
        one = self.connected(name=self.topic)
        subscription = one.subscribe(self.topic, from_="first")
        one.serve("/id", lambda request: request.value)
        one.publish_many(self.topic, range(100))
        one.flush()
        self.assertEqual(self.values(subscription, 100), list(range(100)))
        self.duringReconnect(one, self.restart)
        one.publish_many(self.topic, range(100, 200))
        one.flush()
        got = [subscription.next(SOON) for _ in range(100)]
        self.assertEqual([each.value for each in got], list(range(100, 200)))
        self.assertEqual(sorted({each.offset for each in got}), [each.offset for each in got])
        self.duringReconnect(one, self.restart)
        again = one.subscribe(f"{self.topic}.other", from_="first")
        one.publish(f"{self.topic}.other", 1)
        one.flush()
        self.assertEqual(self.values(again, 1), [1])
        self.assertEqual(subscription.waiting, 0)
        with blocking.connect(f"tcp://127.0.0.1:{self.broker.port()}") as other:
            self.assertEqual(other.request(self.topic, "/id", 5), 5)

    def test_resumedSubscriptionMissesNothing(self) -> None:
        """It begins with new messages, even if it had none before a cut."""
        one, other = self.connected(), self.form.connect(f"tcp://127.0.0.1:{self.broker.port()}")
        self.addCleanup(other.hang_up)
        other.publish(self.topic, -1)
        other.flush()
        subscription = one.subscribe(self.topic, resume=True, gaps=True)
        for n in range(3):
            self.away(one)
            other.publish_many(self.topic, [2 * n, 2 * n + 1])
            other.flush()
            self.network.isDown = False
            self.assertEqual(self.values(subscription, 2), [2 * n, 2 * n + 1])
        self.assertEqual(subscription.waiting, 0)

    def test_resumedSubscriptionToATopicThatHadNoMessages(self) -> None:
        """Its first message may follow others, which are not missed: nothing was removed."""
        one, other = self.connected(), self.form.connect(f"tcp://127.0.0.1:{self.broker.port()}")
        self.addCleanup(other.hang_up)
        subscription = one.subscribe(self.topic, resume=True)
        self.away(one)
        other.publish(f"{self.topic}.other", 1)
        other.publish(self.topic, 2)
        other.flush()
        self.network.isDown = False
        self.assertEqual(self.values(subscription, 1), [2])

    def test_flushedPublicationsSurviveAKill(self) -> None:
        """In the middle of publishing."""
        one, confirmed, restarts = self.connected(), list[int](), {1, 3}
        for batch in range(4):
            numbers = range(batch * 5000, batch * 5000 + 5000)
            while True:
                try:
                    one.publish_many(self.topic, numbers)
                    if batch in restarts:
                        restarts.discard(batch)
                        self.restart()
                    one.flush(SOON)
                    break
                except ConnectionLost:
                    continue
            confirmed += numbers
        kept = one.subscribe(self.topic, from_="first")
        one.publish(self.topic, "end")
        got = []
        while (value := self.values(kept, 1)[0]) != "end":
            self.assertIsNotNone(value)
            got.append(value)
        self.assertEqual(sorted(set(got)), confirmed)


inEveryForm(globals(), Networks, Users, Services, Restarts)
del FlexiCase
