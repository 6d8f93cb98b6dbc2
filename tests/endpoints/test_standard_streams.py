"""One client on two pipes, as it is on standard input and output."""

import os
from typing import Any

from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IHalfCloseableProtocol, IStreamServerEndpoint
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.internet.stdio import PipeAddress
from twisted.internet.task import Clock
from twisted.internet.threads import deferToThread
from twisted.python.failure import Failure
from twisted.trial.unittest import TestCase
from zope.interface import directlyProvides
from zope.interface.verify import verifyObject

from fleximq.endpoints.standard_streams import CLOSE_TIMEOUT, StandardStreams, StandardStreamsEndpoint

#: More than any pipe holds.
MUCH = b"x" * (1 << 22)


class Echo(Protocol):
    """Says what it hears, and tells what it heard."""

    def __init__(self) -> None:
        self.heard: Deferred[bytes] = Deferred()
        self.lost: list[Failure] = []

    def dataReceived(self, data: bytes) -> None:
        self.transport.write(data)  # type: ignore[union-attr]
        self.heard.callback(data)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.lost.append(reason)


class StandardStreamsTests(TestCase):
    """The connection's life."""

    def setUp(self) -> None:
        """Two pipes; ``stdin`` is where the peer writes, ``stdout`` where it reads."""
        ours, self.stdin = os.pipe()
        self.stdout, own = os.pipe()
        self.descriptors = (ours, own)
        self.factory = Factory.forProtocol(Echo)
        self.factory.noisy = False
        self.open = {*self.descriptors, self.stdin, self.stdout}
        self.addCleanup(self.closeAll)

    def closeAll(self) -> None:
        """Close what is still open."""
        for each in self.open:
            os.close(each)

    def close(self, descriptor: int) -> None:
        """Close one end of a pipe."""
        self.open.remove(descriptor)
        os.close(descriptor)

    async def connect(self) -> StandardStreams:
        """Return the connection."""
        streams: StandardStreams = await StandardStreamsEndpoint(reactor, self.descriptors).listen(self.factory)
        return streams

    def protocolOf(self, streams: Any) -> Echo:
        """Return the protocol of a connection, for which Twisted declares no attribute."""
        protocol: Echo = streams.protocol
        return protocol

    def test_standardStreamsAreServerEndpoint(self) -> None:
        """It is an endpoint for servers; making one does nothing."""
        verifyObject(IStreamServerEndpoint, StandardStreamsEndpoint(None))

    async def test_whatIsWrittenToOneIsReadFromOther(self) -> None:
        """What is written to the one is read from the other; the end of input ends it."""
        streams = await self.connect()
        self.assertIsInstance(streams.getPeer(), PipeAddress)
        self.assertEqual(str(streams.getPeer()), "standard input")
        os.write(self.stdin, b"hello")
        self.assertEqual(await self.protocolOf(streams).heard, b"hello")
        self.assertEqual(await deferToThread(os.read, self.stdout, 100), b"hello")
        self.close(self.stdin)
        await streams.ended

    async def test_factoryIsStartedAndStoppedWithIt(self) -> None:
        """The factory is started and stopped with it."""
        streams = await self.connect()
        self.assertEqual(self.factory.numPorts, 1)
        streams.abortConnection()
        self.assertEqual(self.factory.numPorts, 0)

    async def test_finishingSendsWhatWaits(self) -> None:
        """Finishing sends what waits."""
        streams = await self.connect()
        clock: Any = Clock()
        streams.write(b"last")
        await streams.finish(clock)
        self.assertEqual(os.read(self.stdout, 100), b"last")
        self.assertEqual(clock.getDelayedCalls(), [])

    async def test_finishLate(self) -> None:
        """A peer that does not read holds nobody up for long."""
        streams = await self.connect()
        clock: Any = Clock()
        streams.write(MUCH)
        ended = streams.finish(clock)
        clock.advance(CLOSE_TIMEOUT - 0.1)
        self.assertNoResult(ended)
        clock.advance(0.2)
        await ended

    async def test_peerReadsNoMore(self) -> None:
        """When the peer has closed what it reads from, closing takes no time, though it may still write."""
        streams = await self.connect()
        gone: Deferred[None] = Deferred()
        half: Any = self.protocolOf(streams)
        half.readConnectionLost = lambda: None
        half.writeConnectionLost = lambda: gone.callback(None)
        directlyProvides(half, IHalfCloseableProtocol)
        self.close(self.stdout)
        await gone
        streams.loseConnection()
        self.successResultOf(streams.ended)

    async def test_abortingDropsWhatWaitsAndTellsProtocolOnce(self) -> None:
        """Aborting drops what waits, and tells the protocol once."""
        streams = await self.connect()
        protocol = self.protocolOf(streams)
        streams.write(MUCH)
        streams.abortConnection()
        streams.abortConnection()
        self.assertEqual(len(protocol.lost), 1)
        self.successResultOf(streams.ended)
        self.successResultOf(streams.finish(Clock()))

    async def test_badDescriptor(self) -> None:
        """A stream that is closed already is a failure."""
        for each in self.descriptors:
            self.close(each)
        failure = self.failureResultOf(StandardStreamsEndpoint(reactor, self.descriptors).listen(self.factory))
        failure.trap(OSError)
