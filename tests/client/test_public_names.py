"""The names that programs use: each can be imported, is in snake_case, and refuses arguments that it does not know."""

import importlib
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from ssl import SSLContext
from typing import Any, get_type_hints
from unittest.mock import create_autospec

from twisted.internet.interfaces import IOpenSSLClientConnectionCreator
from twisted.trial.unittest import SynchronousTestCase

from fleximq.client import asyncio as onAsyncio
from fleximq.client import blocking, settings
from fleximq.client import twisted as onTwisted
from fleximq.client.backoff import Backoff
from fleximq.client.blipmq import asyncio as blipmqOnAsyncio
from fleximq.client.blipmq import blocking as blipmq
from fleximq.client.blipmq import twisted as blipmqOnTwisted
from fleximq.client.loops.endpoint import JoiningFactory, JoiningProtocol
from fleximq.client.loops.loop_client import LoopClient
from fleximq.client.minimq import asyncio as minimqOnAsyncio
from fleximq.client.minimq import blocking as minimq
from fleximq.client.minimq import twisted as minimqOnTwisted
from fleximq.client.wrapper import Wrapper
from tests.client.scripted import Peer, Scripted

#: The documented names of each module.
NAMES = {
    "blocking": ("connect", "Client", "Jobs", "Subscription"),
    "asyncio": ("connect", "Client", "Connecting", "Jobs", "Subscription"),
    "twisted": ("connect", "Client", "ClientFactory", "ClientProtocol", "Jobs", "Subscription"),
    "settings": ("ClientSettings", "Codec", "Start", "State", "Tls", "Watcher"),
    "backoff": ("Backoff",),
    "events": ("Delivery", "Notification", "Request"),
    "jobs": ("Job", "Reject"),
    "payloads": ("Packed",),
    "errors": (
        "Answered", "BufferFull", "ClientError", "ConnectionLost", "JoinRefused", "NotSettled", "Overrun",
        "PublishFailed", "RequestFailed", "SubscribeFailed", "TopicWarning", "Untrusted",
    ),
    "blipmq.blocking": ("connect", "BlipClient", "BlipDelivery", "BlipSubscription", "Nacked"),
    "blipmq.asyncio": ("connect", "BlipClient", "BlipDelivery", "BlipSubscription", "Nacked"),
    "blipmq.twisted": (
        "connect", "BlipClient", "BlipClientFactory", "BlipClientProtocol", "BlipDelivery", "BlipSubscription",
        "Nacked",
    ),
    "minimq.blocking": ("connect", "Consumer", "ConsumeFailed", "Message", "MiniClient", "ProduceFailed"),
    "minimq.asyncio": ("connect", "Consumer", "ConsumeFailed", "Message", "MiniClient", "ProduceFailed"),
    "minimq.twisted": (
        "connect", "Consumer", "ConsumeFailed", "Message", "MiniClient", "MiniClientFactory", "MiniClientProtocol",
        "ProduceFailed",
    ),
}  # fmt: skip
BLIPMQ, MINIMQ = (blipmq, blipmqOnAsyncio, blipmqOnTwisted), (minimq, minimqOnAsyncio, minimqOnTwisted)
CLIENTS = (blocking, onAsyncio, onTwisted, *BLIPMQ, *MINIMQ)
_SNAKE = re.compile("[a-z0-9_]+")


def documented() -> Iterator[tuple[str, Any]]:
    """Yield all of these names with what they mean."""
    for module, names in NAMES.items():
        for name in names:
            yield f"{module}.{name}", getattr(importlib.import_module(f"fleximq.client.{module}"), name)


def functionsOf(name: str, found: Any) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield a function, or the public methods of a class."""
    if inspect.isfunction(found):
        yield name, found
    for each in dir(found) if inspect.isclass(found) else ():
        member = inspect.getattr_static(found, each)
        if not each.startswith("_") and inspect.isfunction(member):
            yield f"{name}.{each}", member


def attributesOf(found: Any) -> list[str]:
    """Return the public names in a class."""
    kinds = [each for each in found.__mro__ if each.__module__.startswith("fleximq.client.")]
    return [name for kind in kinds for name in vars(kind) if not name.startswith("_") and not name.isupper()]


class NamesTests(SynchronousTestCase):
    """All forms of the client."""

    def test_documented(self) -> None:
        """Each documented name can be imported."""
        self.assertEqual([name for name, found in documented() if found is None], [])

    def test_exported(self) -> None:
        """The forms export their documented names and no others."""
        for name in NAMES:
            module = importlib.import_module(f"fleximq.client.{name}")
            if module in CLIENTS:
                self.assertEqual({*module.__all__}, {*NAMES[name]}, name)

    def test_attributes(self) -> None:
        """Methods, properties and fields are in snake_case, but where Twisted calls them."""
        classes = [found for _, found in documented() if inspect.isclass(found)]
        classes = [each for each in classes if not issubclass(each, JoiningFactory | JoiningProtocol)]
        names = [name for each in classes for name in attributesOf(each)]
        self.assertIn("publish_many", names)
        self.assertEqual([name for name in names if not _SNAKE.fullmatch(name)], [])

    def test_arguments(self) -> None:
        """Arguments are in snake_case, and each is spelled out: one that is misspelled is a TypeError."""
        for name, found in documented():
            for place, function in functionsOf(name, found):
                for each in inspect.signature(function).parameters.values():
                    self.assertRegex(each.name, _SNAKE, place)
                    self.assertNotIn(each.kind, (each.VAR_KEYWORD, each.VAR_POSITIONAL), place)

    def test_same(self) -> None:
        """The forms of a client have the same methods with the same arguments."""
        kinds: Any = (
            (blocking.Client, onAsyncio.Client, onTwisted.Client),
            (blocking.Jobs, onAsyncio.Jobs, onTwisted.Jobs),
            (blocking.Subscription, onAsyncio.Subscription, onTwisted.Subscription),
            [each.BlipClient for each in BLIPMQ],
            [each.BlipSubscription for each in BLIPMQ],
            [each.MiniClient for each in MINIMQ],
            [each.Consumer for each in MINIMQ],
        )
        for first, *others in kinds:
            for other in others:
                for name, one in functionsOf("", first):
                    method = getattr(other, name[1:], None)
                    if method is None:
                        self.assertEqual(name, ".ask_packed")  # large answers are read by the pipeline alone
                    else:
                        self.assertEqual([*inspect.signature(one).parameters], [*inspect.signature(method).parameters])


#: The keyword arguments of FlexiMQ's forms, and of the other dialects'.
QUEUE = {
    "timeout": float,
    "tls": settings.Tls | SSLContext | None,
    "reconnect": Backoff | None,
    "buffer": int,
    "keep_alive": float | None,
    "on_state": settings.Watcher | None,
}
FLEXI = QUEUE | {
    "credentials": Mapping[str, str] | None,
    "name": str | None,
    "prefetch": int,
    "codec": settings.Codec,
}


class KeywordTests(SynchronousTestCase):
    """The keyword arguments of ``connect``, of which all forms share one list."""

    def shown(self, function: Any) -> dict[str, Any]:
        """Return the keyword arguments and their types that a shell or a reference page shows."""
        found = inspect.signature(function).parameters.values()
        return {each.name: each.annotation for each in found if each.kind is each.KEYWORD_ONLY}

    def test_eachIsShownWithItsTypeAndDefault(self) -> None:
        """By :mod:`inspect` and :mod:`typing`; those of Twisted take its contexts, too."""
        forTwisted = {"tls": settings.Tls | SSLContext | IOpenSSLClientConnectionCreator | None}
        for module in CLIENTS:
            expected = QUEUE if module in (*BLIPMQ, *MINIMQ) else FLEXI
            expected = expected | (forTwisted if module.__name__.endswith("twisted") else {})
            expected = expected | ({"threads": int} if module is blocking else {})
            self.assertEqual(self.shown(module.connect), expected, module)
            hints = get_type_hints(module.connect)
            self.assertEqual({name: hints[name] for name in expected}, expected, module)
            for name in expected:
                default = inspect.signature(module.connect).parameters[name].default
                self.assertEqual(default, getattr(settings.ClientSettings(), name))

    def test_factoriesLeaveTheConnectionToTwisted(self) -> None:
        """They have all but ``tls`` and ``reconnect``."""
        for module, expected in ((onTwisted, FLEXI), (blipmqOnTwisted, QUEUE), (minimqOnTwisted, QUEUE)):
            for name in module.__all__:
                if name.endswith(("Factory", "Protocol")):
                    self.assertEqual({*self.shown(getattr(module, name))}, {*expected} - {"tls", "reconnect"}, name)


class RefusalTests(SynchronousTestCase):
    """Arguments that no function knows."""

    def test_connect(self) -> None:
        """Each form refuses a keyword that it does not know."""
        reactor: Any = None
        calls: Any = (
            lambda: blocking.connect(keep_alife=1),  # type: ignore[call-arg]
            lambda: onAsyncio.connect(keep_alife=1),  # type: ignore[call-arg]
            lambda: onTwisted.connect(reactor, keep_alife=1),  # type: ignore[call-arg]
            lambda: blipmq.connect(prefetch=1),  # type: ignore[call-arg]
            lambda: blipmqOnAsyncio.connect(prefetch=1),  # type: ignore[call-arg]
            lambda: blipmqOnTwisted.connect(reactor, prefetch=1),  # type: ignore[call-arg]
            lambda: minimq.connect(key="k"),  # type: ignore[call-arg]
            lambda: minimqOnAsyncio.connect(key="k"),  # type: ignore[call-arg]
            lambda: minimqOnTwisted.connect(reactor, key="k"),  # type: ignore[call-arg]
        )
        for call in calls:
            self.assertRaises(TypeError, call)

    def test_publish(self) -> None:
        """A misspelled key is refused, not sent."""
        inner = create_autospec(LoopClient, instance=True)
        clients: Any = (inner, Wrapper.__new__(blocking.Client), Wrapper.__new__(onTwisted.Client))
        for client in clients:
            if client is not inner:
                Wrapper.__init__(client, inner)
            error = self.assertRaises(TypeError, client.publish, "a", 1, messageid="m")
            self.assertIn("messageid", str(error))


class ReprTests(SynchronousTestCase):
    """What a shell or a log shows of clients and subscriptions."""

    def test_client(self) -> None:
        """The id, the URL and the state; then the topic and how much is unread. Nothing is secret."""

        def script(peer: Peer) -> None:
            peer.letIn()
            peer.subscribed()
            peer.untilEnd()

        with Scripted(script) as url:
            credentials = {"type": "token", "token": "hidden"}
            client = blocking.connect(url, credentials=credentials, reconnect=None, keep_alive=None)
            self.assertEqual(repr(client), f"<Client 1000 at {url}, joined>")
            self.assertEqual(repr(client.subscribe("a.*")), "<Subscription to a.*, 0 waiting>")
            self.assertEqual(repr(client.notifications()), "<Subscription to notifications, 0 waiting>")
            client.hang_up()
            self.assertEqual(repr(client), f"<Client 1000 at {url}, closed>")

    def test_connecting(self) -> None:
        """A query may hold a secret, so it is not shown; a client that is not awaited says so."""
        found = onAsyncio.connect("ws://localhost:1/path?token=hidden")
        self.assertEqual(repr(found), "<Connecting to ws://localhost:1/path>")
        with self.assertRaisesRegex(TypeError, "async with"), found:
            pass
        with self.assertRaisesRegex(AttributeError, "no 'publish' before the connection: .*await"):
            found.publish("a", 1)

    def test_settings(self) -> None:
        """Credentials are not shown."""
        self.assertNotIn("hidden", repr(settings.ClientSettings(credentials={"token": "hidden"})))
