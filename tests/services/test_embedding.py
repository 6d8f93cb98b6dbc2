"""A broker in a foreign Twisted application: real ports on loopback, on the reactor that runs the tests."""

import gc
import logging
import signal
import socket
import threading
from typing import Any

from twisted.application.service import MultiService
from twisted.internet import reactor
from twisted.internet.endpoints import serverFromString
from twisted.trial.unittest import SynchronousTestCase, TestCase

from fleximq.api import EVERYTHING, Conflict, SettingError, makeService
from fleximq.client.twisted import connect

LOOPBACK = "tcp:0:interface=127.0.0.1"


def ofProcess() -> tuple[Any, ...]:
    """Return what an embedded broker must not change."""
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR2)]
    return handlers, gc.isenabled(), gc.get_threshold(), logging.root.handlers[:], reactor.seconds


class EmbeddingTests(TestCase):
    """One service, or two, and their clients."""

    timeout = 120

    def service(self, **options: Any) -> Any:
        """Return a service that runs, on a free port."""
        made = makeService(reactor, **{"listen": [LOOPBACK], "drain_timeout": 0, **options})
        made.startService()
        self.addCleanup(made.stopService)
        return made

    async def networkClient(self, service: Any, number: int = 0) -> Any:
        """Return a client at a port of the service."""
        client = await connect(reactor, f"tcp://127.0.0.1:{service.addresses[number].port}")
        self.addCleanup(client.hang_up)
        return client

    async def test_clientsInsideAndOutsideMeet(self) -> None:
        service = self.service()
        inside, outside = service.connect(EVERYTHING, name="calc"), await self.networkClient(service)
        inside.serve("/add", lambda request: sum(request.value))
        self.assertEqual(await outside.request("calc", "/add", [1, 2]), 3)
        reader = await outside.subscribe("news")
        await inside.publish("news", {"rain": True})
        self.assertEqual((await reader.next()).value, {"rain": True})
        own = await inside.subscribe("back.#")
        await outside.publish("back.1", "hello")
        self.assertEqual((await own.next()).value, "hello")

    async def test_withoutAListenerClientsOfTheProcessMeet(self) -> None:
        service = self.service(listen=[])
        self.assertEqual(service.addresses, [])
        reader = await service.connect(EVERYTHING).subscribe("news")
        await service.connect(EVERYTHING).publish("news", 1)
        self.assertEqual((await reader.next()).value, 1)

    async def test_aDurablePublicationIsOnDiskAndOutlivesTheService(self) -> None:
        folder = self.mktemp()
        options: dict[str, Any] = {"journal": folder, "durable": ["kept"]}
        first = self.service(**options)
        await first.connect(EVERYTHING).publish("kept", 1)
        await first.stopService()
        second = self.service(**options)
        reader = await second.connect(EVERYTHING).subscribe("kept", "first")
        self.assertEqual((await reader.next()).value, 1)

    async def test_afterTheStopNothingRuns(self) -> None:
        before = set(threading.enumerate())
        service = self.service(journal=self.mktemp(), request_timeout=5)
        self.assertGreater(set(threading.enumerate()), before)
        port = service.addresses[0].port
        reader = await service.connect(EVERYTHING).subscribe("t")
        with socket.create_connection(("127.0.0.1", port)) as peer:
            peer.sendall(b"PRODUCE:1:::t:::x\n")
            self.assertEqual((await reader.next()).value, "x")
            await service.stopService()
            peer.settimeout(60)
            self.assertEqual(peer.recv(100), b"1\n")
        self.assertIsNone(await reader.next())
        self.assertEqual((service.addresses, set(threading.enumerate()) - before), ([], set()))
        self.assertRaises(OSError, socket.create_connection, ("127.0.0.1", port))
        self.assertRaises(Conflict, service.connect, EVERYTHING)

    async def test_theProcessIsNotChanged(self) -> None:
        before = ofProcess()
        service = self.service(journal=self.mktemp())
        self.assertEqual(ofProcess(), before)
        await service.stopService()
        self.assertEqual(ofProcess(), before)

    async def test_twoRunInOneProcess(self) -> None:
        first, second = self.service(), self.service()
        readers = [await each.connect(EVERYTHING).subscribe("t") for each in (first, second)]
        await (await self.networkClient(second)).publish("t", 2)
        await first.connect(EVERYTHING).publish("t", 1)
        self.assertEqual([(await each.next()).value for each in readers], [1, 2])
        await first.stopService()
        await second.connect(EVERYTHING).publish("t", 3)
        self.assertEqual((await readers[1].next()).value, 3)

    async def test_aPartOfAnApplicationStartsAndStopsWithIt(self) -> None:
        application = MultiService()
        service = makeService(reactor, listen=[LOOPBACK])
        service.setServiceParent(application)
        application.privilegedStartService()
        self.assertEqual(len(service.addresses), 1)
        application.startService()
        await service.connect(EVERYTHING).publish("t", 1)
        await application.stopService()
        self.assertEqual(service.addresses, [])

    async def test_itMayBeStartedAgain(self) -> None:
        service = self.service()
        for _ in range(2):
            await service.stopService()
            service.startService()
            await (await self.networkClient(service)).ping()

    async def test_aSecondStartIsAnErrorAndChangesNothing(self) -> None:
        service = self.service()
        before = service.addresses
        self.assertRaises(Conflict, service.startService)
        self.assertRaises(Conflict, service.privilegedStartService)
        self.assertEqual((service.addresses, service.running), (before, 1))
        await (await self.networkClient(service)).ping()

    async def test_eachStopFiresAfterTheOneEnd(self) -> None:
        """A second one does not take the clock from the connections that the first one still ends."""
        others = threading.enumerate()
        service = self.service(drain_timeout=1, journal=self.mktemp())
        client = await self.networkClient(service)
        threads = [each for each in threading.enumerate() if "journal" in each.name and each not in others]
        stops = [service.stopService(), service.stopService()]
        self.assertFalse(any(each.called for each in stops))
        self.assertRaises(Conflict, service.startService)
        self.assertRaises(Conflict, service.privilegedStartService)
        for each in reversed(stops):
            await each
        self.assertEqual((len(threads), [each for each in threads if each.is_alive()]), (2, []))
        client.hang_up()
        service.startService()
        await service.connect(EVERYTHING).publish("t", 1)

    async def test_noCallOfAClientOutlivesTheService(self) -> None:
        """Not that of a publication that waits for the client's rate, which has arrived."""
        service = self.service(max_message_rate="1,1", over_rate="pause")
        client = service.connect(EVERYTHING)
        publishing = [client.publish("t", n) for n in range(9)]
        await service.stopService()
        self.assertEqual([await each for each in publishing], [None] * 9)

    async def test_aPortInUseFailsTheStartAndLeavesNothing(self) -> None:
        first = self.service()
        port = first.addresses[0].port
        threads = threading.active_count()
        second = makeService(reactor, listen=[LOOPBACK, f"tcp:{port}:interface=127.0.0.1"], journal=self.mktemp())
        error = self.assertRaises(SettingError, second.startService)
        self.assertIn(f"cannot listen on tcp:{port}", str(error))
        self.assertIn("address already in use", str(error))
        await second.stopService()
        self.assertEqual((second.addresses, threading.active_count(), second.running), ([], threads, 0))

    async def test_aJournalThatCannotBeOpenedFailsTheStart(self) -> None:
        folder = self.mktemp()
        open(folder, "w").close()
        service = makeService(reactor, listen=[LOOPBACK], journal=folder)
        self.assertRaises(SettingError, service.startService)
        await service.stopService()

    async def test_factoriesServeAnyEndpoint(self) -> None:
        """Each dialect on a port that the application opens; all of them on one; none of them is local or anonymous."""
        service = self.service()
        reader = await service.connect(EVERYTHING).subscribe("t")
        for dialect, sent in (("minimq", b"PRODUCE:1:::t:::x\n"), ("", b"PRODUCE:1:::t:::x\n")):
            port = await serverFromString(reactor, LOOPBACK).listen(service.factory(dialect))
            self.addCleanup(port.stopListening)
            with socket.create_connection(("127.0.0.1", port.getHost().port)) as peer:
                peer.sendall(sent)
                self.assertEqual((await reader.next()).value, "x")
        self.assertRaises(SettingError, service.factory, "smtp")

    async def test_clientsOfEachDialectConnectToItsFactory(self) -> None:
        from fleximq.client.blipmq.twisted import connect as connectBlip
        from fleximq.client.minimq.twisted import connect as connectMini

        service = self.service()
        for dialect, kind, scheme in (
            ("fleximq", connect, "tcp"),
            ("fleximq", connect, "ws"),
            ("blipmq", connectBlip, "tcp"),
            ("minimq", connectMini, "tcp"),
        ):
            port = await serverFromString(reactor, LOOPBACK).listen(service.factory(dialect))
            path = "/ws" if scheme == "ws" else ""
            client: Any = await kind(reactor, f"{scheme}://127.0.0.1:{port.getHost().port}{path}")
            await client.ping()
            client.hang_up()
            await port.stopListening()


class OptionsTests(SynchronousTestCase):
    """What the maker refuses."""

    def test_wrongOptionsAreOneSentence(self) -> None:
        for options, words in (
            ({"listn": ["tcp:0"]}, "listn"),
            ({"listen": [""]}, "listen is empty"),
            ({"listen": ["stdio"]}, "standard input and output belong to the application"),
            ({"max_clients": -1}, "max-clients is -1"),
            ({"durable": ["a"]}, "durable is set, but nothing is kept without a journal"),
            ({"extension": "none_such"}, "none_such"),
            ({"cluster": ["nats://127.0.0.1"], "node": "a", "journal": "x"}, "a process of its own"),
        ):
            self.assertIn(words, str(self.assertRaises(SettingError, makeService, reactor, **options)))
