"""The list of channels: what is in it, how long it may be, and when it is announced."""

from typing import Any

from zope.interface import implementer

from fleximq.broker.envelope import ConnectedClient
from fleximq.dialects.identity.channel_list import ChannelList
from fleximq.dialects.identity_ws import IdentityFactory
from fleximq.interfaces import ISubscriber
from fleximq.limits import KIBIBYTE, Limits
from fleximq.security.permissions import Rights
from tests.dialects.conversations import ConversationCase, makeContext
from tests.dialects.websocket_peer import TEXT, WebSocketPeer, decode


@implementer(ISubscriber)
class Silent:
    """A subscriber that takes nothing."""

    form: Any = None

    def deliver(self, rendered: Any, count: int) -> None:
        """Drop it."""


class ListTests(ConversationCase):
    """The frame."""

    def list(self, *names: str) -> str:
        """Return the list while these names are subscribed to."""
        context = makeContext(self.clock, limits=Limits(text=KIBIBYTE))
        client = context.broker.join("fleximq")
        for name in names:
            context.broker.subscribe(client, Silent(), name)
        (frame,), _ = decode(ChannelList(context).frame(client))
        self.assertEqual(frame.opcode, TEXT)
        return frame.payload.decode()

    def test_none(self) -> None:
        """It may be empty."""
        self.assertEqual(self.list(), "CHANNELS:")

    def test_sorted(self) -> None:
        """The order is that of the alphabet."""
        self.assertEqual(self.list("b", "c", "a"), "CHANNELS:a,b,c")

    def test_unspeakable(self) -> None:
        """Names with a colon, a comma, white space or control characters are left out."""
        self.assertEqual(self.list("a:b", "a,b", "a b", "a\n", "fine"), "CHANNELS:fine")

    def test_bounded(self) -> None:
        """At the limit all names are in it; over it the last ones are left out."""
        room = KIBIBYTE - len("CHANNELS:")
        first, last = "a" * 500, "b" * (room - 501)
        self.assertEqual(self.list(first, last), f"CHANNELS:{first},{last}")
        self.assertEqual(self.list(first, last + "b"), f"CHANNELS:{first}")
        self.assertEqual(self.list(first, "é" * ((room - 501) // 2 + 1)), f"CHANNELS:{first}")

    def test_madeOnce(self) -> None:
        """It is made anew only after a change."""
        context = makeContext(self.clock)
        channels, client = ChannelList(context), context.broker.brokerClient
        self.assertIs(channels.frame(client), channels.frame(client))
        before = channels.frame(client)
        context.broker.subscribe(context.broker.join("fleximq"), Silent(), "news")
        self.assertNotEqual(channels.frame(client), before)

    def test_rights(self) -> None:
        """Who may do nothing with a channel is not told of it; those with the same rights share a frame."""
        context = makeContext(self.clock)
        broker, channels = context.broker, ChannelList(context)
        for name in ("a", "b", "c", "d"):
            broker.subscribe(broker.brokerClient, Silent(), name)
        rights = Rights({"publish": ("a",), "subscribe": ("b",), "consume": ("c",), "read": ("d",)})
        one, other = (broker.join("identity", rights=rights) for _ in range(2))
        (frame,), _ = decode(channels.frame(one))
        self.assertEqual(frame.payload.decode(), "CHANNELS:a,b,c")
        self.assertIs(channels.frame(one), channels.frame(other))
        broker.changeRights(other, Rights({}))
        (frame,), _ = decode(channels.frame(other))
        self.assertEqual(frame.payload.decode(), "CHANNELS:")
        broker.unsubscribe(broker.brokerClient, "d")
        self.assertIs(channels.frame(one), channels.frame(one))

    def test_rightsBounded(self) -> None:
        """Of so many different rights the lists are remembered."""
        channels = ChannelList(makeContext(self.clock))
        client = ConnectedClient(1000, "identity", "me")
        for _ in range(1000):
            client.rights = Rights({})
            channels.frame(client)
        self.assertLess(len(channels._frames), 300)


class AnnouncementTests(ConversationCase):
    """``announce-channels``."""

    def user(self, **settings: Any) -> WebSocketPeer:
        """Return a client who has read its greeting; the first one starts the broker."""
        if settings:
            self.context = makeContext(self.clock, **settings)
            self.factory = IdentityFactory(self.context)
        peer = WebSocketPeer(self.factory, piece=self.piece).upgrade()
        peer.texts()
        return peer

    def test_announced(self) -> None:
        """Everybody is told when the channels change; the acknowledgement comes first."""
        one = self.user(announceChannels=True)
        two = self.user()
        self.assertEqual(one.askText("SUBSCRIBE:news"), ["SUB-ACK:news", "CHANNELS:news"])
        self.assertEqual(two.texts(), ["CHANNELS:news"])
        self.assertEqual(two.askText("SUBSCRIBE:news"), ["SUB-ACK:news"])
        self.assertEqual(one.texts(), [])

    def test_notByDefault(self) -> None:
        """Unless it is set, nobody is."""
        one = self.user(announceChannels=False)
        two = self.user()
        self.assertEqual(one.askText("SUBSCRIBE:news"), ["SUB-ACK:news"])
        self.assertEqual(two.texts(), [])

    def test_leaving(self) -> None:
        """A client that leaves may be the end of a channel; it is told nothing itself."""
        one, two = self.user(announceChannels=True), self.user()
        one.sayText("SUBSCRIBE:news").texts()
        two.texts()
        one.leave()
        self.assertEqual(one.texts(), [])
        self.assertEqual(two.texts(), ["CHANNELS:"])

    def test_otherDialects(self) -> None:
        """It does not matter whose subscription it is."""
        one = self.user(announceChannels=True)
        self.context.broker.subscribe(self.context.broker.join("fleximq"), Silent(), "news")
        self.clock.advance(0)
        self.assertEqual(one.texts(), ["CHANNELS:news"])

    def test_oncePerTurn(self) -> None:
        """Several changes of one turn are one announcement."""
        one = self.user(announceChannels=True)
        client = self.context.broker.join("fleximq")
        for name in ("a", "b", "c"):
            self.context.broker.subscribe(client, Silent(), name)
        self.clock.advance(0)
        self.assertEqual(one.texts(), ["CHANNELS:a,b,c"])

    def test_invisible(self) -> None:
        """A topic whose name the dialect cannot spell changes nothing for it."""
        one = self.user(announceChannels=True)
        client = self.context.broker.join("fleximq")
        for name in ("a:b", "a,b", "a b"):
            self.context.broker.subscribe(client, Silent(), name)
            self.clock.advance(0)
        self.assertEqual(one.texts(), [])

    def test_rights(self) -> None:
        """A change of channels that a client may not do anything with is none to it."""
        one = self.user(announceChannels=True)
        client = next(iter(self.context.broker.clients))
        self.context.broker.changeRights(client, Rights({"subscribe": ("b",)}))
        other = self.context.broker.join("fleximq")
        for name in ("a", "b"):
            self.context.broker.subscribe(other, Silent(), name)
            self.clock.advance(0)
        self.assertEqual(one.texts(), ["CHANNELS:b"])

    def test_undone(self) -> None:
        """A change that is undone in the same turn is none; the next one is told."""
        one = self.user(announceChannels=True)
        client = self.context.broker.join("fleximq")
        self.context.broker.subscribe(client, Silent(), "a")
        self.context.broker.unsubscribe(client, "a")
        self.clock.advance(0)
        self.assertEqual(one.texts(), [])
        self.context.broker.subscribe(client, Silent(), "a")
        self.clock.advance(0)
        self.assertEqual(one.texts(), ["CHANNELS:a"])
