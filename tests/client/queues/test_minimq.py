"""The MiniMQ client in every form: conversations with a broker, on bad networks, and over restarts."""

import random
import threading
import time
import warnings
from pathlib import Path
from typing import Any

from fleximq.cli.credential_files import setSecret
from fleximq.client.backoff import Backoff
from fleximq.client.errors import ConnectionLost, ConsumeFailed, JoinRefused, ProduceFailed, TopicWarning
from fleximq.client.minimq import blocking
from fleximq.client.settings import State
from fleximq.errors import SettingError
from tests.broker_process import BrokerProcess
from tests.client.queues.forms import LATER, PLACE, SOON, QueueCase, everyForm


def contents(consumer: Any, count: int) -> list[str]:
    """Return what the next messages hold."""
    got = [consumer.next(SOON) for _ in range(count)]
    return [each and each.content for each in got]


class MiniCase(QueueCase):
    """Clients of MiniMQ."""

    dialect = "minimq"


class Conversations(MiniCase):
    """What is said between a client and a broker that is there."""

    def test_produced(self) -> None:
        """What is produced is consumed with all its fields, and gone when it was acknowledged."""
        one = self.direct()
        self.assertIsNone(one.consume(self.topic))
        self.assertEqual(one.produce(self.topic, "a::: b:", "my-id", "c1", "r"), "my-id")
        message = one.consume(self.topic)
        self.assertEqual(tuple(message[:5]), ("my-id", self.topic, "a::: b:", "c1", "r"))
        one.ack(message)
        one.ping()
        time.sleep(LATER)  # as long as the broker waits for an ACK
        self.assertIsNone(one.consume(self.topic))

    def test_doubtful(self) -> None:
        """A name that may not mean what was typed is used, with one warning."""
        one = self.direct()
        for call, name, more in (
            ("produce", "..b", ("x",)),
            ("produce_many", ".*", (["x"],)),
            ("consume", ".>", ()),
            ("consumer", ".#", ()),
            ("serve", ".+", (lambda message: None,)),
        ):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always", TopicWarning)
                getattr(one, call)(self.topic + name, *more)
            told = [str(each.message) for each in caught if each.category is TopicWarning]
            self.assertEqual(["empty level" in each or "an ordinary topic" in each for each in told], [True], call)

    def test_longLine(self) -> None:
        """A line over the broker's limit is refused by its index, with the ids in the queue; the next call works."""
        with BrokerProcess("--max-line", "64KiB") as broker:
            one = self.connectedTo(f"tcp://127.0.0.1:{broker.port()}")
            long = "x" * 70_000
            for _ in range(3):
                self.assertEqual(self.assertRaises(ProduceFailed, one.produce, "a", long).status, 400)
                one.produce("a", "good")
            error = self.assertRaises(ProduceFailed, one.produce_many, "b", ["0", "1", long, "3"])
            self.assertEqual((error.place, error.others, list(error.confirmed)), (2, (), [0, 1]))
            self.assertIn("longer than 65536 bytes (the value at index 2)", str(error))
            one.produce("b", "3")
            got = [one.consume("b") for _ in range(4)]
            self.assertEqual([each and each.content for each in got], ["0", "1", "3", None])
            self.assertEqual([each.id for each in got[:2]], list(error.confirmed.values()))

    def test_generatedIds(self) -> None:
        """Ids differ."""
        one = self.direct()
        self.assertRaises(TypeError, one.produce_many, self.topic, "text")
        ids = one.produce_many(self.topic, ["a", "b", "c"])
        ids.append(one.produce(self.topic, "d"))
        got = [one.consume(self.topic) for _ in range(4)]
        self.assertEqual(([each.id for each in got], len(set(ids))), (ids, 4))
        self.assertEqual([each.content for each in got], ["a", "b", "c", "d"])
        one.ack(ids[0])

    def test_consumer(self) -> None:
        """Each is acknowledged when the next is asked for; who leaves early has not acknowledged the last."""
        for prefetch in (1, 8):
            one = self.direct()
            consumer = one.consumer(self.topic, prefetch)
            one.produce_many(self.topic, [str(n) for n in range(20)])
            got = []
            for message in consumer:
                got.append(message.content)
                if len(got) == 20:
                    break
            one.close()
            again = self.direct().consumer(self.topic)
            self.assertEqual((got, contents(again, 1), again.next(0)), ([str(n) for n in range(20)], ["19"], None))

    def test_waits(self) -> None:
        """An empty queue is waited for, and what comes late is found."""
        one = self.direct()
        consumer = one.consumer(self.topic)
        self.assertIsNone(consumer.next(0.1))
        timer = threading.Timer(0.2, one.produce, (self.topic, "late"))
        timer.start()
        self.assertEqual(contents(consumer, 1), ["late"])
        timer.join()

    def test_shared(self) -> None:
        """Two consumers share the work, and nothing is done twice."""
        one = self.direct()
        consumers = [self.direct().consumer(self.topic) for _ in range(2)]
        one.produce_many(self.topic, [str(n) for n in range(100)])
        got: list[list[str]] = [[], []]

        def work(consumer: Any, done: list[str]) -> None:
            while (message := consumer.next(0.3)) is not None:
                done.append(message.content)

        threads = [threading.Thread(target=work, args=each) for each in zip(consumers, got, strict=True)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(sorted(got[0] + got[1], key=int), [str(n) for n in range(100)])
        self.assertTrue(got[0] and got[1])

    def test_left(self) -> None:
        """What was left comes again after a while; what is acknowledged early does not."""
        one = self.direct()
        consumer = one.consumer(self.topic)
        one.produce_many(self.topic, ["a", "b"])
        consumer.ack(consumer.next(SOON))
        consumer.leave(consumer.next(SOON))
        self.assertIsNone(consumer.next(0))
        self.assertEqual(contents(consumer, 1), ["b"])

    def test_request(self) -> None:
        """A service answers; the messages are done then."""
        service, one = self.direct(), self.direct()
        service.serve(self.topic, lambda message: message.content.upper())
        for word in ("rain", "", "sun"):
            self.assertEqual(one.request(self.topic, word), word.upper())
        self.assertRaises(ValueError, service.serve, self.topic, str)
        time.sleep(LATER)
        self.assertIsNone(one.consume(self.topic))

    def test_manyRequests(self) -> None:
        """Answers find those who asked."""
        service, one = self.direct(), self.direct()
        service.serve(self.topic, lambda message: message.content * 2)
        got: dict[str, str] = {}

        def ask(word: str) -> None:
            got[word] = one.request(self.topic, word)

        threads = [threading.Thread(target=ask, args=(f"{n}.",)) for n in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(got, {f"{n}.": f"{n}.{n}." for n in range(20)})

    def test_noAnswer(self) -> None:
        """Nobody answers in time; the next request is not disturbed by a late answer."""
        one = self.direct()
        self.assertRaises(TimeoutError, one.request, self.topic, "a", 0.2)
        self.direct().serve(self.topic, lambda message: message.content)
        self.assertEqual(one.request(self.topic, "b"), "b")

    def test_failing(self) -> None:
        """What a service raises is logged, and the message comes again."""
        service, one = self.direct(), self.direct()
        calls: list[str] = []

        def work(message: Any) -> str:
            calls.append(message.content)
            if len(calls) == 1:
                raise KeyError("not yet")
            return "done"

        service.serve(self.topic, work)
        with self.assertLogs("fleximq.client.minimq.loop_client", "ERROR"):
            self.assertEqual(one.request(self.topic, "a", SOON), "done")
        self.assertEqual(calls, ["a", "a"])

    def test_refused(self) -> None:
        """What the broker refuses is raised, with topic and id; of many, the others are in the queue."""
        one = self.direct()
        error = self.assertRaises(ProduceFailed, one.produce, "$sys/x", "a", "i1")
        self.assertEqual((error.status, error.path, error.id), (403, "$sys/x", "i1"))
        self.assertEqual(len(self.assertRaises(ProduceFailed, one.produce_many, "$sys/x", ["a", "b", "c"]).others), 2)
        self.assertEqual(one.produce(self.topic, "b", "i2"), "i2")

    def test_refusedConsume(self) -> None:
        """Who may not consume is told."""
        path = Path(self.mktemp()).absolute()
        path.write_text('[principals.anonymous]\npublish = ["open"]\n')
        with BrokerProcess("--config", str(path)) as broker:
            one = self.connectedTo(f"tcp://127.0.0.1:{broker.port()}")
            self.assertEqual(self.assertRaises(ConsumeFailed, one.consume, "secret").status, 403)
            self.assertRaises(ConsumeFailed, one.consumer("secret").next, SOON)

    def test_refusedJoin(self) -> None:
        """Who may not join is told; an address that refuses is passed over."""
        keys = str(Path(self.mktemp()).absolute())
        setSecret(keys, "alice", "alice-has-a-key-that-is-long-enough")
        with BrokerProcess("--auth", f"apikeys:{keys}") as broker:
            urls = [f"tcp://127.0.0.1:{port}" for port in (broker.port(), PLACE.broker.port())]
            self.assertEqual(self.assertRaises(JoinRefused, self.form.connect, urls[0]).status, 401)
            self.patch(random, "sample", lambda urls, number: list(urls))
            self.assertEqual(self.connectedTo(urls).url, urls[1])

    def test_wrong(self) -> None:
        """What MiniMQ cannot spell is refused before anything is sent."""
        one = self.direct()
        for arguments in (
            (self.topic, "a\nb"), ("", "a"), ("a:::b", "a"), ("a:", "a"), (self.topic, "a", "NO_MSG"),
            (self.topic, "a", "ERROR1"), (self.topic, "a", None, "c:::d"), (self.topic, "a", None, "", ":r"),
        ):  # fmt: skip
            self.assertRaises(ValueError, one.produce, *arguments)
        for content in b"a", 5, ["a"]:
            self.assertRaises(TypeError, one.produce, self.topic, content)
        self.assertRaises(ValueError, one.consume, "a\nb")
        self.assertRaises(SettingError, one.consumer, self.topic, 0)
        self.assertRaises(SettingError, self.form.connect, "ws://localhost:1")
        self.assertGreater(one.ping(), 0)

    def test_closed(self) -> None:
        """After the end iterations end, and everything else says so."""
        one = self.direct()
        consumer = one.consumer(self.topic)
        timer = threading.Timer(0.2, one.close)
        timer.start()
        self.assertIsNone(consumer.next(SOON))
        timer.join()
        self.assertEqual(list(consumer), [])
        for call in (one.ping, lambda: one.produce(self.topic, ""), lambda: one.consumer(self.topic)):
            self.assertRaises(ConnectionLost, call)
        one.close()

    def test_nobody(self) -> None:
        """Nobody there, and somebody who does not speak MiniMQ."""
        self.assertRaises(ConnectionLost, self.form.connect, "tcp://127.0.0.1:1")
        with BrokerProcess("--listen", "blipmq+tcp:0:interface=127.0.0.1") as broker:
            self.assertRaises(ConnectionLost, self.form.connect, f"tcp://127.0.0.1:{broker.port()}", timeout=2.0)


class Networks(MiniCase):
    """A network that fails, and a broker that is killed."""

    def test_cut(self) -> None:
        """A consumer goes on after a cut, and acknowledges over the next connection."""
        one, other = self.connected(), self.direct()
        consumer = one.consumer(self.topic)
        other.produce_many(self.topic, ["a", "b"])
        self.assertEqual(contents(consumer, 1), ["a"])
        self.cut(one)
        self.assertEqual(contents(consumer, 1), ["b"])
        one.close()
        time.sleep(LATER)
        again = other.consumer(self.topic)
        self.assertEqual([contents(again, 1), again.next(0)], [["b"], None])

    def test_inFlight(self) -> None:
        """A PRODUCE under way when the connection is cut fails at once; the next one waits for a connection."""
        one = self.connected()
        self.network.isSilent = True
        timer = threading.Timer(0.2, self.network.cut)
        timer.start()
        begun = time.monotonic()
        self.assertRaises(ConnectionLost, one.produce, self.topic, "a")
        self.assertLess(time.monotonic() - begun, 5)
        self.network.isSilent = False
        timer.join()
        self.assertEqual(one.produce(self.topic, "b", "i"), "i")

    def test_away(self) -> None:
        """While the broker is away one waits, no longer than told."""
        one = self.connected()
        self.network.isDown = True
        self.network.cut()
        self.until(lambda: one.state is State.AWAY)
        self.assertRaises(TimeoutError, one.produce, self.topic, "a", timeout=0.05)
        self.assertRaises(TimeoutError, one.consume, self.topic, 0.05)
        self.assertIsNone(one.consumer(self.topic).next(0.05))
        self.network.isDown = False
        one.ping()

    def test_requestOverCut(self) -> None:
        """A request waits over a cut for its answer."""
        one = self.connected()
        # In a thread of its own: a function that sleeps would stop the loop of a client that has one.
        service = blocking.connect(f"tcp://127.0.0.1:{PLACE.broker.port()}")
        self.addCleanup(service.hang_up)

        def work(message: Any) -> str:
            time.sleep(0.3)  # until the request is confirmed: before that a cut leaves it unknown
            self.network.cut()
            time.sleep(0.1)
            return "done"

        service.serve(self.topic, work)
        self.assertEqual(one.request(self.topic, "a", SOON), "done")

    def test_manyCuts(self) -> None:
        """Cut again and again, anywhere: nothing hangs, and nothing whose id came back is lost."""
        one = self.connected()
        confirmed: set[str] = set()
        for batch in range(12):
            self.network.cutAfter = random.randint(100, 6000)
            if batch % 3 == 0:
                self.network.cut()
            while True:
                try:
                    confirmed |= set(one.produce_many(self.topic, [str(n) for n in range(30)], SOON))
                    break
                except ConnectionLost:
                    self.network.cutAfter = random.randint(5000, 9000)
        self.assertEqual(len(confirmed), 360)
        consumer = self.direct().consumer(self.topic, 50)
        got = set()
        while (message := consumer.next(0.1)) is not None:
            got.add(message.id)
        self.assertEqual(confirmed - got, set())

    def test_consumerCut(self) -> None:
        """A consumer that is cut again and again gets everything."""
        one = self.connected()
        ids = set(self.direct().produce_many(self.topic, [str(n) for n in range(200)]))
        consumer = one.consumer(self.topic, 5)
        self.network.cutAfter = 3000
        self.network.cut()
        got: set[Any] = set()
        while got < ids:
            message = consumer.next(SOON)
            self.assertIsNotNone(message)
            got.add(message.id)
        self.assertGreater(self.network.made, 2)

    def test_splitAndDelayed(self) -> None:
        """Small pieces that come late change nothing."""
        self.network.split, self.network.delay = 40, 0.0002
        one = self.connected()
        wanted = ["ü" * n for n in range(100)]
        one.produce_many(self.topic, wanted)
        self.assertEqual(contents(one.consumer(self.topic, 20), 100), wanted)

    def test_silence(self) -> None:
        """A network that swallows everything is found out, and given up for another connection."""
        one = self.connected(keep_alive=0.1, timeout=0.5)
        self.network.isSilent = True
        self.until(lambda: State.AWAY in self.states)
        self.network.isSilent = False
        self.until(lambda: one.state is State.JOINED)
        one.ping()

    def test_givenUp(self) -> None:
        """After so many attempts it is the end, for everybody who waits."""
        one = self.connected(reconnect=Backoff(first=0.01, most=0.01, attempts=3))
        consumer = one.consumer(self.topic)
        self.network.isDown = True
        timer = threading.Timer(0.2, self.network.cut)
        timer.start()
        self.assertRaises(ConnectionLost, one.request, self.topic, "a")
        timer.join()
        self.until(lambda: self.states == [State.JOINED, State.AWAY, State.CLOSED])
        self.assertRaises(ConnectionLost, consumer.next)

    def test_restart(self) -> None:
        """What was taken by a broker with a journal is there after it was killed, and what was acknowledged is not."""
        durable = self.durable()
        one = self.connected()
        consumer = one.consumer(self.topic)
        one.produce_many(self.topic, ["a", "b", "c"])
        self.assertEqual(contents(consumer, 2), ["a", "b"])
        one.ping()
        before = len(self.states)
        durable.restart()
        self.until(lambda: len(self.states) >= before + 2 and one.state is State.JOINED)
        self.assertEqual(contents(consumer, 1), ["c"])
        one.close()


everyForm(globals(), Conversations, Networks)
del MiniCase, Conversations, Networks, QueueCase
