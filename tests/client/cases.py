"""Cases of tests that run in every form of a client: alone, with a broker, and behind a network that fails.

A module writes each fact once, in a case without a form, and ends with::

    inEveryForm(globals(), Conversations, Networks)
"""

import atexit
import shutil
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any, ClassVar

from twisted.trial.unittest import SynchronousTestCase

from fleximq.client.backoff import Backoff
from fleximq.client.settings import State
from tests.broker_process import BrokerProcess
from tests.certificates import Made, makeCertificate
from tests.client.bad_network import BadNetwork
from tests.client.forms import FORMS, Form

#: Seconds that anything may take; they only end a test that hangs.
SOON = 300.0
QUICK = Backoff(first=0.01, most=0.05)


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

    :param words: its arguments, with ``{0.certificate}`` and ``{0.key}``.
    :param name: the host of the certificate.
    """

    def __init__(self, *words: str, name: str = "localhost") -> None:
        super().__init__(lambda: [word.format(self.made) for word in words])
        self._name = name

    @cached_property
    def made(self) -> Made:
        """The certificate."""
        folder = Path(tempfile.mkdtemp(prefix="fleximq-"))
        atexit.register(shutil.rmtree, folder)
        return makeCertificate(folder, self._name)


class FormCase(SynchronousTestCase):
    """Clients of one form and dialect."""

    Form: ClassVar[type[Form]]
    dialect: ClassVar[str] = ""

    def setUp(self) -> None:
        """Make a form, and choose a topic that no other test uses."""
        self.topic = f"t{uuid.uuid4().hex[:12]}"
        self.form = self.Form(self.dialect)
        self.addCleanup(self.form.end)

    def connectedTo(self, url: str | list[str], **options: Any) -> Any:
        """Return a client."""
        client = self.form.connect(url, **options)
        self.addCleanup(client.hang_up)
        return client

    def values(self, subscription: Any, count: int) -> list[Any]:
        """Return the values of the next deliveries; None where there is none."""
        got = [subscription.next(SOON) for _ in range(count)]
        return [each and each.value for each in got]

    def until(self, holds: Callable[[], object]) -> None:
        """Wait until something holds."""
        deadline = time.monotonic() + SOON
        while not holds():
            assert time.monotonic() < deadline, "it took too long"
            time.sleep(0.005)


class NetworkCase(FormCase):
    """Clients that are connected to one broker through a network that may fail, or directly."""

    place: ClassVar[Place]

    def setUp(self) -> None:
        """Make a network."""
        super().setUp()
        self.network = BadNetwork(self.place.broker.address).__enter__()
        self.addCleanup(self.network.__exit__, None, None, None)
        self.states: list[State] = []

    def connectedTo(self, url: str | list[str], **options: Any) -> Any:
        return super().connectedTo(url, **{"reconnect": QUICK, **options})

    def connected(self, **options: Any) -> Any:
        """Return a client behind the network, whose states are noted."""
        return self.connectedTo(self.network.url, on_state=lambda state, why: self.states.append(state), **options)

    def direct(self, **options: Any) -> Any:
        """Return a client whose connection does not fail."""
        return self.connectedTo(f"tcp://127.0.0.1:{self.place.broker.port()}", **options)

    def cut(self, client: Any) -> None:
        """Cut the connection, and wait for the next one."""
        self.duringReconnect(client, self.network.cut)

    def duringReconnect(self, client: Any, act: Callable[[], object]) -> None:
        """Do something that ends the connection, and wait for the next one."""
        before = len(self.states)
        act()
        self.until(lambda: len(self.states) >= before + 2 and client.state is State.JOINED)

    def away(self, client: Any) -> None:
        """Take the network down, and wait until the client has noticed."""
        self.network.isDown = True
        self.network.cut()
        self.until(lambda: client.state is State.AWAY)


def inEveryForm(names: dict[str, Any], *kinds: type[FormCase], **choices: Iterable[str]) -> None:
    """Make a test case of each kind in every form in a module, and with each choice of these class attributes.

    The kinds themselves are removed from the module, since they have no form.
    """
    for kind, form in product(kinds, FORMS):
        for chosen in product(*choices.values()):
            name = "".join((form.name.title(), *map(str.title, chosen), kind.__name__, "Tests"))
            fields = {"Form": form, "__doc__": kind.__doc__, **dict(zip(choices, chosen, strict=True))}
            names[name] = type(name, (kind,), fields)
            names[name].__module__ = names["__name__"]
    bases = (FormCase, NetworkCase, *kinds)
    for name in [name for name, each in names.items() if each in bases]:
        del names[name]
