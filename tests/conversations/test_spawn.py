"""Programs that the broker runs as its clients; real processes on both sides."""

import contextlib
import os
import re
import sys
import time

from twisted.trial.unittest import SynchronousTestCase

from tests.broker_process import BrokerProcess
from tests.conversations.clients import PATIENCE, FlexiClient, Stream

#: The program of these tests.
PROGRAM = f"{sys.executable} -m tests.services.child_program"


class SpawnTests(SynchronousTestCase):
    """One broker with one child."""

    def running(self, *lines: str, environment: dict[str, str] | None = None) -> BrokerProcess:
        """Return a broker that spawns these."""
        spawns = [word for line in lines for word in ("--spawn", line)]
        broker = BrokerProcess(*spawns, environment=environment, fresh=True)
        broker.__enter__()
        self.addCleanup(broker.__exit__, None, None, None)
        return broker

    def client(self, broker: BrokerProcess) -> FlexiClient:
        """Return a client over TCP that has joined."""
        client = FlexiClient(Stream(broker.address)).join()
        self.addCleanup(client.close)
        return client

    def joined(self, broker: BrokerProcess, n: int = 1) -> list[int]:
        """Return the ids of the first n children that have joined, as soon as they have."""
        found: list[str] = []

        def look() -> bool:
            found[:] = re.findall(r"fleximq-(\d+) joined as spawn:\S+ from python", broker._printed)
            return len(found) >= n

        broker.waitFor(look, f"{n} children to join")
        return [int(each) for each in found]

    def test_childHoldsREQREPConversationWithTCPClient(self) -> None:
        """A child holds a REQ/REP conversation with a TCP client."""
        broker = self.running(PROGRAM)
        (id,) = self.joined(broker)
        client = self.client(broker)
        for number in range(1, 4):
            client.request(id, "/double", f"r{number}", number)
            heard = client.hear()
            self.assertEqual((heard.kind, heard.sender, heard.value), ("REP", id, 2 * number))

    def test_childKnowsItsIdAndInheritsVariables(self) -> None:
        """It knows its id beforehand, inherits variables, but not what systemd has told the broker."""
        told = {"NOTIFY_SOCKET": "/n", "LISTEN_FDNAMES": "x", "CREDENTIALS_DIRECTORY": "/c", "OWN": "value"}
        broker = self.running(PROGRAM, environment=told)
        (id,) = self.joined(broker)
        client = self.client(broker)
        client.request(id, "/environment", "r1")
        variables = client.hear().value
        self.assertEqual((variables["FLEXIMQ_CLIENT_ID"], variables["OWN"]), (str(id), "value"))
        self.assertEqual(set(variables) & (set(told) - {"OWN"}), set())

    def test_standardError(self) -> None:
        """What it writes to standard error is beside the broker's log."""
        self.running(PROGRAM).waitForOutput("(?m)^child has joined")

    def test_eachChildHasItsOwnId(self) -> None:
        """Each has an id of its own; both can be the same program."""
        self.assertEqual(len(set(self.joined(self.running(PROGRAM, PROGRAM), 2))), 2)

    def test_oneThatEndsIsStartedAgainAndGetsAnotherId(self) -> None:
        """One that ends is started again, and gets another id; requests that it had open get 502."""
        broker = self.running(PROGRAM)
        (id,) = self.joined(broker)
        client = self.client(broker)
        client.request(id, "/leave", "r1")
        self.assertEqual(client.hear().status, 502)
        broker.waitForOutput("exit code 3; starting it again in 1 s")
        self.assertNotEqual(self.joined(broker, 2)[1], id)

    def test_oneThatWritesGarbageIsToldEndedAndStartedAgain(self) -> None:
        """One that writes garbage is told, ended and started again."""
        broker = self.running(PROGRAM)
        (id,) = self.joined(broker)
        self.client(broker).request(id, "/garbage", "r1")
        broker.waitForOutput(rf"fleximq-{id} \(spawn:python\) left: error 413")
        broker.waitForOutput("starting it again")
        self.joined(broker, 2)

    def test_programThatIsNotThereIsToldAndTriedAgain(self) -> None:
        """A program that is not there is told and tried again; the broker serves its other clients."""
        broker = self.running("no-such-program --x")
        broker.waitForOutput("no-such-program: there is no such program; starting it again in 1 s")
        self.assertEqual(self.client(broker).barrier(), [])
        self.assertNotIn("Traceback", broker.output)

    def test_childEndsWithBrokerByItselfWhenItsInputDoes(self) -> None:
        """A child ends with the broker, by itself when its input does."""
        broker = self.running(PROGRAM)
        self.joined(broker)
        pid = int(broker.waitForOutput(r"Started python\S* as client \d+, process (\d+)")[1])
        os.kill(pid, 0)
        self.assertTrue(broker.stop())
        self.assertRaises(ProcessLookupError, os.kill, pid, 0)
        self.assertIn("child has ended", broker.output)
        self.assertIn("has gone: ended", broker.output)

    def test_childEndsWhenBrokerIsKilled(self) -> None:
        """It ends too when the broker is killed, since its input does."""
        broker = self.running(PROGRAM)
        self.joined(broker)
        pid = int(broker.waitForOutput(r"Started python\S* as client \d+, process (\d+)")[1])
        broker.stop(9)
        deadline = time.monotonic() + PATIENCE
        with contextlib.suppress(ProcessLookupError):
            while time.monotonic() < deadline:
                os.kill(pid, 0)
                time.sleep(0.01)
            self.fail("the child runs on")
