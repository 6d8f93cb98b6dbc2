"""Tests that talk to a running broker; the brokers themselves, one for each set of options.

A broker starts with the first test that needs it and runs until the interpreter ends. Topics are new in each test, so
nothing one test leaves behind is met by another.
"""

import atexit
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Any, ClassVar, TypeVar

from twisted.trial.unittest import SynchronousTestCase

from tests.broker_process import BrokerProcess
from tests.conversations.clients import (
    PATIENCE,
    BlipClient,
    FlexiClient,
    IdentityClient,
    MiniClient,
    Stream,
    WebSocketStream,
)
from tests.wire.flexi_variants import MAPS, Variant

#: A UNIX socket in the broker's own folder.
UNIX_SOCKET = "broker.sock"
_LOOPBACK = "tcp:0:interface=127.0.0.1"

Opened = TypeVar("Opened", bound=AbstractContextManager[Any])


class Place:
    """A broker that is started when it is first asked for, with one port for all dialects and a UNIX socket."""

    def __init__(self, *options: str) -> None:
        self._options = options
        self._running: BrokerProcess | None = None
        self._starting = threading.Lock()

    @property
    def broker(self) -> BrokerProcess:
        """The running broker; threads may ask for it at the same time."""
        with self._starting:
            if self._running is None:
                self._running = BrokerProcess(
                    "--listen", _LOOPBACK, "--listen", f"unix:{UNIX_SOCKET}", *self._options
                ).__enter__()
                atexit.register(self._running.stop)
            return self._running

    def address(self, dialect: str) -> tuple[str, int]:
        """Where a dialect is spoken."""
        return self.broker.address

    @property
    def unixAddress(self) -> str:
        """Where all dialects are spoken over a UNIX socket."""
        return str(self.broker.folder / UNIX_SOCKET)


#: One port for all dialects, and nothing set.
SHARED = Place()


class SocketCase(SynchronousTestCase):
    """A test with clients of a running broker, closed at its end; ``topic`` is a name that nobody else uses."""

    place: ClassVar[Place] = SHARED

    def setUp(self) -> None:
        """Have no clients yet."""
        self.open = ExitStack()
        self.addCleanup(self.open.close)
        self.topic = f"t{uuid.uuid4().hex[:12]}"

    def opened(self, client: Opened) -> Opened:
        """Close this client at the end of the test."""
        self.open.enter_context(client)
        return client

    def stream(self, dialect: str) -> Stream:
        """Return a bare connection to where a dialect is spoken."""
        return self.opened(Stream(self.place.address(dialect)))

    def flexi(self, header: Any = None, variant: Variant = MAPS) -> FlexiClient:
        """Return a FlexiMQ client that has joined over TCP."""
        return self.stranger(variant).join(header)

    def stranger(self, variant: Variant = MAPS) -> FlexiClient:
        """Return a FlexiMQ client that has not joined."""
        return self.opened(FlexiClient(Stream(self.place.address("fleximq")), variant))

    def flexiWs(self, header: Any = None, variant: Variant = MAPS, path: str = "/ws") -> FlexiClient:
        """Return a FlexiMQ client that has joined over WebSocket."""
        carrier = WebSocketStream(self.place.address("fleximq"), path)
        return self.opened(FlexiClient(carrier, variant)).join(header)

    def blip(self, key: str = "dev-key") -> BlipClient:
        """Return a BlipMQ client that has authenticated."""
        return self.opened(BlipClient(self.place.address("blipmq"))).login(key)

    def mini(self) -> MiniClient:
        """Return a MiniMQ client."""
        return self.opened(MiniClient(self.place.address("minimq")))

    def identity(self, *channels: str) -> IdentityClient:
        """Return an Identity client that has subscribed to these channels."""
        client = self.opened(IdentityClient(self.place.address("identity")))
        for channel in channels:
            client.subscribe(channel)
        return client

    # -- checks ------------------------------------------------------------------------------------

    def counts(self) -> dict[str, int]:
        """Return what the broker has counted since its start."""
        with FlexiClient(Stream(self.place.address("fleximq"))) as asking:
            counts: dict[str, int] = asking.join().ask("/broker/about")["counts"]
            return counts

    def assertError(self, heard: Any, client: FlexiClient, status: int, id: str | None = None) -> None:
        """Check that a message is the broker's error to this client after its JOIN."""
        self.assertEqual((heard.kind, heard.sender, heard.status), ("REP", 1, client.variant.status(status)), heard)
        self.assertEqual([entry["client_id"] for entry in heard.header["routing"]], [client.id])
        self.assertEqual(heard.header.get("reqrep"), id and {"type": "correlation", "id": id})
        self.assertIsInstance(heard.value, str)

    def eventually(self, holds: Callable[[], Any], what: str) -> Any:
        """Return what this function returns as soon as that is true.

        For what the broker does by itself, such as noticing that a connection is gone.
        """
        deadline = time.monotonic() + PATIENCE
        while not (found := holds()):
            if time.monotonic() > deadline:
                self.fail(f"waited {PATIENCE:g} seconds for {what}")
            time.sleep(0.01)
        return found


def inPlace(place: Place, suffix: str, *cases: type[SocketCase]) -> dict[str, type[SocketCase]]:
    """Return each case once more, with another broker, by its name and a suffix."""
    made: dict[str, type[SocketCase]] = {}
    for case in cases:
        name = case.__name__ + suffix
        made[name] = type(name, (case,), {"place": place, "__module__": case.__module__, "__doc__": case.__doc__})
    return made
