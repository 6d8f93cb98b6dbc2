"""One suite of conversations for every form of the FlexiMQ client, over every scheme, with the real broker."""

import json
import socket
import ssl
import sys
import tempfile
import textwrap
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from fleximq.client import blocking, settings
from fleximq.client.errors import ConnectionLost, PublishFailed, RequestFailed, SubscribeFailed, TopicWarning, Untrusted
from fleximq.client.settings import Codec, State, Tls
from fleximq.errors import SettingError
from tests.broker_process import BrokerProcess
from tests.certificates import makeCertificate
from tests.client.cases import SOON, FormCase, Place, Secure, inEveryForm
from tests.client.scripted import InThread, Peer
from tests.conversations.clients import FlexiClient, Stream

LARGE = 4 << 20
_TLS = ("--listen", "tls://127.0.0.1:0", "--tls-certificate", "{0.certificate}", "--tls-key", "{0.key}")
_elsewhere = Secure(*_TLS, name="elsewhere")
_secure = Secure(*_TLS, "--listen", "wss://127.0.0.1:0/ws")
_durable = Place(lambda: ("--journal", "journal", "--durable", "#"))
_impatient = Place(lambda: ("--keepalive", "0.1"))
_plain = Place(lambda: ("--listen", "tcp:0:interface=127.0.0.1", "--listen", "unix:broker.sock"))


def _tls() -> dict[str, Any]:
    return {"tls": Tls(authority=str(_secure.made.certificate))}


#: By scheme: the URL, and what else to wish.
ROUTES: dict[str, tuple[Callable[[], str], Callable[[], dict[str, Any]]]] = {
    "tcp": (lambda: f"tcp://127.0.0.1:{_plain.broker.port()}", dict),
    "ipc": (lambda: f"ipc://{_plain.broker.folder / 'broker.sock'}", dict),
    "ws": (lambda: f"ws://127.0.0.1:{_plain.broker.port()}/ws", dict),
    "tls": (lambda: f"tls://localhost:{_secure.broker.port()}", _tls),
    "wss": (lambda: f"wss://127.0.0.1:{_secure.broker.port(1)}/ws", _tls),
}


class Conversations(FormCase):
    """Two clients of one broker."""

    scheme: ClassVar[str]

    def connected(self, **wishes: Any) -> Any:
        """Return a client."""
        url, more = ROUTES[self.scheme]
        return self.connectedTo(url(), **more(), **wishes)

    def test_valuesArriveInOrder(self) -> None:
        """What one publishes the other gets, whatever it is, in order."""
        one, two = self.connected(), self.connected()
        subscription = two.subscribe(self.topic)
        values = [None, True, 5, -1, 1.5, "text", b"bytes", [1, [2]], {"a": {"b": 1}}]
        for each in values:
            one.publish(self.topic, each)
        one.publish_many(self.topic, values)
        one.flush()
        self.assertEqual(self.values(subscription, 2 * len(values)), 2 * values)
        self.assertEqual([subscription.next(0), subscription.next(0.01)], [None, None])

    def test_flushedPublicationsAreCounted(self) -> None:
        """The broker has processed all of them."""
        one = self.connected()
        one.publish_many(self.topic, range(20_000))
        one.flush()
        topics = one.ask("/broker/topics", {"limit": 1000})["topics"]
        self.assertEqual([each["published"] for each in topics if each["topic"] == self.topic], [20_000])

    def test_eachMatchingSubscriptionGetsEachPublicationOnce(self) -> None:
        """The broker sends a message once, even if several subscriptions of a client match."""
        one = self.connected()
        subscriptions = [one.subscribe(f"{self.topic}{rest}") for rest in (".a", ".*", ".#", ".*", "/a")]
        for level in (".a", "/a", ".b.c"):
            one.publish(self.topic + level, level)
        one.flush()
        got = [[each.next(0).value for _ in range(each.waiting)] for each in subscriptions]
        self.assertEqual(got, [[".a"], [".a", "/a"], [".a", "/a", ".b.c"], [".a", "/a"], ["/a"]])

    def test_messageOverTheLimitEndsTheConnectionWithItsReason(self) -> None:
        """The broker's answer is in the error."""
        one = self.connected()

        def publish() -> None:
            one.publish(self.topic, bytes(17 << 20))
            one.flush()

        self.assertIn("413", str(self.assertRaises(ConnectionLost, publish)))

    def test_headerFieldsAndPublisherArrive(self) -> None:
        """Further keys of the header come through, and the publisher is named."""
        one, two = self.connected(), self.connected()
        subscription = two.subscribe(f"{self.topic}.*")
        one.publish(f"{self.topic}.a", 1, key="k", message_id="m")
        delivery = subscription.next(SOON)
        self.assertEqual((delivery.header["key"], delivery.header["message_id"]), ("k", "m"))
        self.assertEqual((delivery.topic, delivery.publisher), (f"{self.topic}.a", one.id))

    def test_largeMessagesArriveBothWays(self) -> None:
        """Large ones and many come through, both ways."""
        one = self.connected()
        subscription = one.subscribe(self.topic)
        one.publish_many(self.topic, [bytes(LARGE), b"x" * LARGE, *range(20_000)])
        one.flush()
        got = self.values(subscription, 2)
        self.assertEqual([(len(each), each[:1]) for each in got], [(LARGE, b"\0"), (LARGE, b"x")])
        self.assertEqual(self.values(subscription, 200), list(range(200)))
        self.until(lambda: subscription.waiting == 20_000 - 200)

    def test_flushRaisesRefusalsOnceAndTheClientGoesOn(self) -> None:
        """What the broker refuses is told by the flush, once; the client goes on."""
        one = self.connected()
        one.publish("$sys/mine", 1)
        one.publish("", 1)
        error = self.assertRaises(PublishFailed, one.flush)
        self.assertEqual([error.status, *(other.status for other in error.others)], [403, 400])
        one.flush()
        one.publish("$sys/mine", 1)
        self.assertEqual(self.assertRaises(SubscribeFailed, one.subscribe, "").status, 603)
        self.assertIn("did you mean 'a.#'?", str(self.assertRaises(ValueError, one.subscribe, "a.>")))
        self.assertEqual(self.assertRaises(SubscribeFailed, one.subscribe, self.topic, resume=True).status, 503)
        self.assertGreater(one.ping(), 0)
        self.assertEqual(self.assertRaises(PublishFailed, one.flush).status, 403)

    def test_doubtfulTopicIsUsedWithAWarning(self) -> None:
        """A name that may not mean what was typed is used, with a warning."""
        one = self.connected()
        for call, name, more, words in (
            ("subscribe", ".#.b", (), "# is a wildcard at the end only"),
            ("subscribe", "*", (), "wildcards as levels of their own only"),
            ("publish", ".*", (b"x",), "wildcards are for FlexiMQ subscriptions only"),
            ("publish_many", ".#", ([b"x"],), "wildcards are for FlexiMQ subscriptions only"),
            ("publish", ".>", (b"x",), "wildcards are for FlexiMQ subscriptions only"),
            ("publish", "..b", (b"x",), "has an empty level"),
            ("publish_many", ".a#", ([b"x"],), None),
        ):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always", TopicWarning)
                getattr(one, call)(self.topic + name, *more)
            told = [str(each.message) for each in caught if each.category is TopicWarning]
            self.assertEqual([words in each for each in told if words], [True] if words else told)
        one.flush()

    def test_requestsToANameAreSharedAndNotificationsReachAll(self) -> None:
        """Requests to a name are shared by the clients that have it; a notification reaches all of them."""
        servers = [self.connected(name="svc") for _ in range(2)]
        one = self.connected()
        for server in servers:
            server.serve("/who", lambda request, id=server.id: id)
        self.assertEqual({one.request("svc", "/who") for _ in range(4)}, {server.id for server in servers})
        self.assertEqual(self.assertRaises(RequestFailed, one.request, "none", "/who").status, 600)
        heard = [server.notifications() for server in servers]
        one.notify("svc", "/news", 5)
        self.assertEqual([each.next(10).value for each in heard], [5, 5])

    def test_functionsAnswerAndTheirErrorsAreStatuses(self) -> None:
        """A path is served by a function, whose errors are answers with a status."""
        one, two = self.connected(), self.connected()

        def refuse(request: Any) -> Any:
            raise RequestFailed(409, "it is taken")

        one.serve("/square", lambda request: request.value**2)
        one.serve("/refuse", refuse)
        one.serve("/break", lambda request: 1 // 0)
        self.assertEqual([two.request(one.id, "/square", n) for n in range(20)], [n * n for n in range(20)])
        for path, status, words in (
            ("/refuse", 409, "it is taken"),
            ("/break", 500, "the service failed"),
            ("/none", 404, "nothing is served at '/none'"),
        ):
            error = self.assertRaises(RequestFailed, two.request, one.id, path)
            self.assertEqual((error.status, error.words, error.path), (status, words, path))
        self.assertEqual(self.assertRaises(RequestFailed, two.request, 999_999, "/p").status, 600)
        self.assertEqual(two.ask("/broker/about")["name"], "FlexiMQ")
        self.assertRaises(ValueError, one.serve, "/square", refuse)

    def test_lateAnswerIsATimeoutAndTheClientGoesOn(self) -> None:
        """A request that nobody answers in time says so, and the client goes on."""
        url, more = ROUTES[self.scheme]
        # In a thread of its own: a function that sleeps would stop the loop of a client that has one.
        slow, two = blocking.connect(url(), **more()), self.connected()
        self.addCleanup(slow.hang_up)
        slow.serve("/slow", lambda request: time.sleep(0.3))
        self.assertRaises(TimeoutError, two.request, slow.id, "/slow", timeout=0.05)
        self.assertIsNone(two.request(slow.id, "/slow"))

    def test_notificationsReachOneClientAndBroadcastsAllOthers(self) -> None:
        """Notifications come to one client, broadcasts to all others."""
        one, two = self.connected(), self.connected()
        heard = one.notifications()
        two.notify(one.id, "/n", 5)
        two.broadcast(self.topic)
        self.assertEqual((heard.next(SOON).path, heard.next(SOON).value), ("/n", self.topic))
        two.notify([one.id, 999_999], "/n")
        self.assertEqual(self.assertRaises(PublishFailed, two.flush).status, 600)
        self.assertIsNone(heard.next(SOON).value)

    def test_clientWithUnreadDeliveriesStopsReading(self) -> None:
        """A client whose deliveries nobody takes reads no more; they come when they are taken."""
        one, two = self.connected(), self.connected(prefetch=200_000)
        subscription = two.subscribe(self.topic)
        one.publish_many(self.topic, ([n, bytes(1000)] for n in range(20_000)))
        one.flush()
        self.assertLess(subscription.waiting, 5_000)
        self.assertEqual([each[0] for each in self.values(subscription, 5_000)], list(range(5_000)))
        self.assertLess(subscription.waiting, 5_000)

    def test_closedSubscriptionGetsNothingMore(self) -> None:
        """Behind its end a subscription gets nothing more; a second one of its name goes on."""
        one = self.connected()
        first, second = one.subscribe(self.topic), one.subscribe(self.topic)
        one.publish(self.topic, 1)
        one.flush()
        first.close()
        one.publish(self.topic, 2)
        one.flush()
        self.assertEqual((self.values(first, 1), first.next(SOON)), ([1], None))
        self.assertEqual(self.values(second, 2), [1, 2])
        second.close()
        one.publish(self.topic, 3)
        one.flush()
        self.assertEqual(second.waiting, 0)
        again = one.subscribe(self.topic)
        one.publish(self.topic, 4)
        self.assertEqual(self.values(again, 1), [4])

    def test_closeFlushesAndEndsEverything(self) -> None:
        """AsyncClosedOnExit flushes, ends subscriptions, and is the end."""
        states = []
        one, two = self.connected(), self.connected(on_state=lambda state, why: states.append((state, why)))
        subscription, ended = one.subscribe(self.topic), two.subscribe(self.topic)
        two.publish_many(self.topic, range(1000))
        two.close()
        self.assertEqual(self.values(subscription, 1000), list(range(1000)))
        two.close()
        for call in (two.flush, lambda: two.publish(self.topic, 1), lambda: two.subscribe("a"), two.ping):
            self.assertRaises(ConnectionLost, call)
        while ended.waiting:
            ended.next(SOON)
        self.assertIsNone(ended.next(SOON))
        self.assertEqual(states, [(State.JOINED, None), (State.CLOSED, None)])

    def test_closeRaisesRefusals(self) -> None:
        """What was refused is told when the client is closed."""
        one = self.connected()
        one.publish("$sys/mine", 1)
        self.assertRaises(PublishFailed, one.close)
        self.assertRaises(ConnectionLost, one.flush)

    def test_codecEncodesAllButTheBrokersValues(self) -> None:
        """Another codec writes and reads all values, but those of the broker itself."""
        codec = Codec(lambda value: json.dumps(value).encode(), lambda payload: json.loads(bytes(payload)))
        one, two = self.connected(codec=codec), self.connected(codec=codec)
        subscription = two.subscribe(self.topic)
        one.publish(self.topic, {"a": 1})
        delivery = subscription.next(SOON)
        self.assertEqual((delivery.payload, delivery.value), (b'{"a": 1}', {"a": 1}))
        two.serve("/p", lambda request: [request.value])
        self.assertEqual(one.request(two.id, "/p", 7), [7])
        self.assertEqual(one.ask("/broker/about")["name"], "FlexiMQ")

    def test_wrongArgumentsAreRefusedAndNothingIsSent(self) -> None:
        """A value that MessagePack does not have is refused, and nothing is sent."""
        one = self.connected()
        self.assertRaises(TypeError, one.publish, self.topic, object())
        self.assertRaises(OverflowError, one.publish, self.topic, 1 << 70)
        self.assertRaises(TypeError, one.publish_many, self.topic, "text")
        self.assertIn("comes first", str(self.assertRaises(ValueError, one.request, "/p", "x")))
        self.assertRaises(TypeError, one.publish, self.topic, 1, topic="other")
        self.assertRaises(TypeError, one.subscribe, self.topic, print)
        self.assertRaises(TypeError, one.serve, "/five", 5)
        one.flush()


class Journals(FormCase):
    """Subscriptions that begin in the past."""

    def setUp(self) -> None:
        """Publish ten values."""
        super().setUp()
        self.client = self.connectedTo(f"tcp://127.0.0.1:{_durable.broker.port()}")
        self.client.publish_many(self.topic, range(10))
        self.client.flush()

    def test_firstGivesAllStoredThenNewMessages(self) -> None:
        """With offsets, without gap or duplicate."""
        subscription = self.client.subscribe(self.topic, from_="first")
        self.client.publish_many(self.topic, range(10, 20))
        got = [subscription.next(SOON) for _ in range(20)]
        self.assertEqual([each.value for each in got], list(range(20)))
        offsets = [each.offset for each in got]
        self.assertEqual(offsets, sorted(set(offsets)))

    def test_offsetIsTheFirstMessage(self) -> None:
        """Again and again on one connection."""
        subscription = self.client.subscribe(self.topic, from_="first")
        offsets = [subscription.next(SOON).offset for _ in range(10)]
        subscription.close()
        for place in (9, 0, 5):
            subscription = self.client.subscribe(self.topic, from_=offsets[place])
            self.assertEqual(self.values(subscription, 10 - place), list(range(place, 10)))
            subscription.close()

    def test_anOffsetBeforeTheFirstMessageOfATopicIsNoError(self) -> None:
        """Nothing was removed from there on, so nothing is missed."""
        later = f"{self.topic}.later"
        self.client.publish(later, 1)
        subscription = self.client.subscribe(later, from_="first")
        first = subscription.next(SOON).offset
        subscription.close()
        subscription = self.client.subscribe(later, from_=first - 1)
        self.assertEqual(self.values(subscription, 1), [1])


class KeepAlive(FormCase):
    """A broker that ends a connection after a third of a second of silence."""

    def test_waitingClientStays(self) -> None:
        """A silent one is disconnected meanwhile."""
        self.patch(settings, "_MIN_INTERVAL", 1)  # which is less than the broker takes for an interval
        url = f"tcp://127.0.0.1:{_impatient.broker.port()}"
        subscription = self.connectedTo(url, keep_alive=0.5).subscribe(self.topic)
        waiting = InThread(lambda: subscription.next(SOON))
        with FlexiClient(Stream(_impatient.broker.address), answersPings=False) as silent:
            silent.join()
            silent.untilEnd()
        self.connectedTo(url).publish(self.topic, 1)
        self.assertEqual(waiting.result().value, 1)


class Certificates(FormCase):
    """TLS, and connections that fail."""

    def test_unknownAuthorityAndOtherHostAreUntrusted(self) -> None:
        """A certificate that nobody known has signed is not trusted, and one for another host is not either."""
        self.assertRaises(Untrusted, self.form.connect, f"tls://127.0.0.1:{_secure.broker.port()}")
        other = Tls(authority=str(_elsewhere.made.certificate))
        url = f"tls://localhost:{_elsewhere.broker.port()}"
        self.assertRaises(Untrusted, self.form.connect, url, tls=other)
        trusted = f"tls://localhost:{_secure.broker.port()}"
        one = self.connectedTo([url, trusted], tls=Tls(authority=str(_secure.made.certificate)))
        self.assertEqual(one.url, trusted)

    def test_certificateOfTheClientIsShown(self) -> None:
        """A certificate of the client is shown, with its key in a file of its own or in the same one."""
        made = makeCertificate(Path(tempfile.mkdtemp(prefix="fleximq-")), "somebody")
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(made.certificate))
        context.load_cert_chain(_secure.made.both)
        context.verify_mode = ssl.CERT_REQUIRED
        for shown in (
            {"certificate": str(made.certificate), "key": str(made.key)},
            {"certificate": str(made.both)},
        ):
            with socket.create_server(("127.0.0.1", 0)) as listener:
                serving = InThread(lambda: self.letIn(listener, context))
                tls = Tls(authority=str(_secure.made.certificate), **shown)
                url = f"tls://localhost:{listener.getsockname()[1]}"
                client = self.connectedTo(url, tls=tls, keep_alive=None, reconnect=None)
                self.assertEqual(client.id, 1000)
                client.hang_up()
                self.assertEqual(serving.result(), "somebody")

    def letIn(self, listener: socket.socket, context: ssl.SSLContext) -> str:
        """Let one client in, and return whose certificate it showed."""
        plain, _ = listener.accept()
        with context.wrap_socket(plain, server_side=True) as stream:
            Peer(stream).letIn()
            shown: Any = stream.getpeercert()
            return str(shown["subject"][0][0][1])

    def test_wrongFilesAndUrlsAreWrongSettings(self) -> None:
        """Missing files, files without certificates, TLS where there is none and pipes without a broker are refused."""
        for url, wishes in (
            ("tls://localhost:1", {"tls": Tls(authority="/none")}),
            ("tls://localhost:1", {"tls": Tls(authority=__file__)}),
            ("tcp://localhost:1", {"tls": Tls()}),
            ("stdio://", {}),
            ("tcp://localhost", {}),
        ):
            error = self.assertRaises(SettingError, self.form.connect, url, **wishes)
            self.assertEqual(wishes == {"tls": Tls(authority=__file__)}, f"{__file__} cannot be used" in str(error))

    def test_noServerOrAnotherProtocolIsALostConnection(self) -> None:
        """Where nobody listens there is no connection, and where no FlexiMQ is spoken there is none either."""
        self.assertRaises(ConnectionLost, self.form.connect, "ipc:///tmp/fleximq-none.sock")
        self.assertRaises(ConnectionLost, self.form.connect, f"tcp://127.0.0.1:{_secure.broker.port()}", timeout=5)
        self.assertRaises(ConnectionLost, self.form.connect, f"ws://127.0.0.1:{_secure.broker.port()}/", timeout=5)


#: A program that the broker starts, in each form: it answers requests, and its prints go elsewhere.
_USE = """
    import os
    async def use(client):
        print("printed")
        own = int(os.environ["FLEXIMQ_CLIENT_ID"])
        client.serve("/double", lambda request: [2 * request.value, client.id, own])
        async for each in await client.subscribe("TOPIC"):
            await client.publish("TOPIC.back", client.id)
            await client.flush()
"""
PROGRAMS = {
    "blocking": _USE.replace("async ", "").replace("await ", "")
    + """
    from fleximq.client.blocking import connect
    with connect("stdio://") as client:
        use(client)
    """,
    "asyncio": _USE
    + """
    import asyncio
    from fleximq.client.asyncio import connect
    async def main():
        async with connect("stdio://") as client:
            await use(client)
    asyncio.run(main())
    """,
    "twisted": _USE
    + """
    from twisted.internet.task import react
    from twisted.internet.defer import Deferred
    from fleximq.client.twisted import connect
    async def main(reactor):
        async with await connect(reactor, "stdio://") as client:
            await use(client)
    react(lambda reactor: Deferred.fromCoroutine(main(reactor)))
    """,
}


class StartedByBroker(FormCase):
    """A program that the broker starts."""

    def test_programStartedByTheBrokerIsAClient(self) -> None:
        """It is a client like any other, with the id that the broker gave to the program."""
        program = Path(self.mktemp()).absolute()
        program.write_text(textwrap.dedent(PROGRAMS[self.Form.name]).replace("TOPIC", self.topic))
        with BrokerProcess("--listen", "tcp:0:interface=127.0.0.1", "--spawn", f"{sys.executable} {program}") as broker:
            client = self.connectedTo(f"tcp://127.0.0.1:{broker.port()}")
            back = client.subscribe(f"{self.topic}.back")
            child: list[int] = []

            def answers() -> bool:
                client.publish(self.topic, 1)
                delivery = back.next(0.2)
                if delivery is not None:
                    child.append(delivery.value)
                return bool(child)

            self.until(answers)
            self.assertEqual(client.request(child[0], "/double", 21), [42, child[0], child[0]])


inEveryForm(globals(), Journals, KeepAlive, Certificates, StartedByBroker)
inEveryForm(globals(), Conversations, scheme=ROUTES)
