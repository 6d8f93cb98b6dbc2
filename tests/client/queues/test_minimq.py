"""MiniMQ clients in every form: what BlipMQ does not have. See also :mod:`tests.client.queues.test_both`."""

import random
import time
from functools import partial
from pathlib import Path
from typing import Any

from fleximq.cli.credential_files import setSecret
from fleximq.client.errors import ConnectionLost, ConsumeFailed, JoinRefused, ProduceFailed
from fleximq.client.minimq import blocking
from tests.broker_process import BrokerProcess
from tests.client.cases import SOON, inEveryForm
from tests.client.queues.cases import LATER, PLACE, MiniCase, inThreads
from tests.client.scripted import InThread


class Conversations(MiniCase):
    """What is said between a client and a broker that is there."""

    def test_messageHasAllFieldsAndIsGoneOnceAcknowledged(self) -> None:
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

    def test_lineOverTheLimitIsRefusedByItsIndex(self) -> None:
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

    def test_generatedIdsDiffer(self) -> None:
        """Ids differ."""
        one = self.direct()
        ids = one.produce_many(self.topic, ["a", "b", "c"])
        ids.append(one.produce(self.topic, "d"))
        got = [one.consume(self.topic) for _ in range(4)]
        self.assertEqual(([each.id for each in got], len(set(ids))), (ids, 4))
        self.assertEqual([each.content for each in got], ["a", "b", "c", "d"])
        one.ack(ids[0])

    def test_consumersShareAQueue(self) -> None:
        """Two consumers share the work, and nothing is done twice."""
        one = self.direct()
        consumers = [self.direct().consumer(self.topic) for _ in range(2)]
        one.produce_many(self.topic, [str(n) for n in range(100)])
        got = [[each.next(SOON).content] for each in consumers]

        def work(consumer: Any, done: list[str]) -> None:
            waits = 0
            while len(got[0]) + len(got[1]) < 100 and waits < 100:
                message = consumer.next(0.3)
                waits += message is None
                done += [] if message is None else [message.content]

        inThreads(*(partial(work, *each) for each in zip(consumers, got, strict=True)))
        self.assertEqual(sorted(got[0] + got[1], key=int), [str(n) for n in range(100)])

    def test_servedMessagesAreAcknowledged(self) -> None:
        """A service answers; the messages are done then."""
        service, one = self.direct(), self.direct()
        service.serve(self.topic, lambda message: message.content.upper())
        for word in ("rain", "", "sun"):
            self.assertEqual(one.request(self.topic, word), word.upper())
        self.assertRaises(ValueError, service.serve, self.topic, str)
        time.sleep(LATER)
        self.assertIsNone(one.consume(self.topic))

    def test_concurrentRequestsGetTheirAnswers(self) -> None:
        """Answers find those who asked."""
        service, one = self.direct(), self.direct()
        service.serve(self.topic, lambda message: message.content * 2)
        got: dict[str, str] = {}

        def ask(word: str) -> None:
            got[word] = one.request(self.topic, word)

        inThreads(*(partial(ask, f"{n}.") for n in range(20)))
        self.assertEqual(got, {f"{n}.": f"{n}.{n}." for n in range(20)})

    def test_lateAnswerDoesNotDisturbTheNextRequest(self) -> None:
        """Nobody answers in time; the next request is not disturbed by a late answer."""
        one = self.direct()
        self.assertRaises(TimeoutError, one.request, self.topic, "a", 0.2)
        self.direct().serve(self.topic, lambda message: message.content)
        self.assertEqual(one.request(self.topic, "b"), "b")

    def test_failureOfAServiceIsLoggedAndTheMessageRepeated(self) -> None:
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

    def test_refusedMessagesAreNamed(self) -> None:
        """What the broker refuses is raised, with topic and id; of many, the others are in the queue."""
        one = self.direct()
        error = self.assertRaises(ProduceFailed, one.produce, "$sys/x", "a", "i1")
        self.assertEqual((error.status, error.path, error.id), (403, "$sys/x", "i1"))
        self.assertEqual(len(self.assertRaises(ProduceFailed, one.produce_many, "$sys/x", ["a", "b", "c"]).others), 2)
        self.assertEqual(one.produce(self.topic, "b", "i2"), "i2")

    def test_refusedConsumeFails(self) -> None:
        """Who may not consume is told."""
        path = Path(self.mktemp()).absolute()
        path.write_text('[principals.anonymous]\npublish = ["open"]\n')
        with BrokerProcess("--config", str(path)) as broker:
            one = self.connectedTo(f"tcp://127.0.0.1:{broker.port()}")
            self.assertEqual(self.assertRaises(ConsumeFailed, one.consume, "secret").status, 403)
            self.assertRaises(ConsumeFailed, one.consumer("secret").next, SOON)

    def test_refusedJoinFailsAndTheAddressIsPassedOver(self) -> None:
        """Who may not join is told; an address that refuses is passed over."""
        keys = str(Path(self.mktemp()).absolute())
        setSecret(keys, "alice", "alice-has-a-key-that-is-long-enough")
        with BrokerProcess("--auth", f"apikeys:{keys}") as broker:
            urls = [f"tcp://127.0.0.1:{port}" for port in (broker.port(), PLACE.broker.port())]
            self.assertEqual(self.assertRaises(JoinRefused, self.form.connect, urls[0]).status, 401)
            self.patch(random, "sample", lambda urls, number: list(urls))
            self.assertEqual(self.connectedTo(urls).url, urls[1])

    def test_wrongArgumentsAreRefusedBeforeSending(self) -> None:
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
        self.assertGreater(one.ping(), 0)


class Networks(MiniCase):
    """A network that fails, and a broker that is killed."""

    def test_produceDuringACutFailsAtOnce(self) -> None:
        """A PRODUCE under way when the connection is cut fails at once; the next one waits for a connection."""
        one = self.connected()
        self.network.isSilent = True
        producing = InThread(partial(one.produce, self.topic, "a"))
        time.sleep(0.1)
        self.network.cut()
        self.assertRaises(ConnectionLost, producing.result)
        self.network.isSilent = False
        self.assertEqual(one.produce(self.topic, "b", "i"), "i")

    def test_callsWaitUntilTheirTimeoutWhileAway(self) -> None:
        """While the broker is away one waits, no longer than told."""
        one = self.connected()
        self.away(one)
        self.assertRaises(TimeoutError, one.produce, self.topic, "a", timeout=0.05)
        self.assertRaises(TimeoutError, one.consume, self.topic, 0.05)
        self.assertIsNone(one.consumer(self.topic).next(0.05))
        self.network.isDown = False
        one.ping()

    def test_requestWaitsForItsAnswerOverACut(self) -> None:
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


inEveryForm(globals(), Conversations, Networks)
del MiniCase
