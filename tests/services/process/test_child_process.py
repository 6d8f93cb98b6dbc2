"""One run of a spawned program, on a process that is only noted."""

from typing import Any

from twisted.internet.error import ProcessDone, ProcessExitedAlready
from twisted.internet.interfaces import IConsumer, IHalfCloseableProtocol, IPushProducer, ITransport
from twisted.internet.protocol import Protocol, connectionDone
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer
from zope.interface.verify import verifyObject

from fleximq.services.process.child_service import GRACE, LAST_GRACE, Child

DONE = Failure(ProcessDone(0))


class Process:
    """Notes what is done to it, in order."""

    def __init__(self) -> None:
        self.done: list[Any] = []
        self.pid: int | None = 77

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: self.done.append((name, *arguments))

    def signalProcess(self, name: str) -> None:
        """Note a signal, while there is somebody to get it."""
        if self.pid is None:
            raise ProcessExitedAlready
        self.done.append(name)


@implementer(IHalfCloseableProtocol)
class Spoken(Protocol):
    """Notes what it is told."""

    def __init__(self) -> None:
        self.told: list[object] = []

    def dataReceived(self, data: bytes) -> None:
        self.told.append(data)

    def readConnectionLost(self) -> None:
        self.told.append("no more to read")

    def writeConnectionLost(self) -> None:
        self.told.append("no more to write")

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.told.append("lost")


class ChildTests(SynchronousTestCase):
    """How the ends of a process and of a conversation lead to each other."""

    def setUp(self) -> None:
        """A process that runs."""
        self.clock: Any = Clock()
        self.ended: list[Failure] = []
        self.protocol = Spoken()
        self.process = Process()
        self.child = Child(self.clock, "worker", self.protocol, self.ended.append)
        self.child.makeConnection(self.process)

    def test_interfaces(self) -> None:
        """It is the protocol's transport."""
        for interface in (ITransport, IConsumer, IPushProducer):
            verifyObject(interface, self.child)
        self.assertIs(self.protocol.transport, self.child)
        self.assertEqual(str(self.child.getPeer()), "worker, process 77")
        self.assertEqual(self.child.getHost(), self.child.getPeer())

    def test_bytes(self) -> None:
        """Bytes go both ways, and reading can be paused."""
        self.child.outReceived(b"in")
        self.child.write(b"out")
        self.child.writeSequence([b"o", b"ut"])
        self.child.pauseProducing()
        self.child.resumeProducing()
        self.assertEqual(self.protocol.told, [b"in"])
        self.assertEqual(
            self.process.done, [("write", b"out"), ("write", b"out"), ("pauseProducing",), ("resumeProducing",)]
        )

    def test_producer(self) -> None:
        """A producer is told of the child's pace."""
        self.child.registerProducer(self, True)
        self.child.unregisterProducer()
        self.assertEqual(self.process.done, [("registerProducer", self, True), ("unregisterProducer",)])

    def test_goes(self) -> None:
        """A child that goes when its input is closed gets no signal."""
        self.child.loseConnection()
        self.child.inConnectionLost()
        self.assertEqual((self.process.done, self.protocol.told), ([("closeStdin",)], ["lost"]))
        self.child.outConnectionLost()
        self.child.processExited(DONE)
        self.child.processEnded(DONE)
        self.assertEqual((self.ended, self.protocol.told), ([DONE], ["lost"]))
        self.clock.advance(100)
        self.assertEqual(self.process.done, [("closeStdin",)])

    def test_stays(self) -> None:
        """One that does not gets SIGTERM, then SIGKILL."""
        self.child.loseConnection()
        self.child.loseConnection()
        self.clock.advance(GRACE - 0.1)
        self.assertEqual(self.process.done, [("closeStdin",)])
        self.clock.advance(0.2)
        self.assertEqual(self.process.done, [("closeStdin",), "TERM"])
        self.clock.advance(LAST_GRACE)
        self.assertEqual(self.process.done, [("closeStdin",), "TERM", "KILL"])

    def test_closesItsOutput(self) -> None:
        """One that closes its output is given time for its answers, then ended."""
        self.child.outConnectionLost()
        self.assertEqual((self.protocol.told, self.process.done), (["no more to read"], []))
        self.clock.advance(GRACE)
        self.assertEqual(self.process.done, [("closeStdin",), "TERM"])

    def test_closesItsInput(self) -> None:
        """One that closes its input is told nothing more."""
        self.child.inConnectionLost()
        self.assertEqual(self.protocol.told, ["no more to write"])

    def test_abort(self) -> None:
        """Aborting kills."""
        self.child.abortConnection()
        self.assertEqual((self.process.done, self.protocol.told), (["KILL"], ["lost"]))
        self.child.outReceived(b"late")
        self.assertEqual(self.protocol.told, ["lost"])

    def test_heirs(self) -> None:
        """Others who hold the streams of a process that has gone are not waited for."""
        self.child.processExited(DONE)
        self.clock.advance(GRACE)
        self.assertEqual(self.process.done, [("loseConnection",)])

    def test_signalTooLate(self) -> None:
        """A signal for a process that has just gone is no error."""
        self.child.loseConnection()
        self.process.pid = None
        self.clock.advance(GRACE)
        self.assertEqual(self.process.done, [("closeStdin",)])
