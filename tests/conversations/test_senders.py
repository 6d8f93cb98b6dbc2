"""``--sender principal``: subscribers learn who has published, live and from the journal, and nobody can pretend."""

from pathlib import Path
from typing import Any, ClassVar

import msgpack

from fleximq.cli.credential_files import setSecret
from fleximq.client import blocking
from fleximq.values.header_pairs import SENDER
from tests.broker_process import BrokerProcess
from tests.conversations.case import SocketCase
from tests.conversations.clients import BlipClient, FlexiClient, IdentityClient, Stream
from tests.wire.flexi_variants import MAPS, VARIANTS, Variant

_PURE = {"FLEXIMQ_PURE": "1"}


class SenderCase(SocketCase):
    """A broker with logins whose tokens are the names of their principals."""

    options: tuple[str, ...] = ("--sender", "principal")
    environment: dict[str, str] = {}

    def setUp(self) -> None:
        super().setUp()
        folder = Path(self.mktemp()).absolute()
        folder.mkdir()
        self.journal = str(folder / "journal")
        self.tokens, self.keys = str(folder / "tokens"), str(folder / "keys")
        for name in ("alice", "bob"):
            setSecret(self.tokens, name, name)
            setSecret(self.keys, name, name)
        self.others = f"{folder}/others,prefix=sso:"
        setSecret(f"{folder}/others", "eve%", "eve")
        self.start()

    def start(self, *options: str) -> None:
        """Start a broker on the folder of the test."""
        words = (
            "--auth",
            f"tokens:{self.tokens}",
            "--auth",
            f"apikeys:{self.keys}",
            "--allow-anonymous",
            "--auth",
            f"tokens:{self.others}",
        )
        stored = ("--journal", self.journal, "--durable", "stored.#", "--history", "10")
        self.broker = BrokerProcess(*words, *stored, *(options or self.options), environment=self.environment)
        self.addCleanup(self.broker.stop)
        self.broker.__enter__()

    def flexi(self, name: str | None = None, variant: Variant = MAPS) -> FlexiClient:
        """Return a FlexiMQ client that has logged in."""
        auth = None if name is None else {"auth": {"type": "token", "token": name}}
        return self.opened(FlexiClient(Stream(self.broker.address), variant)).join(auth)

    def user(self, name: str | None = None, *channels: str) -> IdentityClient:
        """Return an Identity client that has logged in."""
        headers = () if name is None else (f"Authorization: Bearer {name}",)
        client = self.opened(IdentityClient(self.broker.address, headers=headers))
        for channel in channels:
            client.subscribe(channel)
        return client

    def senders(self, client: FlexiClient) -> list[Any]:
        """Return the senders of what a client has received."""
        return [each.header.get(SENDER) for each in client.barrier()]


class LiveTests(SenderCase):
    """Publications as they are made."""

    def test_chat(self) -> None:
        """In Identity the principal is the sender, also of other dialects, and each is greeted by the name it has."""
        alice, bob = self.user("alice", "room"), self.user("bob", "room")
        self.assertEqual((alice.name, bob.name), ("alice", "bob"))
        alice.say("PUBLISH:room:hello")
        self.assertEqual((alice.hear(), bob.hear()), ("MSG:room:alice:hello",) * 2)
        flexi = self.flexi("bob")
        flexi.publish("room", "hi").barrier()
        self.assertEqual(alice.hear(), "MSG:room:bob:hi")
        nobody = self.user(None, "room")
        self.assertRegex(nobody.ask("PUBLISH:room:x"), f"MSG:room:{nobody.name}:x")
        self.assertRegex(nobody.name, "^user-[0-9a-f]{8}$")

    def test_nameCannotLookLikeTwoFieldsOfMSG(self) -> None:
        """A name cannot look like two fields of a MSG."""
        eve = self.user("eve", "room")
        self.assertEqual((eve.name, eve.ask("PUBLISH:room:a:b")), ("sso%3Aeve%25", "MSG:room:sso%3Aeve%25:a:b"))

    def test_allDialects(self) -> None:
        """FlexiMQ's deliveries name the principal in every layout, for publishers of every dialect."""
        for variant in VARIANTS:
            subscriber = self.flexi("bob", variant)
            subscriber.subscribe("room").barrier()
            for each in VARIANTS:
                publisher = self.flexi("alice", each)
                for number in range(3):
                    publisher.publish("room", number)
                publisher.publish("room", 3).barrier()
            self.user("alice", "room").say("PUBLISH:room:x").barrier()
            self.opened(BlipClient(self.broker.address)).login("bob").publish("room", b"x").barrier()
            found = subscriber.barrier()
            self.assertEqual([each.header[SENDER] for each in found], ["alice"] * (4 * len(VARIANTS) + 1) + ["bob"])
            self.assertEqual([each.value for each in found[:4]], [0, 1, 2, 3])

    def test_neighbouringMessagesShareOneEnvelopeWhateverLengthsTheyHave(self) -> None:
        """Neighbouring messages share one envelope, whatever lengths they have."""
        subscriber, publisher = self.flexi("bob"), self.flexi("alice")
        subscriber.subscribe("room").barrier()
        frames = [MAPS.frame("PUB", publisher.id, {"topic": "room"}, msgpack.packb("x" * size)) for size in range(300)]
        for _ in range(3):
            publisher.say(b"".join(frames))
        publisher.barrier()
        found = subscriber.barrier()
        self.assertEqual([each.value for each in found], ["x" * size for size in range(300)] * 3)
        self.assertEqual({each.header[SENDER] for each in found}, {"alice"})
        self.assertEqual({each.sender for each in found}, {publisher.id})

    def test_forged(self) -> None:
        """A client that names another sender is refused, in every kind of message that is passed on."""
        mallory, subscriber = self.flexi("bob"), self.flexi("alice")
        subscriber.subscribe("room").barrier()
        to = {"routing": [{"client_id": subscriber.id, "path": "/p"}]}
        kinds: list[tuple[str, dict[str, Any]]] = [
            ("PUB", {"topic": "room"}), ("PUB", {"topic": "room", **to}), ("NOTIF", to), ("BCAST", {}),
            ("REQ", {**to, "reqrep": {"type": "request", "id": "1"}}),
        ]  # fmt: skip
        for client in (mallory, self.flexi(None)):
            for kind, header in kinds:
                for name in ("alice", "", 5, None):
                    (refused,) = client.answer(kind, {**header, SENDER: name}, b"\xc0")
                    self.assertEqual((refused.kind, refused.status), ("REP", 400), (kind, name))
                    self.assertIn(SENDER, str(refused.value))
        self.assertEqual(subscriber.barrier(), [])
        self.assertEqual(mallory.answer("PUB", {"topic": "room", SENDER: "bob"}, b"\xc0"), [])
        self.assertEqual(self.senders(subscriber), ["bob"])

    def test_bytes(self) -> None:
        """The key is refused as bytes too, since some libraries do not tell them from a text."""
        for client in (self.flexi("bob"), self.flexi(None)):
            for more in ({}, {SENDER: "bob"}):
                (refused,) = client.answer("PUB", {"topic": "room", SENDER.encode(): "alice", **more}, b"\xc0")
                self.assertEqual((refused.kind, refused.status), ("REP", 400))

    def test_whoHasNotLoggedInHasNoSender(self) -> None:
        """Who has not logged in has no sender."""
        subscriber = self.flexi("bob")
        subscriber.subscribe("room").barrier()
        self.flexi(None).publish("room", 1).barrier()
        self.assertEqual(self.senders(subscriber), [None])

    def test_headersThatAreNoneAreRefusedAsAlwaysAndOneWithoutRoomForName(self) -> None:
        """Headers that are none are refused as always, and one without room for the name."""
        publisher, subscriber = self.flexi("alice"), self.flexi("bob")
        subscriber.subscribe("room").barrier()
        good = msgpack.packb({"topic": "room"})
        for header in (good + b"\xc0", good[:-1], b"\x82" + good[1:] * 2, b"\xc1", b"\xa1x", b"", b"\x81\x01\x02"):
            (refused,) = publisher.answer("PUB", header, b"\xc0")
            self.assertEqual(refused.status, 400, header)
        large = msgpack.packb({"topic": "room", "x": "y" * (65_536 - 20)})
        (refused,) = publisher.answer("PUB", large, b"\xc0")
        self.assertEqual((refused.status, refused.value), (400, "the header has no room for the name of the sender"))
        self.assertEqual(subscriber.barrier(), [])

    def test_clientOfPythonHasItAsAttribute(self) -> None:
        """The client of Python has it as an attribute."""
        url = f"tcp://127.0.0.1:{self.broker.port()}"
        with blocking.connect(url, credentials={"type": "token", "token": "alice"}) as client:
            with client.subscribe("room") as messages:
                client.publish("room", 1)
                delivery = messages.next(30)
                assert delivery is not None
                self.assertEqual((delivery.sender, delivery.value), ("alice", 1))


class PureLiveTests(LiveTests):
    """The same without the compiled core."""

    environment = _PURE


class StoredTests(SenderCase):
    """Publications from the journal."""

    def publish(self) -> None:
        """Publish to a durable topic by each dialect, and by somebody without a login."""
        publisher = self.flexi("alice")
        for number in range(3):
            publisher.publish("stored.room", number, key=f"k{number % 2}")
        publisher.publish("stored.room", 3, message_id="m").barrier()
        self.flexi(None).publish("stored.room", 4).barrier()
        self.user("bob", "stored.room").say("PUBLISH:stored.room:5").barrier()
        self.opened(BlipClient(self.broker.address)).login("alice").publish("stored.room", b"6").barrier()

    SENDERS: ClassVar[list[Any]] = [*["alice"] * 4, None, "bob", "alice"]

    def test_deliveriesWithOffsetsHaveItAsSoonAsTheyAreMade(self) -> None:
        """Deliveries with offsets have it as soon as they are made."""
        subscriber = self.flexi("bob")
        subscriber.tell("SUB", {"topic": "stored.#", "from": "first"}).barrier()
        self.publish()
        found = subscriber.barrier()
        self.assertEqual([each.header.get(SENDER) for each in found], self.SENDERS)
        self.assertEqual([each.header["offset"] for each in found], list(range(1, 8)))

    def test_replaysNameSameSendersAfterRestartTooInFlexiMQAndInIdentity(self) -> None:
        """Replays name the same senders, after a restart too, in FlexiMQ and in Identity."""
        self.publish()
        self.broker.stop()
        for options in (self.options, ("--sender", "client")):
            self.start(*options)
            subscriber = self.flexi("bob")
            subscriber.tell("SUB", {"topic": "stored.room", "from": "first"}).barrier()
            self.assertEqual(self.untilSeven(subscriber), self.SENDERS)
            user = self.user("alice", "stored.room")
            texts = [user.hear().split(":")[2] for _ in range(7)]
            self.assertEqual([texts[at] for at in (0, 1, 2, 3, 5, 6)], ["alice"] * 4 + ["bob", "alice"])
            self.assertRegex(texts[4], "^fleximq-[0-9]+$")
            self.broker.stop()

    def untilSeven(self, subscriber: FlexiClient) -> list[Any]:
        """Return the senders of seven deliveries."""
        return [subscriber.hear().header.get(SENDER) for _ in range(7)]

    def test_headersOfRowThatPipelinePublishesCannotNameAnotherSender(self) -> None:
        """The headers of a row that the pipeline publishes cannot name another sender."""
        client = self.flexi("bob")
        record = {"topic": "stored.room", "value": 1, "headers": {SENDER: "alice", "key": "k"}}
        batch = {"query": "q", "batch": 1}
        token = client.ask("/sink/stage", {**batch, "part": "0", "records": [record]})["token"]
        client.ask("/sink/commit", {**batch, "tokens": [token]})
        client.tell("SUB", {"topic": "stored.room", "from": "first"})
        header = client.hear().header
        self.assertEqual((header[SENDER], header["key"]), ("bob", "k"))


class PureStoredTests(StoredTests):
    """The same without the compiled core."""

    environment = _PURE


class OffTests(SenderCase):
    """Without the option."""

    options = ("--sender", "client")

    def test_withoutOptionNobodyCanPrepareSender(self) -> None:
        """Everything is as it was, but no client can prepare a sender for later."""
        user = self.user("alice", "stored.room")
        self.assertRegex(user.ask("PUBLISH:stored.room:x"), "^MSG:stored.room:user-[0-9a-f]{8}:x$")
        publisher, subscriber = self.flexi("alice"), self.flexi("bob")
        subscriber.subscribe("stored.room").barrier()
        (refused,) = publisher.answer("PUB", {"topic": "stored.room", SENDER: "bob"}, b"\xc0")
        self.assertEqual(refused.status, 400)
        publisher.publish("stored.room", 1, other="key").barrier()
        (found,) = subscriber.barrier()
        self.assertEqual(found.header, {"topic": "stored.room", "other": "key"})
