"""The channel layer of Django Channels with a broker, mostly between two layers as of two processes."""

import asyncio
import gc
import os
import signal
import threading
import weakref
from collections.abc import Callable, Coroutine
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from fleximq.client.asyncio import connect
from fleximq.client.errors import ConnectionLost, JoinRefused
from fleximq.errors import SettingError
from fleximq.security.checkers.passwords import hashOf
from tests.broker_process import BrokerProcess

_MISSING = "" if find_spec("channels") else "needs the extra channels"
if not _MISSING:
    from asgiref.sync import async_to_sync
    from asgiref.testing import ApplicationCommunicator
    from channels.exceptions import ChannelFull
    from channels.generic.websocket import JsonWebsocketConsumer
    from channels.layers import get_channel_layer
    from django import conf
    from django.test import override_settings

    from fleximq.integrations.channels import ChannelLayer

#: Seconds that a message may take.
PATIENCE = 60.0


class LayerCase(SynchronousTestCase):
    """A broker, and layers that are closed at the end."""

    if _MISSING:
        skip = _MISSING
    journal = False

    def setUp(self) -> None:
        self.layers: list[ChannelLayer] = []
        self.broker = BrokerProcess(*self.options())
        self.broker.__enter__()
        self.addCleanup(lambda: self.broker.stop())

    def options(self) -> tuple[str, ...]:
        """Return the options of the broker."""
        return ("--journal", os.path.abspath(self.mktemp())) if self.journal else ()

    def restart(self) -> None:
        """Kill the broker, and start it on the same port."""
        port = self.broker.port()
        journal = self.broker.arguments[self.broker.arguments.index("--journal") :] if self.journal else ()
        self.broker.stop(signal.SIGKILL)
        self.broker = BrokerProcess("--listen", f"tcp:{port}:interface=127.0.0.1", *journal)
        self.broker.__enter__()

    def layer(self, **options: Any) -> "ChannelLayer":
        """Return a layer."""
        made = ChannelLayer(**{"hosts": [self.broker.address], **options})
        self.layers.append(made)
        return made

    def run_(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """Return the result of a coroutine, and close all layers."""

        async def whole() -> Any:
            try:
                return await asyncio.wait_for(work(), PATIENCE)
            finally:
                for each in self.layers:
                    await each.close()

        return asyncio.run(whole())


class SendTests(LayerCase):
    """Messages to channels of another process, and to those of none."""

    def test_channelsOfAnotherProcess(self) -> None:
        """Sent messages arrive in order, until the channel is full; not those to a process that has ended."""

        async def send() -> None:
            ours, other = self.layer(), self.layer(capacity=2)
            channel = await other.new_channel()
            waiting = asyncio.create_task(other.receive(channel))
            await other.group_add("any", channel)  # it is connected now
            await ours.send(channel, {"n": 0})
            self.assertEqual(await waiting, {"n": 0})
            for number in (1, 2):
                await ours.send(channel, {"n": number})
            with self.assertRaises(ChannelFull):
                await ours.send(channel, {"n": 3})
            self.assertEqual([await other.receive(channel) for _ in range(2)], [{"n": 1}, {"n": 2}])
            await other.close()
            await ours.send(channel, {"n": 4})

        self.run_(send)

    def test_receivingFromAnotherProcess(self) -> None:
        """Is a mistake."""

        async def receive() -> None:
            channel = await self.layer().new_channel()
            with self.assertRaises(AssertionError):
                await self.layer().receive(channel)

        self.run_(receive)

    def test_namedChannelsAreShared(self) -> None:
        """One of several processes gets a message; a full channel refuses more."""

        async def share() -> None:
            ours, others = self.layer(capacity=3), [self.layer(capacity=3) for _ in range(2)]
            for number in range(3):
                await ours.send("work", {"n": number})
            with self.assertRaises(ChannelFull):
                await ours.send("work", {"n": 3})
            found = [await each.receive("work") for each in (*others, ours)]
            self.assertEqual(sorted(each["n"] for each in found), [0, 1, 2])
            await ours.send("work", {"n": 4})
            self.assertEqual(await ours.receive("work"), {"n": 4})

        self.run_(share)

    def test_namedChannelsOfAProcessThatReceivesNoMore(self) -> None:
        """Their messages go to other processes, a moment later, although it has prefetched one."""

        async def leave() -> None:
            ours, other = self.layer(), self.layer()
            for number in range(3):
                await ours.send("work", {"n": number})
            self.assertEqual(await other.receive("work"), {"n": 0})
            self.assertEqual(sorted([(await ours.receive("work"))["n"] for _ in range(2)]), [1, 2])

        self.run_(leave)

    def test_cancelledReceiversOfNamedChannelsLoseNothing(self) -> None:
        """Cancelled at any moment."""

        async def cancel() -> None:
            ours = self.layer(capacity=1000)
            found = []
            for number in range(100):
                await ours.send("work", {"n": number})
                waiting = asyncio.create_task(ours.receive("work"))
                await asyncio.sleep(number * 2e-5)
                waiting.cancel()
                try:
                    found.append((await waiting)["n"])
                except asyncio.CancelledError:
                    pass
            while len(found) < 100:
                found.append((await ours.receive("work"))["n"])
            self.assertEqual(sorted(found), list(range(100)))

        self.run_(cancel)

    def test_aMessageThatArrivesTogetherWithTheCancellation(self) -> None:
        """Goes back to its channel."""

        async def cancel() -> None:
            ours = self.layer()
            await ours.send("work", {"n": 1})
            await ours.receive("work")  # it is a consumer now
            waiting = asyncio.create_task(ours.receive("work"))
            await asyncio.sleep(0)
            connection = ours._connection
            assert connection is not None
            turn = lambda: asyncio.run_coroutine_threadsafe(asyncio.sleep(0), connection._loop).result()  # noqa: E731
            turn()
            taking = connection._named._receptions["work"].lock
            sending = threading.Thread(target=asyncio.run, args=(ours.send("work", {"n": 2}),))
            sending.start()  # while this event loop stands still, so that it does not see the message
            sending.join()
            while taking.locked():
                turn()
            turn()
            waiting.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await waiting
            self.assertEqual(await ours.receive("work"), {"n": 2})

        self.run_(cancel)

    def test_messagesExpire(self) -> None:
        """Those of named channels in the broker; then they take no room."""

        async def expire() -> None:
            ours = self.layer(expiry=0.2, capacity=1)
            await ours.send("work", {"n": 1})
            while True:
                try:
                    await ours.send("work", {"n": 2})
                    break
                except ChannelFull:
                    await asyncio.sleep(0.02)
            self.assertEqual(await ours.receive("work"), {"n": 2})

        self.run_(expire)

    def test_encrypted(self) -> None:
        """The first key encrypts, all decrypt; the broker has no plain text."""

        async def send() -> None:
            ours = self.layer(symmetric_encryption_keys=["new", "old"])
            for key in ("new", "old"):
                await self.layer(symmetric_encryption_keys=[key]).send("work", {"secret": key})
                self.assertEqual(await ours.receive("work"), {"secret": key})
            await ours.send("work", {"secret": 1})
            with self.assertRaises(ValueError):
                await self.layer(symmetric_encryption_keys=["old"]).receive("work")

        self.run_(send)

    def test_aLayerWithoutABroker(self) -> None:
        """Every call says so, and works when there is one again; wrong settings are told at once."""
        self.assertRaises(TypeError, self.layer, colour="red")
        self.assertRaises(SettingError, self.layer, hosts=["redis://localhost:6379"])
        self.assertRaises(ValueError, self.layer, symmetric_encryption_keys="secret")

        async def fail() -> None:
            ours = self.layer(hosts=["tcp://127.0.0.1:9"])
            channel = await ours.new_channel()
            for call in (ours.receive(channel), ours.send("work", {}), ours.group_send("g", {})):
                with self.assertRaises(ConnectionLost):
                    await call

        self.run_(fail)


class GroupTests(LayerCase):
    """Groups with members of several processes."""

    def test_membersEverywhere(self) -> None:
        """Channels of two processes, one added by the other one, and a named channel."""

        async def group() -> None:
            ours, other = self.layer(), self.layer()
            a, b, c = await ours.new_channel(), await other.new_channel(), await other.new_channel()
            await other.group_add("g", b)
            await ours.group_add("g", a)
            await ours.group_add("g", c)
            await ours.group_add("g", "work")
            await ours.group_send("g", {"n": 1})
            found = [await ours.receive(a), await other.receive(b), await other.receive(c), await ours.receive("work")]
            self.assertEqual(found, [{"n": 1}] * 4)
            await ours.group_discard("g", a)
            await ours.group_discard("g", c)
            await ours.group_discard("g", "work")
            await other.group_send("g", {"n": 2})
            self.assertEqual(await other.receive(b), {"n": 2})
            for layer, channel in ((ours, a), (other, c), (ours, "work")):
                await layer.send(channel, {"n": 3})
                self.assertEqual(await layer.receive(channel), {"n": 3})

        self.run_(group)

    def test_fullMembersMissMessages(self) -> None:
        """Others do not, nor does the sender learn of it."""

        async def fill() -> None:
            ours, other = self.layer(), self.layer(channel_capacity={"tiny*": 1})
            channels = [await other.new_channel(), await other.new_channel("tiny")]
            for each in channels:
                await other.group_add("g", each)
            await other.group_add("g", "tiny")
            for number in range(9):
                await ours.group_send("g", {"n": number})
            self.assertEqual([(await other.receive(channels[0]))["n"] for _ in range(9)], list(range(9)))
            self.assertEqual(await other.receive(channels[1]), {"n": 0})

        self.run_(fill)

    def test_otherClientsPublishToGroups(self) -> None:
        """A message is plain MessagePack, in a topic with the group's name."""

        async def publish() -> None:
            ours = self.layer(prefix="site")
            channel = await ours.new_channel()
            await ours.group_add("news", channel)
            async with connect(f"tcp://127.0.0.1:{self.broker.port()}") as client:
                await client.publish("site/group/news", {"type": "news.flash"})
            self.assertEqual(await ours.receive(channel), {"type": "news.flash"})

        self.run_(publish)

    def test_membershipExpires(self) -> None:
        """Unless it is renewed; then nothing is left of the group."""

        async def expire() -> None:
            ours = self.layer(group_expiry=0.05)
            channel = await ours.new_channel()
            await ours.group_add("g", channel)
            connection = ours._connection
            assert connection is not None
            while len(connection._groups):
                await asyncio.sleep(0.02)

        self.run_(expire)

    def test_thousandsOfChannelsLeaveNothing(self) -> None:
        """Neither here nor in the broker."""

        async def come() -> None:
            ours = self.layer()
            for number in range(300):
                channels = [await ours.new_channel() for _ in range(10)]
                await asyncio.gather(*(ours.group_add(f"g{number % 50}", each) for each in channels))
                waiting = [asyncio.create_task(ours.receive(each)) for each in channels]
                await ours.group_send(f"g{number % 50}", {})
                await asyncio.gather(*waiting)
                await asyncio.gather(*(ours.group_discard(f"g{number % 50}", each) for each in channels))
            connection = ours._connection
            assert connection is not None
            self.assertEqual((len(connection._groups), len(ours._mailboxes)), (0, 0))
            client = await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(connection.client(), connection._loop))
            self.assertEqual(client._clientState.inbox.boxes, {})

        self.run_(come)

    def test_flush(self) -> None:
        """Removes messages and groups."""

        async def flush() -> None:
            ours = self.layer()
            channel = await ours.new_channel()
            await ours.group_add("g", channel)
            await ours.group_add("g", "work")
            await ours.send("work", {"n": 1})
            await ours.send(channel, {"n": 1})
            await ours.flush()
            await ours.group_send("g", {"n": 2})
            for each in (channel, "work"):
                await ours.send(each, {"n": 3})
                self.assertEqual(await ours.receive(each), {"n": 3})

        self.run_(flush)


class ConsumerTests(LayerCase):
    """A consumer of Channels for WebSockets, which runs in threads."""

    def test_aMessageToTheGroupOfAConsumer(self) -> None:
        """Sent by another process without an event loop, as in a view; nothing is left when the WebSocket is closed."""

        class News(JsonWebsocketConsumer):
            groups = ("news",)

            def news_flash(self, event: dict[str, Any]) -> None:
                self.send_json({"flash": event["text"]})

        async def watch() -> None:
            ours, other = get_channel_layer(), self.layer()
            assert isinstance(ours, ChannelLayer)
            self.layers.append(ours)
            socket = ApplicationCommunicator(News.as_asgi(), {"type": "websocket"})
            await socket.send_input({"type": "websocket.connect"})
            self.assertEqual((await socket.receive_output(PATIENCE))["type"], "websocket.accept")
            await asyncio.to_thread(async_to_sync(other.group_send), "news", {"type": "news.flash", "text": "rain"})
            self.assertEqual((await socket.receive_output(PATIENCE))["text"], '{"flash": "rain"}')
            await socket.send_input({"type": "websocket.disconnect", "code": 1000})
            await socket.wait(PATIENCE)
            connection = ours._connection
            assert connection is not None
            self.assertEqual((len(connection._groups), len(ours._mailboxes)), (0, 0))

        if not conf.settings.configured:
            conf.settings.configure()
        config = {"url": f"tcp://127.0.0.1:{self.broker.port()}"}
        layer = {"BACKEND": "fleximq.integrations.channels.ChannelLayer", "CONFIG": config}
        with override_settings(CHANNEL_LAYERS={"default": layer}):
            self.run_(watch)


class LoopTests(LayerCase):
    """Several event loops, threads and processes."""

    def test_loopsThatEnd(self) -> None:
        """Each call on an event loop of its own, as by ``async_to_sync``, with one connection in all."""
        ours = self.layer()
        channel = asyncio.run(ours.new_channel())
        asyncio.run(ours.group_add("g", channel))
        first = ours._connection
        for number in range(3):
            asyncio.run(ours.group_send("g", {"n": number}))
        self.assertEqual([asyncio.run(ours.receive(channel)) for _ in range(3)], [{"n": n} for n in range(3)])
        self.assertIs(ours._connection, first)
        asyncio.run(ours.close())

    def test_aForkedProcess(self) -> None:
        """Has channels of its own, and the parent's still work."""
        ours = self.layer()
        channel = asyncio.run(ours.new_channel())
        asyncio.run(ours.group_add("g", channel))
        child = os.fork()
        if not child:
            code = 1
            try:
                own = asyncio.run(ours.new_channel())
                asyncio.run(ours.send(channel, {"from": own}))
                code = 0
            finally:
                os._exit(code)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        found = asyncio.run(ours.receive(channel))
        self.assertNotIn(ours.client_prefix, found["from"])
        asyncio.run(ours.close())

    def test_aForgottenLayerDisconnects(self) -> None:
        """And its thread ends."""
        ours = ChannelLayer(hosts=[self.broker.address])
        asyncio.run(ours.send("work", {}))
        connection, gone = ours._connection, weakref.ref(ours)
        assert connection is not None
        del ours
        gc.collect()
        self.assertIsNone(gone())
        connection._thread.join(PATIENCE)
        self.assertNotIn(connection._thread, threading.enumerate())


class PermissionTests(LayerCase):
    """A broker with permissions, which grants what docs/guides/channels.rst names."""

    def options(self) -> tuple[str, ...]:
        """Return the options of the broker."""
        passwords, permissions = (Path(self.mktemp()).absolute() for _ in range(2))
        passwords.write_text(f"site:{hashOf('p')}\n")
        passwords.chmod(0o600)
        permissions.write_text(
            """
            [principals.site]
            serve = ["asgi.*"]
            request = ["/channels"]
            publish = ["asgi/group/#", "asgi/channel/#"]
            subscribe = ["asgi/group/#"]
            consume = ["asgi/group/#", "asgi/channel/#"]
            read = ["/broker/queues"]
            """
        )
        return "--auth", f"passwords:{passwords}", "--config", str(permissions)

    def layer(self, **options: Any) -> "ChannelLayer":
        """Return a layer with credentials."""
        credentials = {"type": "basic", "username": "site", "password": "p"}
        return super().layer(**{"credentials": credentials, **options})

    def test_theyAreEnough(self) -> None:
        """For all kinds of channels."""

        async def send() -> None:
            ours, other = self.layer(), self.layer()
            channel = await other.new_channel()
            await other.group_add("g", channel)
            await ours.group_add("g", "work")
            await ours.group_send("g", {"n": 1})
            self.assertEqual([await other.receive(channel), await other.receive("work")], [{"n": 1}] * 2)
            await ours.send(channel, {"n": 2})
            await ours.send("work", {"n": 2})
            self.assertEqual([await other.receive(channel), await other.receive("work")], [{"n": 2}] * 2)
            await ours.group_discard("g", channel)
            await ours.group_discard("g", "work")

        self.run_(send)

    def test_missingOnesAreErrors(self) -> None:
        """Of the call that needs them, and so are wrong credentials."""

        async def send() -> None:
            other = self.layer(prefix="other")
            with self.assertRaises(JoinRefused):
                await other.group_send("g", {})
            wrong = self.layer(credentials={"type": "basic", "username": "site", "password": "q"})
            with self.assertRaises(JoinRefused):
                await wrong.receive(await wrong.new_channel())

        self.run_(send)


class RestartTests(LayerCase):
    """The broker is killed and started again."""

    def test_everythingGoesOn(self) -> None:
        """Receivers that wait, groups, named channels and their groups."""

        async def restart() -> None:
            ours, other = self.layer(), self.layer()
            channel = await other.new_channel()
            await other.group_add("g", channel)
            await other.group_add("g", "work")
            receiving = [asyncio.create_task(other.receive(each)) for each in (channel, "work")]
            await ours.group_send("g", {"n": 1})
            self.assertEqual([await each for each in receiving], [{"n": 1}] * 2)
            receiving = [asyncio.create_task(other.receive(each)) for each in (channel, "work")]
            await asyncio.to_thread(self.restart)
            await eventually(lambda: ours.send(channel, {"n": 2}))
            self.assertEqual(await receiving[0], {"n": 2})
            receiving[0] = asyncio.create_task(other.receive(channel))
            while not all(each.done() for each in receiving):
                await eventually(lambda: ours.group_send("g", {"n": 3}))
                await asyncio.wait(receiving, timeout=0.1)
            self.assertEqual([await each for each in receiving], [{"n": 3}] * 2)
            await eventually(lambda: ours.send("more", {"n": 4}))
            self.assertEqual(await other.receive("more"), {"n": 4})

        self.run_(restart)


class RestartWithJournalTests(RestartTests):
    """The same with a journal."""

    journal = True


async def eventually(call: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Repeat a call that fails since the connection was lost."""
    while True:
        try:
            return await call()
        except ConnectionLost:
            await asyncio.sleep(0.02)
