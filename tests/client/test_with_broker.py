"""The blocking client and the real broker, over every way that leads there."""

import asyncio
import atexit
import shutil
import ssl
import tempfile
import uuid
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from twisted.trial.unittest import SynchronousTestCase

from fleximq.client import settings
from fleximq.client.blocking import Client, connect
from fleximq.client.errors import ConnectionLost, PublishFailed, RequestFailed, SubscribeFailed
from tests.broker_process import BrokerProcess
from tests.certificates import Made, makeCertificate
from tests.client.scripted import InThread
from tests.conversations.clients import FlexiClient, Stream

LARGE = 8 << 20


class Place:
    """A broker that is started when it is first asked for, and runs until the interpreter ends.

    :param arguments: returns its arguments; called then.
    """

    def __init__(self, arguments: Callable[[], Sequence[str]] = tuple) -> None:
        self._arguments = arguments

    @cached_property
    def broker(self) -> BrokerProcess:
        """The running broker."""
        broker = BrokerProcess(*self._arguments()).__enter__()
        atexit.register(broker.stop)
        return broker


class Secure(Place):
    """A broker with TLS, and its certificate in ``made``.

    :param words: what its arguments are, with ``{0.certificate}`` and ``{0.key}``.
    """

    def __init__(self, *words: str) -> None:
        super().__init__(lambda: [word.format(self.made) for word in words])

    @cached_property
    def made(self) -> Made:
        """A certificate for this machine."""
        folder = Path(tempfile.mkdtemp(prefix="fleximq-"))
        atexit.register(shutil.rmtree, folder)
        return makeCertificate(folder)


class BrokerCase(SynchronousTestCase):
    """Clients of one broker."""

    place: ClassVar[Place]

    @property
    def broker(self) -> BrokerProcess:
        """The running broker."""
        return self.place.broker

    def setUp(self) -> None:
        """Have a topic that nobody else uses."""
        self.topic = f"t{uuid.uuid4().hex[:12]}"

    def connected(self) -> Client:
        """Return a client."""
        client = connect(f"tcp://127.0.0.1:{self.broker.port()}")
        self.addCleanup(client.hang_up)
        return client


class Conversations(BrokerCase):
    """What two clients have to say to each other."""

    place = Place()

    def test_published(self) -> None:
        """What one publishes the other gets, whatever it is, in order."""
        one, two = self.connected(), self.connected()
        subscription = two.subscribe(self.topic)
        values = [None, True, 5, -1, 1.5, "text", b"bytes", [1, [2]], {"a": {"b": 1}}]
        for each in values:
            one.publish(self.topic, each)
        one.publish_many(self.topic, values)
        self.assertRaises(TypeError, one.publish_many, self.topic, "text")
        got = [subscription.next() for _ in range(2 * len(values))]
        self.assertEqual([each and each.value for each in got], 2 * values)
        self.assertEqual({each and each.publisher for each in got}, {one.id})

    def test_asyncWith(self) -> None:
        """A blocking client in ``async with`` says what to write."""

        async def use() -> None:
            async with self.connected():
                pass

        self.assertIn("write 'with connect", str(self.assertRaises(TypeError, asyncio.run, use())))

    def test_flush(self) -> None:
        """After a flush the broker has counted everything."""
        one = self.connected()
        one.publish_many(self.topic, range(100_000))
        one.flush()
        topics = one.ask("/broker/topics", {"limit": 1000})["topics"]
        self.assertEqual([each["published"] for each in topics if each["topic"] == self.topic], [100_000])

    def test_refused(self) -> None:
        """What the broker refuses is told by the flush; the client goes on."""
        one = self.connected()
        one.publish("$sys/mine", 1)
        one.publish("", 1)
        error = self.assertRaises(PublishFailed, one.flush)
        self.assertEqual([error.status, *(other.status for other in error.others)], [403, 400])
        one.flush()

    def test_notSubscribed(self) -> None:
        """A subscription that the broker refuses is none, and takes no publication's refusal for its own."""
        one = self.connected()
        one.publish("$sys/mine", 1)
        self.assertEqual(self.assertRaises(SubscribeFailed, one.subscribe, "").status, 603)
        self.assertEqual(self.assertRaises(PublishFailed, one.flush).status, 403)
        self.assertEqual(self.assertRaises(SubscribeFailed, one.subscribe, self.topic, from_="first").status, 603)

    def test_patterns(self) -> None:
        """Each publication comes once to each subscription that matches it."""
        one = self.connected()
        subscriptions = [one.subscribe(f"{self.topic}{rest}") for rest in (".a", ".*", ".#", ".*", "/a")]
        for level in (".a", "/a", ".b.c"):
            one.publish(self.topic + level, level)
        one.flush()
        got = [[each.next(0).value for _ in range(each.waiting)] for each in subscriptions]  # type: ignore[union-attr]
        self.assertEqual(got, [[".a"], [".a", "/a"], [".a", "/a", ".b.c"], [".a", "/a"], ["/a"]])

    def test_closed(self) -> None:
        """After closing nothing comes, until it is subscribed again."""
        one = self.connected()
        with one.subscribe(self.topic) as subscription:
            one.publish(self.topic, 1)
            one.flush()
        one.publish(self.topic, 2)
        again = one.subscribe(self.topic)
        one.publish(self.topic, 3)
        one.flush()
        self.assertEqual([each.value for each in subscription], [1])
        self.assertEqual([again.next().value, again.next(0)], [3, None])  # type: ignore[union-attr]

    def test_large(self) -> None:
        """Large messages go both ways at once."""
        one = self.connected()
        subscription = one.subscribe(self.topic)
        one.publish_many(self.topic, (bytes((n,)) * LARGE for n in range(6)))
        got = [subscription.next() for _ in range(6)]
        self.assertEqual([each and (each.value[0], len(each.value)) for each in got], [(n, LARGE) for n in range(6)])

    def test_tooLarge(self) -> None:
        """A message over the broker's limit ends the connection, and the error says why."""
        one = self.connected()

        def publish() -> None:
            one.publish(self.topic, bytes(17 << 20))
            one.flush()

        self.assertIn("413", str(self.assertRaises(ConnectionLost, publish)))

    def test_requests(self) -> None:
        """Nobody is there, nobody serves, or the broker itself answers."""
        one, two = self.connected(), self.connected()
        self.assertEqual(one.ask("/broker/about")["name"], "FlexiMQ")
        self.assertEqual(self.assertRaises(RequestFailed, one.request, 999_999, "/p").status, 600)
        self.assertIn("comes first", str(self.assertRaises(ValueError, one.request, "/p", "x")))
        waiting = two.subscribe(self.topic)
        serving = InThread(lambda: waiting.next())
        self.assertEqual(self.assertRaises(RequestFailed, one.request, two.id, "/p").status, 404)
        one.publish(self.topic, 1)
        serving.result()

    def test_lostNotification(self) -> None:
        """A notification to nobody is told by the flush."""
        one = self.connected()
        one.notify([one.id, 999_999], "/n", 1)
        self.assertEqual(self.assertRaises(PublishFailed, one.flush).status, 600)

    def test_block(self) -> None:
        """What was published in a block has arrived behind it."""
        subscription = self.connected().subscribe(self.topic)
        with connect(f"tcp://127.0.0.1:{self.broker.port()}") as one:
            one.subscribe(self.topic)
            one.publish_many(self.topic, range(1000))
        self.assertEqual([subscription.next(5).value for _ in range(1000)], list(range(1000)))  # type: ignore[union-attr]


class TlsTests(BrokerCase):
    """Inside TLS."""

    place = secure = Secure(
        "--listen", "tls://127.0.0.1:0", "--tls-certificate", "{0.certificate}", "--tls-key", "{0.key}"
    )

    def url(self, host: str = "127.0.0.1") -> str:
        """Return where the broker is."""
        return f"tls://{host}:{self.broker.port()}"

    def trusting(self) -> ssl.SSLContext:
        """Return what trusts the broker."""
        return self.secure.made.trusting()

    def test_ownAuthority(self) -> None:
        """A certificate of one's own is trusted where that is said; small and large messages come through."""
        with connect(self.url(), tls=self.trusting()) as one:
            subscription = one.subscribe(self.topic)
            one.publish_many(self.topic, [1, bytes(LARGE), bytes(LARGE), 2])
            got = [subscription.next() for _ in range(4)]
            self.assertEqual([each and each.value for each in got], [1, bytes(LARGE), bytes(LARGE), 2])

    def test_many(self) -> None:
        """Many small ones come through, too."""
        with connect(self.url(), tls=self.trusting()) as one:
            subscription = one.subscribe(self.topic)
            publishing = InThread(lambda: one.publish_many(self.topic, range(20_000)))
            got = [subscription.next() for _ in range(20_000)]
            publishing.result()
        self.assertEqual([each and each.value for each in got], list(range(20_000)))

    def test_unknownAuthority(self) -> None:
        """A certificate that nobody known has signed is not trusted."""
        self.assertIn("not trusted", str(self.assertRaises(ConnectionLost, connect, self.url())))

    def test_noTls(self) -> None:
        """A broker that speaks TLS only is none for a client without, and the other way round."""
        self.assertRaises(ConnectionLost, connect, f"tcp://127.0.0.1:{self.broker.port()}", timeout=5)


class IpcTests(BrokerCase):
    """Over a socket in the file system."""

    place = Place(lambda: ("--listen", "unix:broker.sock"))

    def test_conversation(self) -> None:
        """It is the same conversation."""
        with connect(f"ipc://{self.broker.folder / 'broker.sock'}") as one, one.subscribe(self.topic) as subscription:
            one.publish_many(self.topic, [1, bytes(LARGE)])
            self.assertEqual([subscription.next().value, len(subscription.next().value)], [1, LARGE])  # type: ignore[union-attr]


class KeepAliveTests(BrokerCase):
    """A broker that gives up whoever is silent for a third of a second."""

    place = Place(lambda: ("--keepalive", "0.1"))

    def test_waiting(self) -> None:
        """A client that waits in an iteration is there as long as it takes."""
        self.patch(settings, "_MIN_INTERVAL", 1)  # which is less than the broker takes for an interval
        client = connect(f"tcp://127.0.0.1:{self.broker.port()}", keep_alive=0.5)
        self.addCleanup(client.hang_up)
        subscription = client.subscribe(self.topic)
        waiting = InThread(lambda: subscription.next())
        with FlexiClient(Stream(self.broker.address), answersPings=False) as silent:
            silent.join()
            silent.untilEnd()
        self.connected().publish(self.topic, 1)
        self.assertEqual(waiting.result().value, 1)


class CrowdTests(BrokerCase):
    """One client, used by everybody at once."""

    place = Place()

    def test_all(self) -> None:
        """Publishers, iterations, questions and flushes do not get in each other's way."""
        client = self.connected()
        one, two = client.subscribe(f"{self.topic}.*"), client.subscribe(f"{self.topic}.a")
        count = 20_000

        def publish(level: str) -> None:
            client.publish_many(f"{self.topic}.{level}", range(count))
            for n in range(1000):
                client.publish(f"{self.topic}.{level}", n)
            client.flush()

        def ask() -> set[str]:
            return {client.ask("/broker/about")["name"] for _ in range(200)}

        def comeAndGo() -> None:
            for _ in range(50):
                with client.subscribe(f"{self.topic}.b"):
                    client.flush()

        every = count + 1000
        taking = [
            InThread(lambda: [one.next() for _ in range(2 * every)]),
            InThread(lambda: [two.next() for _ in range(every)]),
        ]
        others = [InThread(lambda: publish("a")), InThread(lambda: publish("b")), InThread(ask), InThread(comeAndGo)]
        for each in others:
            each.result()
        expected = [*range(count), *range(1000)]
        both, alone = (each.result() for each in taking)
        self.assertEqual([each.value for each in alone], expected)
        for level in "ab":
            self.assertEqual([each.value for each in both if each.topic.endswith(level)], expected)
        self.assertEqual(client._inner._clientState.inbox.bufferedBytes, 0)


class JournalTests(BrokerCase):
    """Subscriptions that begin in the past."""

    place = Place(lambda: ("--journal", "journal", "--durable", "#"))

    def setUp(self) -> None:
        """Publish ten values."""
        super().setUp()
        self.client = self.connected()
        self.client.publish_many(self.topic, range(10))
        self.client.flush()

    def test_first(self) -> None:
        """All that was kept comes, with offsets, then what is new, without gap or duplicate."""
        subscription = self.connected().subscribe(self.topic, from_="first")
        self.client.publish_many(self.topic, range(10, 20))
        got = [subscription.next() for _ in range(20)]
        self.assertEqual([each and each.value for each in got], list(range(20)))
        offsets = [each.offset or 0 for each in got if each]
        self.assertEqual(offsets, sorted(set(offsets)))

    def test_offset(self) -> None:
        """It can begin at any of these offsets, again and again on one connection."""
        with self.client.subscribe(self.topic, from_="first") as subscription:
            offsets = [subscription.next().offset for _ in range(10)]  # type: ignore[union-attr]
        for place in (9, 0, 5):
            with self.client.subscribe(self.topic, from_=offsets[place]) as subscription:
                got = [subscription.next().value for _ in range(10 - place)]  # type: ignore[union-attr]
                self.assertEqual(got, list(range(place, 10)))

    def test_removed(self) -> None:
        """An offset before all that is kept is refused."""
        later = f"{self.topic}.later"
        self.client.publish(later, 1)
        with self.client.subscribe(later, from_="first") as subscription:
            first = subscription.next()
        assert first is not None and first.offset is not None
        error = self.assertRaises(SubscribeFailed, self.client.subscribe, later, from_=first.offset - 1)
        self.assertEqual(
            (error.status, error.words), (404, f"the first offset that is kept is {first.offset}; 'first' begins there")
        )
