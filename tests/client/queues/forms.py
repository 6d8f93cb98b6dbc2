"""The three forms behind one face that waits, for each of the two dialects.

::

    form = Blocking("minimq")
    client = form.connect(url)
    client.consumer("jobs").next(5)
    form.end()
"""

import importlib
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from twisted.trial.unittest import SynchronousTestCase

from fleximq.client.backoff import Backoff
from fleximq.client.settings import State
from tests.broker_process import BrokerProcess
from tests.client.bad_network import BadNetwork
from tests.client.forms import OnAsyncio, OnTwisted
from tests.client.test_with_broker import Place

SOON = 300.0
#: Seconds after which the brokers give out again what was not acknowledged; and when that has surely happened.
REDELIVERY, LATER = 1, 1.2
QUICK = Backoff(first=0.01, most=0.05)
#: One broker for all.
PLACE = Place(lambda: ("--redelivery", str(REDELIVERY)))


class Blocking:
    """Plain calls."""

    name = "blocking"

    def __init__(self, dialect: str) -> None:
        self._module: Any = importlib.import_module(f"fleximq.client.{dialect}.blocking")

    def connect(self, url: str | list[str], **wishes: Any) -> Any:
        """Return a client."""
        return self._module.connect(url, **wishes)

    def end(self) -> None:
        """There is nothing to stop."""


class Reacting(OnTwisted):
    """A reactor in a thread."""

    def __init__(self, dialect: str) -> None:
        self._module: Any = importlib.import_module(f"fleximq.client.{dialect}.twisted")
        super().__init__()

    def connect(self, url: str | list[str], **wishes: Any) -> Any:
        return self.call(self._module.connect, self._reactor, url, **wishes)


class Awaiting(OnAsyncio):
    """asyncio in a thread."""

    def __init__(self, dialect: str) -> None:
        self._module: Any = importlib.import_module(f"fleximq.client.{dialect}.asyncio")
        super().__init__()

    def connect(self, url: str | list[str], **wishes: Any) -> Any:
        return self.call(self._module.connect, url, **wishes)


class QueueCase(SynchronousTestCase):
    """Clients of one form, behind a network that may be bad."""

    Form: ClassVar[Any]
    dialect: ClassVar[str]

    def setUp(self) -> None:
        """Have a form, a network, and a topic that nobody else uses."""
        self.topic = f"t{uuid.uuid4().hex[:12]}"
        self.form = self.Form(self.dialect)
        self.addCleanup(self.form.end)
        self.network = BadNetwork(PLACE.broker.address).__enter__()
        self.addCleanup(self.network.__exit__, None, None, None)
        self.states: list[State] = []

    def connectedTo(self, url: str | list[str], **wishes: Any) -> Any:
        """Return a client."""
        client = self.form.connect(url, **{"reconnect": QUICK, **wishes})
        self.addCleanup(client.hang_up)
        return client

    def connected(self, **wishes: Any) -> Any:
        """Return a client behind the network, whose states are noted."""
        return self.connectedTo(self.network.url, on_state=lambda state, why: self.states.append(state), **wishes)

    def direct(self, **wishes: Any) -> Any:
        """Return a client that has nothing to fear."""
        return self.connectedTo(f"tcp://127.0.0.1:{PLACE.broker.port()}", **wishes)

    def until(self, holds: Callable[[], object]) -> None:
        """Wait until something holds."""
        deadline = time.monotonic() + SOON
        while not holds():
            assert time.monotonic() < deadline, "it took too long"
            time.sleep(0.005)

    def cut(self, client: Any) -> None:
        """Cut the connection, and wait for the next one."""
        before = len(self.states)
        self.network.cut()
        self.until(lambda: len(self.states) >= before + 2 and client.state is State.JOINED)

    def durable(self) -> "Durable":
        """Return a broker that keeps everything, behind the network."""
        return Durable(self)


class Durable:
    """A broker with a journal, that can be killed and started anew."""

    def __init__(self, case: QueueCase) -> None:
        self._case = case
        self._journal = case.mktemp()
        self.begin()

    def begin(self) -> None:
        """Start it, and lead the network to it."""
        folder = str(Path(self._journal).absolute())
        self.broker = BrokerProcess("--journal", folder, "--durable", "#", "--redelivery", str(REDELIVERY)).__enter__()
        self._case.addCleanup(self.broker.stop)
        self._case.network.target = self.broker.address

    def restart(self) -> None:
        """Kill it, and start it anew."""
        self.broker.stop(9)
        self.begin()


def everyForm(names: dict[str, Any], *kinds: type) -> None:
    """Make test cases of every form in a module."""
    for form in (Blocking, Awaiting, Reacting):
        for kind in kinds:
            made = type(f"{form.__name__}{kind.__name__}Tests", (kind,), {"Form": form, "__doc__": kind.__doc__})
            made.__module__ = names["__name__"]
            names[made.__name__] = made
