"""The broker process that other tests rely on starts, says where it listens, and ends."""

import os
import socket

from twisted.trial.unittest import SynchronousTestCase

from tests.broker_process import BrokerFailed, BrokerProcess, runToTheEnd


class BrokerProcessTests(SynchronousTestCase):
    """A broker's life, seen from outside."""

    def test_takesConnections(self) -> None:
        """Inside the context every listener is open, on a port that can be connected to."""
        with BrokerProcess() as broker, socket.create_connection(broker.address, timeout=300) as stream:
            self.assertEqual(stream.getpeername(), ("127.0.0.1", broker.port()))

    def test_listenersInOrder(self) -> None:
        """Listeners and ports are told in the order of the arguments; a UNIX socket has no port."""
        either = ("--listen", "tcp:0:interface=127.0.0.1")
        with BrokerProcess(*either, "--listen", "unix:own.sock", *either) as broker:
            self.assertEqual([each.split(":")[0] for each in broker.listeners], ["tcp", "unix", "tcp"])
            self.assertEqual(broker.listeners[2], f"tcp:127.0.0.1:{broker.port(1)}")
            self.assertTrue((broker.folder / "own.sock").exists())

    def test_leavesNothing(self) -> None:
        """Behind the context the process is gone, which has stopped in good order, and so is its folder."""
        with BrokerProcess() as broker:
            os.kill(broker.pid, 0)
        self.assertRaises(ProcessLookupError, os.kill, broker.pid, 0)
        self.assertEqual(broker.wait(), 0)
        self.assertFalse(broker.folder.exists())

    def test_failsToStart(self) -> None:
        """A broker that ends before it listens is a failure that tells what it printed."""
        with self.assertRaises(BrokerFailed) as caught, BrokerProcess("--keepalive", "soon"):
            self.fail("entered")
        self.assertIn("keepalive is 'soon'", str(caught.exception))

    def test_runToTheEnd(self) -> None:
        """The exit code and the words of a broker that ends by itself are returned."""
        code, output = runToTheEnd("--keepalive", "soon")
        self.assertEqual(code, 1)
        self.assertIn("keepalive is 'soon'", output)

    def test_waitForOutput(self) -> None:
        """Output that is there is found at once; what does not come is a failure in the time given."""
        with BrokerProcess() as broker:
            self.assertEqual(broker.waitForOutput(r"Listening on tcp:(\S+):")[1], "127.0.0.1")
            self.assertRaises(BrokerFailed, broker.waitForOutput, "no such line", 0.01)

    def test_waitRunsOut(self) -> None:
        """Waiting for the end of a broker that runs on is a failure in the time given."""
        with BrokerProcess() as broker:
            self.assertRaises(BrokerFailed, broker.wait, 0.01)

    def test_fresh(self) -> None:
        """One whose interpreter is new does the same."""
        with BrokerProcess(fresh=True) as broker, socket.create_connection(broker.address, timeout=300):
            os.kill(broker.pid, 0)
        self.assertRaises(ProcessLookupError, os.kill, broker.pid, 0)
        self.assertEqual(broker.wait(), 0)
