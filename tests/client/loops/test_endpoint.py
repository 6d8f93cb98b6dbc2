"""Clients on connections of Twisted's endpoints, factories and services: against a script, then against a broker."""

from pathlib import Path
from typing import Any

from twisted.application.internet import ClientService
from twisted.internet import reactor as globalReactor
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import (
    HostnameEndpoint,
    UNIXClientEndpoint,
    clientFromString,
    connectProtocol,
    wrapClientTLS,
)
from twisted.internet.ssl import Certificate, optionsForClientTLS, trustRootFromCertificates
from twisted.internet.task import Clock, deferLater
from twisted.internet.testing import StringTransport
from twisted.trial.unittest import SynchronousTestCase, TestCase

from fleximq.client.blipmq.twisted import BlipClientFactory, BlipClientProtocol
from fleximq.client.errors import ConnectionLost, JoinRefused, Untrusted
from fleximq.client.minimq.twisted import MiniClientFactory, MiniClientProtocol
from fleximq.client.minimq.twisted import connect as connectMini
from fleximq.client.settings import State, Tls, Watcher
from fleximq.client.twisted import Client, ClientFactory, ClientProtocol, connect
from fleximq.errors import SettingError
from tests.broker_process import BrokerProcess
from tests.certificates import makeCertificate
from tests.client.bad_network import BadNetwork
from tests.client.cases import Place
from tests.wire.flexi_frames import Heard, cut, frame

PLACE = Place()
reactor: Any = globalReactor


class Transport(StringTransport):
    """A transport that knows whether it was aborted."""

    isAborted = False

    def abortConnection(self) -> None:
        self.isAborted = True


class Peer:
    """The broker's side of a protocol."""

    def __init__(self, clock: Clock, protocol: Any) -> None:
        self._clock = clock
        self.protocol = protocol
        self.transport = Transport()
        protocol.makeConnection(self.transport)

    def say(self, *frames: bytes) -> None:
        """Let the broker send frames."""
        self.protocol.dataReceived(b"".join(frames))
        self._clock.advance(0)

    def heard(self) -> list[Heard]:
        """Return the frames sent since the last call."""
        self._clock.advance(0)
        data = self.transport.value()
        self.transport.clear()
        return cut(data)

    def letIn(self) -> None:
        """Admit the client."""
        self.say(frame("REP", 1000, {"status": 200}))
        self.heard()

    def passBarriers(self) -> list[Heard]:
        """Answer PINGs until there are none, and return all frames."""
        heard: list[Heard] = []
        while new := self.heard():
            heard += new
            pings = (each.header["keepalive"]["timestamp"] for each in new if each.kind == "PING")
            self.say(*(frame("PONG", 1, {"keepalive": {"timestamp": each}}) for each in pings))
        return heard

    def refuse(self, status: int) -> None:
        """Refuse the client."""
        self.say(frame("REP", 1, {"status": status}))


class ProtocolTests(SynchronousTestCase):
    """One connection."""

    def setUp(self) -> None:
        """Connect."""
        self.clock = Clock()
        self.states: list[State] = []
        protocol = ClientProtocol(self.clock, name="me", on_state=lambda state, why: self.states.append(state))
        self.client = protocol.client
        self.addCleanup(self.client.hang_up)
        self.peer = Peer(self.clock, protocol)

    def test_joinsWhenConnected(self) -> None:
        """The JOIN is sent with the connection; ``joined`` fires with the client when it is answered."""
        early = self.peer.protocol.joined()
        self.assertEqual([(each.kind, each.header) for each in self.peer.heard()], [("JOIN", {"client_name": "me"})])
        self.peer.letIn()
        for each in (early, self.peer.protocol.joined()):
            self.assertIs(self.successResultOf(each), self.client)
        self.assertEqual((self.client.id, self.client.url), (1000, "an endpoint"))

    def test_refusalIsAnErrorAndEndsTheConnection(self) -> None:
        """``joined`` fails with the broker's answer, also if it is asked for later."""
        self.peer.refuse(503)
        for _ in range(2):
            self.assertEqual(self.failureResultOf(self.peer.protocol.joined(), JoinRefused).value.status, 503)
        self.assertTrue(self.peer.transport.isAborted)

    def test_clientEndsWithItsConnection(self) -> None:
        """Nothing would connect it again."""
        self.peer.letIn()
        self.peer.protocol.connectionLost()
        self.assertEqual(self.states, [State.JOINED, State.CLOSED])

    def test_unansweredJoinIsGivenUp(self) -> None:
        """After ``timeout`` seconds."""
        joined = self.peer.protocol.joined()
        self.clock.advance(30)
        self.clock.advance(0)
        self.assertIn("did not answer within 30 seconds", str(self.failureResultOf(joined, ConnectionLost).value))


class FactoryTests(SynchronousTestCase):
    """Several connections, one after the other."""

    def setUp(self) -> None:
        """Make one."""
        self.clock = Clock()
        self.factory = ClientFactory(self.clock)
        self.client = self.factory.client
        self.addCleanup(self.client.hang_up)

    def connected(self) -> Peer:
        """Return the broker's side of the next connection."""
        return Peer(self.clock, self.factory.buildProtocol(None))

    def test_publicationsWaitForAConnection(self) -> None:
        """They are sent behind the JOIN."""
        self.client.publish("a", 1)
        peer = self.connected()
        self.assertEqual([each.kind for each in peer.heard()], ["JOIN"])
        peer.say(frame("REP", 1000, {"status": 200}))
        self.assertEqual([each.kind for each in peer.heard()], ["PING", "PUB"])

    def test_subscriptionsAreRestored(self) -> None:
        """The next connection subscribes again, and no timer of the client does it without one."""
        first = self.connected()
        first.letIn()
        subscribing = self.client.subscribe("a")
        first.passBarriers()
        self.successResultOf(subscribing)
        first.protocol.connectionLost()
        self.clock.advance(100)
        self.assertEqual(self.client.state, State.AWAY)
        second = self.connected()
        second.say(frame("REP", 1001, {"status": 200}))
        self.assertEqual([each.header for each in second.passBarriers() if each.kind == "SUB"], [{"topic": "a"}])
        self.assertEqual(self.client.state, State.JOINED)

    def test_refusalForNowLeavesTheClient(self) -> None:
        """The next connection may be admitted."""
        self.connected().refuse(503)
        second = self.connected()
        second.letIn()
        self.assertIs(self.successResultOf(second.protocol.joined()), self.client)

    def test_refusalForGoodEndsTheClient(self) -> None:
        """It connects no more, and its calls fail."""
        self.connected().refuse(401)
        self.assertEqual(self.client.state, State.CLOSED)
        self.assertRaises(ConnectionLost, self.factory.buildProtocol, None)
        self.failureResultOf(self.client.flush(), ConnectionLost)

    def test_secondConnectionAtOnceIsRefused(self) -> None:
        """A client has one connection, and keeps its first one."""
        first = self.connected()
        for letIn in (first.letIn, lambda: None):
            second = self.connected()
            error = self.failureResultOf(second.protocol.joined(), ConnectionLost)
            self.assertIn("needs no connection", str(error.value))
            self.assertTrue(second.transport.isAborted)
            second.protocol.connectionLost()
            letIn()
        self.assertEqual(self.client.state, State.JOINED)

    def test_unknownArgumentIsRefused(self) -> None:
        """So are those of the endpoint and the service."""
        for name in ("tls", "reconnect", "keep_alife"):
            self.assertRaises(TypeError, ClientFactory, self.clock, **{name: None})


class LoopbackTests(TestCase):
    """A real broker."""

    timeout = 120

    async def delivered(self, one: Client, other: Client) -> Any:
        """Return the value that one client gets of another."""
        subscription = await one.subscribe("endpoint")
        await other.publish("endpoint", 7)
        found = await subscription.next(60)
        subscription.close()
        assert found is not None
        return found.value

    def endpoint(self) -> HostnameEndpoint:
        """Return an endpoint of the broker."""
        return HostnameEndpoint(reactor, b"127.0.0.1", PLACE.broker.port())

    def returning(self) -> "tuple[Watcher, Deferred[None]]":
        """Return a function for ``on_state``, and a Deferred that fires when a client has joined again."""
        states: list[State] = []
        isBack: Deferred[None] = Deferred()

        def watch(state: State, why: Exception | None) -> None:
            states.append(state)
            if states == [State.JOINED, State.AWAY, State.JOINED]:
                isBack.callback(None)

        return watch, isBack

    async def served(self, endpoint: Any, factory: Any) -> Any:
        """Return the client of a running service."""
        service = ClientService(endpoint, factory, retryPolicy=lambda attempt: 0.01)
        service.startService()
        self.addCleanup(service.stopService)
        self.addCleanup(factory.client.hang_up)
        protocol: Any = await service.whenConnected(failAfterFailures=1)
        return await protocol.joined()

    async def test_protocolPublishesAndSubscribes(self) -> None:
        """By ``connectProtocol``."""
        protocol = await connectProtocol(self.endpoint(), ClientProtocol(reactor))
        async with await protocol.joined() as client:
            self.assertEqual(await self.delivered(client, client), 7)

    async def test_connectTakesAnEndpoint(self) -> None:
        """In place of the URL; it connects again by itself."""
        with BadNetwork(PLACE.broker.address) as network:
            watch, isBack = self.returning()
            endpoint = clientFromString(reactor, f"tcp:127.0.0.1:{network.port}")
            async with await connect(reactor, endpoint, on_state=watch) as client:
                network.cut()
                await isBack
                self.assertEqual(await self.delivered(client, client), 7)

    async def test_endpointThatFailsIsALostConnection(self) -> None:
        """With the endpoint's reason; settings for TLS are refused, since the endpoint has them."""
        with BadNetwork(PLACE.broker.address) as network:
            port = network.port
        endpoint = HostnameEndpoint(reactor, b"127.0.0.1", port)
        with self.assertRaisesRegex(ConnectionLost, "cannot connect to an endpoint: .*refused"):
            await connect(reactor, endpoint)
        with self.assertRaises(SettingError):
            await connect(reactor, endpoint, tls=Tls())

    async def test_serviceReconnects(self) -> None:
        """After a cut, the service connects, and the client has its subscription again."""
        with BadNetwork(PLACE.broker.address) as network:
            endpoint = HostnameEndpoint(reactor, b"127.0.0.1", network.port)
            watch, isBack = self.returning()
            client = await self.served(endpoint, ClientFactory(reactor, on_state=watch))
            subscription = await client.subscribe("again")
            network.cut()
            await isBack
            async with await connect(reactor, self.endpoint()) as other:
                await other.publish("again", 8)
                self.assertEqual((await subscription.next(60)).value, 8)
            await client.close()

    async def test_serviceOfARefusedClientConnectsNoMore(self) -> None:
        """``joined`` fails with the broker's answer, and further attempts of the service with that of the client."""
        tokens = Path(self.mktemp())
        tokens.write_text("")
        with BrokerProcess("--auth", f"tokens:{tokens.absolute()}") as broker:
            endpoint = HostnameEndpoint(reactor, b"127.0.0.1", broker.port())
            factory = ClientFactory(reactor, credentials={"type": "token", "token": "wrong"})
            service = ClientService(endpoint, factory, retryPolicy=lambda attempt: 0.01)
            service.startService()
            protocol: Any = await service.whenConnected()
            with self.assertRaises(JoinRefused):
                await protocol.joined()
            with self.assertRaisesRegex(ConnectionLost, "will not connect again"):
                await service.whenConnected(failAfterFailures=1)
            await deferLater(reactor, 0)
            await service.stopService()

    async def test_stoppedServiceLeavesTheClientAway(self) -> None:
        """It was not closed: another service may go on with it."""
        factory = ClientFactory(reactor)
        service = ClientService(self.endpoint(), factory)
        service.startService()
        await factory.client.ping()
        await service.stopService()
        self.assertEqual(factory.client.state, State.AWAY)
        client = await self.served(self.endpoint(), factory)
        self.assertEqual(await self.delivered(client, client), 7)

    async def test_tlsEndpoint(self) -> None:
        """The endpoint's TLS; a certificate that it does not trust is told as such."""
        folder = Path(self.mktemp())
        folder.mkdir()
        made = makeCertificate(folder.absolute())
        listen = (
            "--listen",
            "tls://127.0.0.1:0",
            "--tls-certificate",
            str(made.certificate),
            "--tls-key",
            str(made.key),
        )
        with BrokerProcess(*listen) as broker:
            plain = HostnameEndpoint(reactor, b"localhost", broker.port())
            trusted = trustRootFromCertificates([Certificate.loadPEM(made.certificate.read_bytes())])
            options = optionsForClientTLS("localhost", trustRoot=trusted)
            client = await self.served(wrapClientTLS(options, plain), ClientFactory(reactor))
            self.assertEqual(await self.delivered(client, client), 7)
            distrusting = wrapClientTLS(optionsForClientTLS("localhost"), plain)
            protocol = await connectProtocol(distrusting, ClientProtocol(reactor))
            with self.assertRaises(Untrusted):
                await protocol.joined()
            await client.close()

    async def test_unixEndpoint(self) -> None:
        """A socket in the file system."""
        with BrokerProcess("--listen", "unix:socket") as broker:
            endpoint = UNIXClientEndpoint(reactor, str(broker.folder / "socket"))
            client = await self.served(endpoint, ClientFactory(reactor))
            self.assertEqual(await self.delivered(client, client), 7)
            await client.close()

    async def test_blipmq(self) -> None:
        """Factory and protocol of BlipMQ."""
        client = await self.served(self.endpoint(), BlipClientFactory(reactor, key="k"))
        protocol = await connectProtocol(self.endpoint(), BlipClientProtocol(reactor))
        async with await protocol.joined() as other:
            subscription = await client.subscribe("blip")
            await other.publish("blip", "x")
            self.assertEqual((await subscription.next(60)).text, "x")
        await client.close()

    async def test_minimq(self) -> None:
        """Factory, protocol and ``connect`` of MiniMQ."""
        client = await self.served(self.endpoint(), MiniClientFactory(reactor))
        protocol = await connectProtocol(self.endpoint(), MiniClientProtocol(reactor))
        async with await protocol.joined() as other, await connectMini(reactor, self.endpoint()) as third:
            await other.produce("mini", "x", id="1")
            await third.produce("mini", "y", id="2")
            consumer = client.consumer("mini")
            self.assertEqual([(await consumer.next(60)).content for _ in "xy"], ["x", "y"])
        await client.close()
