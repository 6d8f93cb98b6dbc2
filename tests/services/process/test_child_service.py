"""When a program is started, and started again; tests.conversations.test_spawn runs real ones."""

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from twisted.internet.error import ProcessDone, ProcessTerminated
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from fleximq.errors import NoCapacity
from fleximq.rights import EVERYTHING
from fleximq.services.process.child_service import (
    FIRST_DELAY,
    MAX_DELAY,
    STEADY_SECONDS,
    Child,
    ChildService,
    inherited,
)
from tests.dialects.admissions import REFUSING
from tests.dialects.conversations import makeContext
from tests.services.process.test_child_process import Process
from tests.wire.flexi_frames import cut, frame


class Reactor(Clock):
    """A clock that notes what is spawned."""

    def __init__(self) -> None:
        super().__init__()
        self.spawned: list[tuple[Child, str, Sequence[str], Mapping[str, str]]] = []
        self.failing = False

    def spawnProcess(
        self, child: Child, program: str, words: Sequence[str], environment: Mapping[str, str], childFDs: object
    ) -> Process:
        """Connect a child to a process that is only noted; its standard error stays the broker's."""
        if self.failing or childFDs != {0: "w", 1: "r", 2: 2}:
            raise OSError("no more processes")
        self.spawned.append((child, program, words, environment))
        process = Process()
        child.makeConnection(process)
        return process


class ChildServiceTests(SynchronousTestCase):
    """One program."""

    def setUp(self) -> None:
        """A broker that refuses everybody who comes by himself."""
        self.reactor: Any = Reactor()
        self.context = makeContext(self.reactor, admission=REFUSING)

    def started(self, line: str = f"{sys.executable} -x 'a b'", **environment: str) -> ChildService:
        """Return a service that runs this."""
        service = ChildService(self.reactor, line, self.context, environment, lambda principal: EVERYTHING)
        service.startService()
        self.assertEqual(self.reactor.spawned, [])
        self.reactor.advance(0)
        return service

    def end(self, reason: Any = None) -> None:
        """Let the last child end."""
        self.reactor.spawned[-1][0].processEnded(Failure(reason or ProcessDone(0)))

    def waits(self) -> float:
        """Return how many seconds go by until the next child is started, and start it."""
        times: set[float] = {call.getTime() - self.reactor.seconds() for call in self.reactor.getDelayedCalls()}
        known = len(self.reactor.spawned)
        for seconds in sorted(times):
            self.reactor.advance(seconds)
            if len(self.reactor.spawned) > known:
                return seconds
        raise AssertionError("nothing was started")

    def test_words(self) -> None:
        """The program gets its words, the variables and its id."""
        self.started(OWN="x", NOTIFY_SOCKET="/n")
        ((_, program, words, environment),) = self.reactor.spawned
        self.assertEqual((program, words), (sys.executable, [sys.executable, "-x", "a b"]))
        self.assertEqual(environment, {"OWN": "x", "FLEXIMQ_CLIENT_ID": "1000"})

    def test_join(self) -> None:
        """Its JOIN is answered with that id, whoever came in between, and whatever keeps others out."""
        self.started()
        self.assertEqual(self.context.broker.join("any").id, 1001)
        child = self.reactor.spawned[0][0]
        child.outReceived(frame("JOIN"))
        (heard,) = cut(b"".join(call[1] for call in child.transport.done if call[0] == "write"))
        self.assertEqual((heard.sender, heard.status), (1000, 200))
        client = self.context.broker.clients.find(1000)
        assert client is not None
        self.assertEqual(client.principal, "spawn:" + sys.executable.rpartition("/")[2])

    def test_backOff(self) -> None:
        """It is started again after twice the time each time, up to a bound."""
        self.started()
        waited = []
        for _ in range(9):
            self.end(ProcessTerminated(3))
            waited.append(self.waits())
        self.assertEqual(waited, [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0])
        self.assertEqual((FIRST_DELAY, MAX_DELAY), (1.0, 60.0))

    def test_steady(self) -> None:
        """One that ran for a while is started again soon; one that ran less long is not."""
        self.started()
        for ran, wanted in (
            (STEADY_SECONDS - 1, FIRST_DELAY),
            (STEADY_SECONDS - 1, 2 * FIRST_DELAY),
            (STEADY_SECONDS, FIRST_DELAY),
        ):
            self.reactor.advance(ran)
            self.end()
            self.assertEqual(self.waits(), wanted)

    def test_anotherId(self) -> None:
        """Each run has an id of its own, and keeps none back."""
        self.started()
        self.end()
        self.waits()
        self.assertEqual(self.reactor.spawned[-1][3]["FLEXIMQ_CLIENT_ID"], "1001")
        self.assertEqual(len(self.context.broker.clients._reserved), 1)

    def test_missing(self) -> None:
        """A program that is not there is looked for again."""
        self.started("no-such-program")
        self.reactor.advance(FIRST_DELAY)
        self.assertEqual(self.reactor.spawned, [])
        self.assertEqual(len(self.reactor.getDelayedCalls()), 1)
        self.assertEqual(len(self.context.broker.clients._reserved), 0)

    def test_noId(self) -> None:
        """Without a client id it is tried again."""
        clients = self.context.broker.clients

        def full() -> int:
            raise NoCapacity("there are no ids")

        patch = self.patch(clients, "reserve", full)
        self.started()
        patch.restore()
        self.assertEqual((len(self.reactor.spawned), self.waits()), (0, FIRST_DELAY))

    def test_path(self) -> None:
        """A program is looked for where its PATH says."""
        folder, _, name = sys.executable.rpartition("/")
        self.started(name, PATH=folder)
        self.assertEqual(self.reactor.spawned[0][1], sys.executable)

    def test_noProcess(self) -> None:
        """When the system has no more processes, it is tried again."""
        self.reactor.failing = True
        self.started()
        self.reactor.failing = False
        self.assertEqual(self.waits(), FIRST_DELAY)

    def assertNothingLeft(self) -> None:
        """Fail if a timer runs; the broker's own ends when it stops."""
        self.assertEqual(len(self.context.broker.deadlines), 0)
        self.context.broker.deadlines.stop()
        self.assertEqual(self.reactor.getDelayedCalls(), [])

    def test_stop(self) -> None:
        """Stopping ends it; what is returned fires when it has gone, and it is not started again."""
        service = self.started()
        stopped = service.stopService()
        self.assertNoResult(stopped)
        self.assertEqual(self.reactor.spawned[0][0].transport.done[-1], ("closeStdin",))
        self.end()
        self.successResultOf(stopped)
        self.assertNothingLeft()

    def test_stopBetween(self) -> None:
        """Stopping while it waits to be started again, or before it was, is done at once."""
        service = self.started()
        self.end()
        self.successResultOf(service.stopService())
        service = ChildService(self.reactor, "true", self.context, {}, lambda principal: EVERYTHING)
        service.startService()
        self.successResultOf(service.stopService())
        self.assertNothingLeft()

    def test_inherited(self) -> None:
        """What systemd tells the broker is kept from children."""
        kept = {"PATH": "/bin", "LISTENER": "x", "HOME": "/"}
        dropped = ("NOTIFY_SOCKET", "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "CREDENTIALS_DIRECTORY")
        self.assertEqual(inherited({**kept, **dict.fromkeys(dropped, "x")}), kept)
