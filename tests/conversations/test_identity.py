"""Identity as a browser sees it (Identity document and docs/reference/dialects.rst)."""

from tests.conversations.case import SocketCase, onOwnListeners
from tests.conversations.clients import Ended, IdentityClient
from tests.web_socket_client import BINARY, Refused


class GreetingTests(SocketCase):
    """What a client is told first."""

    def test_greeting(self) -> None:
        """IDENTITY with a name, then CHANNELS."""
        first, second = self.identity().greeting
        self.assertRegex(first, "^IDENTITY:user-[0-9a-f]{8}$")
        self.assertTrue(second.startswith("CHANNELS:"), second)

    def test_names(self) -> None:
        """Names differ."""
        self.assertEqual(len({self.identity().name for _ in range(5)}), 5)

    def test_channels(self) -> None:
        """Channels with subscribers of any dialect are listed, but for names that cannot be."""
        self.identity(self.topic)
        self.flexi().subscribe(f"{self.topic}.f", f"{self.topic}:x", f"{self.topic},y").barrier()
        ours = [each for each in self.identity().channels if self.topic in each]
        self.assertEqual(ours, [self.topic, f"{self.topic}.f"])

    def test_forgotten(self) -> None:
        """A channel whose last subscriber has left is not listed."""
        client = self.identity(self.topic)
        client.ask(f"UNSUBSCRIBE:{self.topic}")
        self.assertNotIn(self.topic, self.identity().channels)

    def test_anyPath(self) -> None:
        """Any path will do that is not FlexiMQ's, with or without the subprotocol, which wins over the path."""
        address = self.place.address("identity")
        for path, headers in (("/chat?x", ()), ("/ws", ("Sec-WebSocket-Protocol: identity",))):
            self.assertIn("user-", self.opened(IdentityClient(address, path, headers)).name)

    def test_origins(self) -> None:
        """Pages of this machine, and those without an origin, may come; those of foreign sites get 403."""
        address = self.place.address("identity")
        for origin in ("null", "http://localhost:3000", f"http://127.0.0.1:{address[1]}"):
            self.opened(IdentityClient(address, "/", (f"Origin: {origin}",)))
        refused = self.assertRaises(Refused, IdentityClient, address, "/", ("Origin: https://example.com",))
        self.assertIn(" 403 ", str(refused))


class ChannelTests(SocketCase):
    """SUBSCRIBE, UNSUBSCRIBE and PUBLISH."""

    def setUp(self) -> None:
        """Two subscribers."""
        super().setUp()
        self.one, self.two = self.identity(self.topic), self.identity(self.topic)

    def test_contents(self) -> None:
        """A message reaches every subscriber verbatim, its sender too."""
        for text in (
            "Hello world!",
            "k:v:1:2",
            "",
            " a b ",
            "l1\nl2\r\n",
            "你好😀",
            "Hello!||timestamp=1234567890",
            "AAE=",
            "a:::b",
        ):
            message = f"MSG:{self.topic}:{self.one.name}:{text}"
            self.assertEqual((self.one.ask(f"PUBLISH:{self.topic}:{text}"), self.two.hear()), (message, message))

    def test_onlySubAck(self) -> None:
        """SUBSCRIBE is answered by SUB-ACK and nothing else, a second time too; extra fields are ignored."""
        channel = f"{self.topic}.x"
        self.one.say(f"SUBSCRIBE:{channel}").say(f"SUBSCRIBE:{channel}:extra:fields")
        self.assertEqual((self.one.barrier(), self.two.barrier()), ([f"SUB-ACK:{channel}"] * 2, []))

    def test_oneCopy(self) -> None:
        """A second SUBSCRIBE makes no second copy."""
        self.one.ask(f"SUBSCRIBE:{self.topic}")
        self.two.ask(f"PUBLISH:{self.topic}:x")
        self.assertEqual(len(self.one.barrier()), 1)

    def test_unsubscribe(self) -> None:
        """UNSUBSCRIBE ends delivery, to its sender only, and is answered even if there was nothing to end."""
        answer = f"UNSUB-ACK:{self.topic}"
        self.assertEqual([self.two.ask(f"UNSUBSCRIBE:{self.topic}") for _ in range(2)], [answer] * 2)
        self.assertEqual(self.one.ask(f"PUBLISH:{self.topic}:x"), f"MSG:{self.topic}:{self.one.name}:x")
        self.assertEqual(self.two.barrier(), [])

    def test_unsubscribeInvalid(self) -> None:
        """UNSUB-ACK answers invalid names as well."""
        self.assertEqual(self.one.ask("UNSUBSCRIBE:has space"), "UNSUB-ACK:has space")

    def test_notSubscribed(self) -> None:
        """Who has not subscribed cannot publish, and makes no channel."""
        channel = f"{self.topic}.other"
        self.assertEqual(self.one.ask(f"PUBLISH:{channel}:x"), "ERROR:401:Not subscribed")
        self.assertNotIn(channel, self.identity().channels)

    def test_unknownWords(self) -> None:
        """Unknown words are ignored in silence."""
        for text in ("FOO:bar", "garbage", "", "PING", "subscribe:x", "COMPRESS:1", "IDENTITY:bob", "SUBSCRIBE"):
            self.one.say(text)
        self.assertEqual(self.one.barrier(), [])

    def test_invalidNames(self) -> None:
        """Invalid names get ERROR:400."""
        for name in ("", "has space", "a,b", "tab\t", "\x7f", "x" * 1025):
            self.assertEqual(self.one.ask(f"SUBSCRIBE:{name}"), "ERROR:400:Invalid channel name", name)

    def test_order(self) -> None:
        """A PUBLISH is checked for its channel, then its message, then the subscription."""
        self.assertEqual(self.one.ask("PUBLISH:a b"), "ERROR:400:Invalid channel name")
        self.assertTrue(self.one.ask("PUBLISH:never.subscribed").startswith("ERROR:400:"))
        self.assertEqual(self.one.barrier(), [])

    def test_binary(self) -> None:
        """A binary frame is read as text, and ignored if it is none."""
        self.one.webSocket.sendFrame(BINARY, b"PUBLISH:\xff:x")
        self.one.webSocket.sendFrame(BINARY, f"PUBLISH:{self.topic}:é".encode())
        self.assertEqual(self.one.hear(), f"MSG:{self.topic}:{self.one.name}:é")
        self.assertEqual(self.one.barrier(), [])

    def test_ownTopics(self) -> None:
        """Only the broker publishes to ``$sys/``: ERROR:403, also for its subscribers."""
        self.one.subscribe("$sys/nothing")
        self.assertTrue(self.one.ask("PUBLISH:$sys/nothing:x").startswith("ERROR:403:"))

    def test_tooLong(self) -> None:
        """A text over 1 MiB ends the connection with 1009."""
        self.one.say("x" * (1 << 20)).barrier()
        self.one.say("x" * ((1 << 20) + 1))
        self.assertEqual(self.assertRaises(Ended, self.one.hear).args, (1009,))


globals().update(onOwnListeners(GreetingTests, ChannelTests))
