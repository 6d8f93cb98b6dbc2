"""The BlipMQ client in every form: conversations with a broker, on bad networks, and over restarts."""

import random
import threading
import time
import warnings
from pathlib import Path
from typing import Any

from fleximq.cli.credential_files import setSecret
from fleximq.client.backoff import Backoff
from fleximq.client.errors import BufferFull, ConnectionLost, JoinRefused, Nacked, SubscribeFailed, TopicWarning
from fleximq.client.settings import State
from fleximq.errors import SettingError
from tests.broker_process import BrokerProcess
from tests.client.queues.forms import LATER, SOON, QueueCase, everyForm


def payloads(subscription: Any, count: int) -> list[bytes]:
    """Return what the next deliveries hold."""
    got = [subscription.next(SOON) for _ in range(count)]
    return [each and each.payload for each in got]


class BlipCase(QueueCase):
    """Clients of BlipMQ."""

    dialect = "blipmq"


class Conversations(BlipCase):
    """What is said between a client and a broker that is there."""

    def test_published(self) -> None:
        """What is published comes, in order, with topic, QoS and tag."""
        one = self.direct()
        subscription = one.subscribe(self.topic)
        self.assertEqual(one.publish(self.topic, b"a"), 1)
        self.assertEqual(one.publish_many(self.topic, [b"b", "ü", b""]), range(2, 5))
        self.assertRaises(TypeError, one.publish_many, self.topic, "text")
        got = [subscription.next(SOON) for _ in range(4)]
        self.assertEqual([each.payload for each in got], [b"a", b"b", "ü".encode(), b""])
        self.assertEqual([each.tag for each in got], [1, 2, 3, 4])
        self.assertEqual(
            {(each.topic, each.qos, each.subscription) for each in got}, {(self.topic, 1, subscription.id)}
        )
        self.assertEqual(got[2].text, "ü")

    def test_doubtful(self) -> None:
        """A name that may not mean what was typed is used, with one warning."""
        one = self.direct()
        for call, name, more in (
            ("subscribe", ".>", ()),
            ("subscribe", ".*", ()),
            ("publish", "..b", (b"x",)),
            ("publish_many", ".+.b", ([b"x"],)),
        ):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always", TopicWarning)
                getattr(one, call)(self.topic + name, *more)
            told = [str(each.message) for each in caught if each.category is TopicWarning]
            self.assertEqual(["empty level" in each or "an ordinary topic" in each for each in told], [True], call)

    def test_empty(self) -> None:
        """Nothing there: None, at once or in time; what comes meanwhile is found."""
        one = self.direct()
        subscription = one.subscribe(self.topic)
        self.assertIsNone(subscription.next(0))
        begun = time.monotonic()
        self.assertIsNone(subscription.next(0.1))
        self.assertGreaterEqual(time.monotonic() - begun, 0.1)
        timer = threading.Timer(0.2, one.publish, (self.topic, b"late"))
        timer.start()
        self.assertEqual(payloads(subscription, 1), [b"late"])
        timer.join()

    def test_urgent(self) -> None:
        """However long the pauses are, who newly asks is answered at once."""
        one = self.direct()
        subscription = one.subscribe(self.topic, idle=Backoff(first=SOON, most=SOON))
        self.assertIsNone(subscription.next(0.01))
        one.publish(self.topic, b"x")
        begun = time.monotonic()
        self.assertEqual(payloads(subscription, 1), [b"x"])
        self.assertLess(time.monotonic() - begun, SOON / 2)

    def test_many(self) -> None:
        """Far more than is fetched ahead comes, each once, and all is acknowledged in the end."""
        one = self.direct()
        subscription = one.subscribe(self.topic, prefetch=7)
        one.publish_many(self.topic, [b"%d" % n for n in range(1000)])
        self.assertEqual(payloads(subscription, 1000), [b"%d" % n for n in range(1000)])
        self.assertIsNone(subscription.next(0))
        one.flush()
        time.sleep(LATER)  # as long as the broker waits for an ACK
        self.assertIsNone(subscription.next(0))

    def test_nextMany(self) -> None:
        """Several are taken and acknowledged together."""
        one = self.direct()
        subscription = one.subscribe(self.topic)
        one.publish_many(self.topic, [b"%d" % n for n in range(100)])
        got: list[bytes] = []
        while len(got) < 100:
            several = subscription.next_many(30, SOON)
            self.assertTrue(1 <= len(several) <= 30)
            got += [each.payload for each in several]
        self.assertEqual(got, [b"%d" % n for n in range(100)])
        self.assertEqual(subscription.next_many(30, 0), [])

    def test_twoSubscriptions(self) -> None:
        """Two subscriptions of one client to one topic have a copy each, and are polled side by side."""
        one = self.direct()
        both = [one.subscribe(self.topic, prefetch=3) for _ in range(2)]
        one.publish_many(self.topic, [b"a", b"b", b"c", b"d"])
        for _ in range(2):
            for each in both:
                self.assertEqual(len(payloads(each, 2)), 2)
        self.assertNotEqual(both[0].id, both[1].id)
        self.assertEqual([each.next(0) for each in both], [None, None])

    def test_brokenOff(self) -> None:
        """Who leaves the loop early has not acknowledged the last one: it comes again, and nothing else does."""
        one = self.direct()
        subscription = one.subscribe(self.topic, prefetch=1)
        one.publish_many(self.topic, [b"a", b"b"])
        for delivery in subscription:
            if delivery.payload == b"b":
                break
        one.close()
        again = self.direct().resume(subscription.id)
        self.assertEqual([payloads(again, 1), again.next(0)], [[b"b"], None])

    def test_acknowledged(self) -> None:
        """Who acknowledges before leaving is done."""
        one = self.direct()
        subscription = one.subscribe(self.topic)
        one.publish(self.topic, b"a")
        delivery = subscription.next(SOON)
        one.ack(delivery)
        one.ack(delivery)
        one.close()
        self.assertIsNone(self.direct().resume(subscription.id).next(0))

    def test_left(self) -> None:
        """What was left comes again after a while."""
        one = self.direct()
        subscription = one.subscribe(self.topic)
        one.publish(self.topic, b"a")
        subscription.leave(subscription.next(SOON))
        self.assertIsNone(subscription.next(0))
        self.assertEqual(payloads(subscription, 1), [b"a"])

    def test_slow(self) -> None:
        """What comes again while the body is at work on it is not given twice."""
        one = self.direct()
        subscription = one.subscribe(self.topic, prefetch=2)
        one.publish_many(self.topic, [b"a", b"b"])
        got = payloads(subscription, 1)
        time.sleep(LATER)  # longer than the broker waits for an ACK
        one.publish(self.topic, b"c")
        got += payloads(subscription, 2)
        self.assertEqual((got, subscription.next(0)), ([b"a", b"b", b"c"], None))

    def test_qos0(self) -> None:
        """QoS 0: nothing to acknowledge."""
        one = self.direct()
        subscription = one.subscribe(self.topic, qos=0)
        one.publish(self.topic, b"a", qos=0)
        delivery = subscription.next(SOON)
        self.assertEqual((delivery.payload, delivery.qos, delivery.tag), (b"a", 0, 0))
        one.ack(delivery)
        one.flush()

    def test_refused(self) -> None:
        """The flush tells what was refused: code, reason, topic and number; then it is told."""
        one = self.direct()
        one.publish("$sys/x", b"1")
        one.publish_many(self.topic, [b"2", b"3"])
        one.publish("$sys/y", b"4")
        error = self.assertRaises(Nacked, one.flush)
        self.assertEqual((error.code, error.topic, error.number, error.count), (401, "$sys/x", 1, 2))
        self.assertEqual([(each.topic, each.number) for each in error.others], [("$sys/y", 4)])
        self.assertTrue(error.reason)
        one.flush()

    def test_refusedAck(self) -> None:
        """So does it for an ACK of what is not there."""
        one = self.direct()
        subscription = one.subscribe(self.topic)
        one.publish(self.topic, b"a")
        delivery = subscription.next(SOON)
        self.direct().ack(delivery._replace(subscription=subscription.id, tag=99))
        other = self.direct()
        other.ack(delivery._replace(tag=99))
        error = self.assertRaises(Nacked, other.flush)
        self.assertEqual((error.code, error.number, error.tag), (404, None, 99))

    def test_refusedAtTheEnd(self) -> None:
        """AsyncClosedOnExit tells it, too."""
        one = self.direct()
        one.publish("$sys/x", b"1")
        self.assertRaises(Nacked, one.close)
        self.assertIs(one.state, State.CLOSED)
        one.close()

    def test_refusedSubscription(self) -> None:
        """A subscription that is refused, and one that is not known."""
        one = self.direct()
        self.assertEqual(self.assertRaises(SubscribeFailed, one.subscribe, "").status, 400)
        self.assertEqual(self.assertRaises(SubscribeFailed, one.resume(1 << 40).next, SOON).status, 404)

    def test_wrong(self) -> None:
        """What makes no sense is refused before anything is sent."""
        one = self.direct()
        self.assertRaises(ValueError, one.publish, self.topic, b"", 2)
        self.assertRaises(ValueError, one.publish, "x" * 70_000, b"")
        self.assertRaises(ValueError, one.publish, self.topic, bytes(16 << 20))
        for payload in 5, None, ["a"]:
            self.assertRaises(TypeError, one.publish, self.topic, payload)
        self.assertRaises(SettingError, one.subscribe, self.topic, prefetch=0)
        subscription = one.subscribe(self.topic)
        self.assertRaises(ValueError, one.resume, subscription.id)
        for url in ("ws://localhost:1", "stdio://", "nonsense"):
            self.assertRaises(SettingError, self.form.connect, url)

    def test_closed(self) -> None:
        """After the end iterations end, and everything else says so."""
        one = self.direct()
        subscription = one.subscribe(self.topic)
        one.publish(self.topic, b"a")
        one.flush()
        one.close()
        self.assertEqual(list(subscription), [])
        for call in (one.flush, one.ping, lambda: one.publish(self.topic, b""), lambda: one.subscribe(self.topic)):
            self.assertRaises(ConnectionLost, call)

    def test_closedByAnother(self) -> None:
        """Somebody who waits is told when the client is closed."""
        one = self.direct()
        subscription = one.subscribe(self.topic)
        timer = threading.Timer(0.2, one.close)
        timer.start()
        self.assertIsNone(subscription.next(SOON))
        timer.join()

    def test_nobody(self) -> None:
        """Nobody there, and somebody who does not speak BlipMQ."""
        self.assertRaises(ConnectionLost, self.form.connect, "tcp://127.0.0.1:1")
        with BrokerProcess("--listen", "minimq+tcp:0:interface=127.0.0.1") as broker:
            self.assertRaises(ConnectionLost, self.form.connect, f"tcp://127.0.0.1:{broker.port()}", timeout=2.0)

    def test_key(self) -> None:
        """The key is shown, and a wrong one is refused; another key does not get at a subscription."""
        keys = str(Path(self.mktemp()).absolute())
        for name in ("one", "two"):
            setSecret(keys, name, f"{name}-has-a-key-that-is-long-enough")
        with BrokerProcess("--auth", f"apikeys:{keys}") as broker:
            url = f"tcp://127.0.0.1:{broker.port()}"
            error = self.assertRaises(JoinRefused, self.form.connect, url, key="wrong")
            self.assertEqual(error.status, 401)
            one, two = (self.connectedTo(url, key=f"{name}-has-a-key-that-is-long-enough") for name in ("one", "two"))
            subscription = one.subscribe(self.topic)
            two.publish(self.topic, b"a")
            two.flush()
            self.assertEqual(self.assertRaises(SubscribeFailed, two.resume(subscription.id).next, SOON).status, 404)
            self.assertEqual(payloads(subscription, 1), [b"a"])

    def test_threads(self) -> None:
        """Many threads may publish with one client."""
        one = self.direct()
        subscription = one.subscribe(self.topic)
        threads = [
            threading.Thread(target=one.publish_many, args=(self.topic, [b"%d" % n for n in range(k, 500, 5)]))
            for k in range(5)
        ]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        one.flush()
        self.assertEqual(sorted(payloads(subscription, 500), key=int), [b"%d" % n for n in range(500)])


class Networks(BlipCase):
    """A network that fails, and a broker that is killed."""

    def test_cut(self) -> None:
        """A subscription goes on after a cut, with what was not acknowledged."""
        one, other = self.connected(), self.direct()
        subscription = one.subscribe(self.topic)
        other.publish_many(self.topic, [b"a", b"b", b"c"])
        other.flush()
        self.assertEqual(payloads(subscription, 2), [b"a", b"b"])
        id = subscription.id
        self.cut(one)
        other.publish(self.topic, b"d")
        self.assertEqual(payloads(subscription, 2), [b"c", b"d"])
        self.assertEqual((subscription.next(0), subscription.id), (None, id))
        one.flush()

    def test_acknowledgedAway(self) -> None:
        """What the body finished while there was no connection is acknowledged by the next one."""
        one = self.connected()
        subscription = one.subscribe(self.topic)
        one.publish(self.topic, b"a")
        delivery = subscription.next(SOON)
        one.flush()
        self.network.isDown = True
        self.network.cut()
        self.until(lambda: one.state is State.AWAY)
        one.ack(delivery)
        self.network.isDown = False
        one.flush()
        time.sleep(LATER)
        self.assertIsNone(subscription.next(0))

    def test_away(self) -> None:
        """What is published while the broker is away arrives later, in order; more than fits is refused."""
        one, subscription = self.connected(buffer=20_000), self.direct().subscribe(self.topic)
        self.network.isDown = True
        self.network.cut()
        self.until(lambda: one.state is State.AWAY)
        published = 0

        def fill() -> None:
            nonlocal published
            while True:
                one.publish(self.topic, b"%d" % published)
                published += 1

        self.assertRaises(BufferFull, fill)
        self.assertGreater(published, 100)
        self.assertRaises(TimeoutError, one.flush, 0.05)
        self.assertIsNone(subscription.next(0))
        self.network.isDown = False
        one.flush()
        self.assertEqual(payloads(subscription, published), [b"%d" % n for n in range(published)])

    def test_unconfirmed(self) -> None:
        """What was sent before a cut and not flushed is told as uncertain, once."""
        one = self.connected()
        one.publish(self.topic, b"1")
        one.ping()
        self.cut(one)
        self.assertRaises(ConnectionLost, one.flush)
        one.flush()
        one.publish(self.topic, b"2")
        one.flush()
        self.cut(one)
        one.close()

    def test_manyCuts(self) -> None:
        """Cut again and again, anywhere: nothing hangs, and nothing that was confirmed by a flush is lost."""
        one, subscription = self.connected(), self.direct().subscribe(self.topic)
        confirmed: list[int] = []
        for batch in range(12):
            self.network.cutAfter = random.randint(100, 6000)
            if batch % 3 == 0:
                self.network.cut()
            numbers = range(batch * 40, batch * 40 + 40)
            while True:
                try:
                    one.publish_many(self.topic, [b"%d" % n for n in numbers])
                    one.flush(SOON)
                    break
                except ConnectionLost:
                    self.network.cutAfter = random.randint(3000, 9000)
            confirmed += numbers
        got = set()
        while (delivery := subscription.next(0.1)) is not None:
            got.add(int(delivery.payload))
        self.assertEqual(sorted(got), confirmed)

    def test_subscriberCut(self) -> None:
        """A subscriber that is cut again and again gets everything."""
        other = self.direct()
        one = self.connected()
        subscription = one.subscribe(self.topic, prefetch=10)
        other.publish_many(self.topic, [b"%d" % n for n in range(600)])
        other.flush()
        self.network.cutAfter = 4000
        self.network.cut()
        got: list[Any] = []
        while len(set(got)) < 600:
            delivery = subscription.next(SOON)
            self.assertIsNotNone(delivery)
            got.append(int(delivery.payload))
        self.assertGreater(self.network.made, 3)

    def test_splitAndDelayed(self) -> None:
        """Small pieces that come late change nothing."""
        self.network.split, self.network.delay = 40, 0.0002
        one = self.connected()
        subscription = one.subscribe(self.topic)
        one.publish_many(self.topic, [b"%d" % n for n in range(200)] + [bytes(3000)])
        one.flush()
        self.assertEqual(payloads(subscription, 201), [b"%d" % n for n in range(200)] + [bytes(3000)])

    def test_silence(self) -> None:
        """A network that swallows everything is found out, and given up for another connection."""
        one = self.connected(keep_alive=0.1, timeout=0.5)
        self.network.isSilent = True
        self.until(lambda: State.AWAY in self.states)
        self.network.isSilent = False
        self.until(lambda: one.state is State.JOINED)
        one.flush()

    def test_givenUp(self) -> None:
        """After so many attempts it is the end, for everybody who waits."""
        one = self.connected(reconnect=Backoff(first=0.01, most=0.01, attempts=3))
        subscription = one.subscribe(self.topic)
        self.network.isDown = True
        timer = threading.Timer(0.2, self.network.cut)
        timer.start()
        self.assertRaises(ConnectionLost, subscription.next)
        timer.join()
        self.until(lambda: self.states == [State.JOINED, State.AWAY, State.CLOSED])
        for call in (lambda: one.publish(self.topic, b""), one.flush, subscription.next):
            self.assertRaises(ConnectionLost, call)

    def test_restart(self) -> None:
        """A durable subscription goes on over a restart, and nothing that was confirmed is lost."""
        durable = self.durable()
        one = self.connected()
        subscription = one.subscribe(self.topic)
        id = subscription.id
        one.publish_many(self.topic, [b"a", b"b", b"c"])
        one.flush()
        self.assertEqual(payloads(subscription, 2), [b"a", b"b"])
        before = len(self.states)
        durable.restart()
        self.until(lambda: len(self.states) >= before + 2 and one.state is State.JOINED)
        one.publish(self.topic, b"d")
        one.flush()
        got = payloads(subscription, 2)
        self.assertEqual((got, subscription.id), ([b"c", b"d"], id))

    def test_killedWhilePublishing(self) -> None:
        """A broker that is killed in the middle of it loses nothing that was confirmed."""
        durable = self.durable()
        one = self.connected()
        subscription = one.subscribe(self.topic)
        confirmed: list[int] = []
        for batch in range(3):
            numbers = range(batch * 2000, batch * 2000 + 2000)
            isFirst = batch == 1
            while True:
                try:
                    one.publish_many(self.topic, [b"%d" % n for n in numbers])
                    if isFirst:
                        isFirst = False
                        durable.restart()
                    one.flush(SOON)
                    break
                except ConnectionLost:
                    continue
            confirmed += numbers
        got = set()
        while (delivery := subscription.next(LATER)) is not None:
            got.add(int(delivery.payload))
        self.assertEqual(sorted(got), confirmed)

    def test_forgotten(self) -> None:
        """A broker that knows the subscription no more is asked for another one."""
        with BrokerProcess() as first:
            self.network.target = first.address
            one = self.connected()
            subscription = one.subscribe(self.topic)
        with BrokerProcess() as second:
            self.network.target = second.address
            self.assertIsNone(subscription.next(0.5))
            one.publish(self.topic, b"new")
            self.assertEqual(payloads(subscription, 1), [b"new"])
            one.close()

    def test_mistaken(self) -> None:
        """A broker that was started anew may give the id to somebody else's subscription: that is noticed."""
        with BrokerProcess() as first:
            self.network.target = first.address
            one = self.connected()
            subscription = one.subscribe(self.topic)
            self.network.isDown = True
        with BrokerProcess() as second:
            self.network.target = second.address
            other = self.connectedTo(f"tcp://127.0.0.1:{second.port()}")
            others = other.subscribe("other")
            self.assertEqual(others.id, subscription.id)
            other.publish("other", b"not for one")
            other.flush()
            self.network.isDown = False
            self.assertIsNone(subscription.next(0.5))
            one.publish(self.topic, b"new")
            self.assertEqual(payloads(subscription, 1), [b"new"])
            one.close()


everyForm(globals(), Conversations, Networks)
del BlipCase, Conversations, Networks, QueueCase
