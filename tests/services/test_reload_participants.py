"""What a reload changes of a broker that runs: each setting of which the documentation says so, seen from outside."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from twisted.internet.address import IPv4Address
from twisted.internet.testing import MemoryReactorClock
from twisted.trial.unittest import SynchronousTestCase

from fleximq.config.settings import Settings
from fleximq.errors import Unauthorized
from fleximq.services.broker_service import BrokerService
from fleximq.services.compose import compose
from fleximq.services.reload import Reload
from fleximq.startup.setting_changes import LIVE, SettingsRefused
from tests.dialects.conversations import HERE, Peer
from tests.dialects.flexi_peer import FlexiPeer
from tests.dialects.websocket_peer import WebSocketPeer
from tests.wire.flexi_variants import POSITIONAL

REMOTE = IPv4Address("TCP", "192.0.2.7", 50000)
#: What the settings are before.
BEFORE: dict[str, Any] = {"listen": ["tcp:1", "minimq+tcp:2"]}


class Running(SynchronousTestCase):
    """A broker in memory whose settings file is a map."""

    def setUp(self) -> None:
        """Start it with the settings of before."""
        self.start(BEFORE)

    def start(self, values: dict[str, Any]) -> None:
        """Start one."""
        self.values = values
        self.reactor: Any = MemoryReactorClock()
        settings = Settings.of(values)
        self.reload = Reload(settings, lambda: Settings.of(self.values))
        self.whole: Any = compose(self.reactor, settings, reload=self.reload)
        self.whole.privilegedStartService()
        self.whole.startService()
        self.addCleanup(self.whole.stopService)
        self.factories: list[Any] = [server[1] for server in self.reactor.tcpServers]

    def change(self, **values: Any) -> None:
        """Reload with other settings; a dash in a name is spelt as an underscore."""
        self.values = {**self.values, **{name.replace("_", "-"): value for name, value in values.items()}}
        self.reload.reload()

    def file(self, content: str) -> str:
        """Return the path of a new file."""
        path: str = self.mktemp()
        with open(path, "w") as file:
            file.write(content)
        return path

    def flexi(self, address: Any = HERE, **more: Any) -> FlexiPeer:
        """Return somebody who has connected to speak FlexiMQ."""
        peer = FlexiPeer(self.factories[0], address)
        peer.variant = more.get("variant", peer.variant)
        return peer

    def tried(self, address: Any = HERE, **more: Any) -> int | None:
        """Return the status of the answer to a JOIN, None without any."""
        peer = self.flexi(address, **more)
        peer.joinWith(None)
        heard = peer.messages()
        return (heard[0].status or 200) if heard else None

    def mini(self, address: Any = HERE) -> Peer:
        """Return somebody who speaks MiniMQ."""
        return Peer(self.factories[1], address)

    def turn(self) -> None:
        """Let the reactor do what is due."""
        self.reactor.advance(0)

    # -- what is looked at -------------------------------------------------------------------------

    def pinged(self) -> bool:
        """Tell whether a client that is silent for 6 seconds is sent a PING."""
        peer = self.flexi().join()
        self.reactor.advance(6)
        return [each.kind for each in peer.messages()] == ["PING"]

    def timedOut(self) -> list[int | None]:
        """Return what a request hears within 2 seconds."""
        asking, asked = self.flexi().join(), self.flexi().join()
        asking.request(asked.id, "/x", "1")
        self.reactor.pump([1, 1])
        return [each.status for each in asking.messages()]

    def statuses(self, act: Callable[[FlexiPeer], object], times: int = 1) -> list[int | None]:
        """Return the statuses of what a client hears when it does something."""
        peer = self.flexi().join()
        for _ in range(times):
            act(peer)
        self.turn()
        return [each.status for each in peer.messages()]

    def asks(self, times: int) -> list[int | None]:
        """Return what a client hears that has so many requests open."""
        silent = self.flexi().join()
        numbers = iter(range(times))
        return self.statuses(lambda peer: peer.request(silent.id, "/x", f"{next(numbers)}"), times)

    def subscribes(self, number: int) -> list[int | None]:
        """Return what a client hears that subscribes so often."""
        names = iter(f"t{n}" for n in range(number))
        return self.statuses(lambda peer: peer.subscribe(next(names)), number)

    def consumed(self) -> bytes:
        """Return the answer to two CONSUMEs of topics that have no queue yet."""
        peer = self.mini()
        names = (f"q{len(self.whole.namedServices)}{next(self.numbers)}" for _ in range(2))
        return b"".join(peer.ask(f"CONSUME:{name}\n".encode()) for name in names)

    numbers = iter(range(1 << 30))

    def begun(self) -> bool:
        """Tell whether somebody is closed who sends half of a long line before joining."""
        return self.mini().say(bytes(3000)).closed

    def outbox(self) -> Any:
        """Return what waits for a new client."""
        peer = self.mini()
        peer.ask(b"PING:\n")
        return peer.protocol.dataReceived.__self__.outbox  # it has been handed over

    def page(self, origin: str) -> bytes:
        """Return the first line of the answer to a page that opens a WebSocket."""
        lines = "GET /ws HTTP/1.1", "Host: localhost", "Upgrade: websocket", "Connection: Upgrade", \
            f"Origin: {origin}", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="  # fmt: skip
        peer = Peer(self.factories[0])
        return peer.ask("\r\n".join((*lines, "", "")).encode()).split(b"\r\n")[0]

    def crowd(self, address: Any) -> list[bool]:
        """Return which of two connections that say nothing are closed at once."""
        return [Peer(self.factories[0], address).transport.disconnected for _ in range(2)]

    def broker(self) -> Any:
        """Return the broker."""
        [service] = [each for each in self.whole if isinstance(each, BrokerService)]
        return service


#: Setting -> its new value, what to look at, and what is seen before and after.
TABLE: dict[str, tuple[Any, Callable[[Running], object], object, object]] = {
    "auth": (lambda case: [f"apikeys:{case.file('')}"], Running.tried, 200, 401),
    "allow-anonymous": (True, lambda case: case.tried(REMOTE), 605, 200),
    "allowed-origin": (
        ["http://a.example"],
        lambda case: case.page("http://a.example")[9:12],
        b"403",
        b"101",
    ),
    "roles": ({"everyone": {}}, lambda case: case.statuses(lambda peer: peer.publish("t", 1)), [], [403]),
    "principals": (
        {"anonymous": {"publish": ["u"]}},
        lambda case: case.statuses(lambda peer: peer.publish("t", 1)),
        [],
        [403],
    ),
    "keepalive": (5, Running.pinged, False, True),
    "request-timeout": (1, Running.timedOut, [], [504]),
    "consume-wait": (5, Running.consumed, b"NO_MSG\nNO_MSG\n", b""),
    "drain-timeout": (3, lambda case: case.broker()._timeout(), 10.0, 3.0),
    "slow-consumer": ("drop", lambda case: type(case.outbox()._policy).__name__, "Disconnect", "Drop"),
    "bcast-echo": (True, lambda case: case.statuses(lambda peer: peer.tell("BCAST", {})), [], [None]),
    "strict-fleximq": (True, lambda case: case.tried(variant=POSITIONAL), 200, 400),
    "history": (7, lambda case: case.broker().broker.rules.history, 0, 7),
    "max-message": (
        1024,
        lambda case: case.statuses(lambda peer: peer.publish("t", "x" * 2000)),
        [],
        [413],
    ),
    "max-line": (1024, lambda case: case.mini().ask(b"PING:" + b"x" * 2000 + b"\n")[:9], b"PONG:\n", b"ERROR:400"),
    "max-clients": (1, lambda case: [case.tried(), case.tried()], [200, 200], [503, 503]),
    "unadmitted-bytes": (1, lambda case: case.begun(), False, True),
    "max-waiting": (1, lambda case: case.crowd(HERE), [False, False], [True, True]),
    "max-clients-per-address": (1, lambda case: case.crowd(REMOTE), [False, False], [True, True]),
    "max-subscriptions": (1, lambda case: case.subscribes(2), [], [603]),
    "max-queues": (2, lambda case: case.consumed()[:9], b"NO_MSG\nNO", b"ERROR:500"),
    "max-requests": (1, lambda case: case.asks(2), [], [429]),
    "max-schedules": (7, lambda case: case.broker().broker.schedules.owners.most, 10_000_000, 7),
    "max-schedules-per-principal": (7, lambda case: case.broker().broker.schedules.owners.mostEach, 1_000_000, 7),
    "max-values": (7, lambda case: case.broker().broker.keyValues.owners.most, 10_000_000, 7),
    "max-values-per-principal": (7, lambda case: case.broker().broker.keyValues.owners.mostEach, 1_000_000, 7),
    "schedules": (
        {"s": {"topic": "t", "every": 1}},
        lambda case: [each.definition.name for each in case.broker().broker.schedules.repeats],
        [],
        ["s"],
    ),
    "queues": (
        {"q": {"sources": ["a"]}},
        lambda case: [each.sources for each in case.broker().broker.queues],
        [],
        [("a", "q")],
    ),
    "outbox-bytes": (64_000, lambda case: case.outbox().limit, 63 << 20, 63_000),
}
#: Settings that are looked at elsewhere: certificates where there are connections with TLS, rates and schemas where
#: they are.
ELSEWHERE = {"tls-certificate", "tls-key", "tls-ciphers", "max-text", "schema"} | {
    name for name in LIVE if name.endswith("-rate") or name in ("max-disconnects", "flapping-wait")
}


class LiveTests(Running):
    """The table of settings that a reload changes."""

    def test_all(self) -> None:
        """It has all of them."""
        self.assertEqual(set(TABLE) | ELSEWHERE, LIVE)

    def test_each(self) -> None:
        """New connections, and new questions of those there are, go by the new value."""
        for name, (value, look, before, after) in TABLE.items():
            self.start(BEFORE)
            self.assertEqual((name, look(self)), (name, before))
            self.change(**{name: value(self) if callable(value) else value})
            self.assertEqual((name, look(self)), (name, after))


class SecurityTests(Running):
    """Clients that are there while credentials and permissions change."""

    def test_stays(self) -> None:
        """Nobody is dropped by a reload that changes nothing for them."""
        peer = self.flexi().join()
        self.change(keepalive=5)
        self.assertEqual((peer.barrier(), peer.closed), ([], False))

    def test_pages(self) -> None:
        """As soon as credentials are checked, pages of files and of this machine are foreign, unless they are named."""
        pages = ("null", "http://localhost:3000", "http://localhost")
        self.assertEqual([self.page(each)[9:12] for each in pages], [b"101"] * 3)
        self.change(auth=[f"apikeys:{self.file('')}"])
        self.assertEqual([self.page(each)[9:12] for each in pages], [b"403", b"403", b"101"])
        self.change(allowed_origin=["null"])
        self.assertEqual([self.page(each)[9:12] for each in pages], [b"101", b"403", b"101"])

    def test_notAnonymous(self) -> None:
        """Who showed nothing is expelled when everybody has to show something."""
        peer = self.flexi().join()
        self.change(auth=[f"apikeys:{self.file('')}"])
        self.turn()
        self.assertEqual(([each.status for each in peer.messages()], peer.closed), ([401], True))

    def test_ownMachineAgain(self) -> None:
        """Who came from elsewhere is expelled when only this machine is served again, and nobody else."""
        self.change(allow_anonymous=True)
        away, here = self.flexi(REMOTE).join(), self.flexi().join()
        self.change(allow_anonymous=False)
        self.turn()
        self.assertEqual(([each.status for each in away.messages()], away.closed), ([401], True))
        self.assertEqual((here.barrier(), here.closed), ([], False))

    def test_delays(self) -> None:
        """A reload does not forget wrong credentials: the next wrong answer waits twice as long."""
        path = self.file("")
        Path(path).chmod(0o600)
        self.change(auth=[f"apikeys:{path}"])
        self.guess(0.1)
        self.change(keepalive=5)
        self.guess(0.2)

    def guess(self, delay: float) -> None:
        """Join with a wrong key, and see that the answer takes so many seconds."""
        peer = self.flexi()
        peer.joinWith({"auth": {"type": "api_key", "api_key": "wrong"}})
        self.reactor.pump([0, delay - 0.01])
        self.assertEqual(peer.messages(), [])
        self.reactor.pump([0.02, 0])
        self.assertEqual([each.status for each in peer.messages()], [401])

    def test_noProxyAnyMore(self) -> None:
        """So is whoever came through a proxy that runs here, in a WebSocket."""
        self.change(allow_anonymous=True)
        peer = WebSocketPeer(self.factories[0])
        peer.say(
            b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Forwarded-For: 192.0.2.7\r\nUpgrade: websocket\r\n"
            b"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
        )
        self.assertEqual(len(list(self.broker().broker.clients)), 1)
        self.change(allow_anonymous=False)
        self.assertEqual(len(list(self.broker().broker.clients)), 0)

    def test_mayNot(self) -> None:
        """Who may do less stays, and its subscriptions end that it may not have any more."""
        peer = self.flexi().join().subscribe("a.x", "b.x")
        self.change(roles={"everyone": {"subscribe": ["a.#"]}})
        self.turn()
        self.assertEqual(([each.status for each in peer.messages()], peer.closed), ([603], False))

    def test_refused(self) -> None:
        """A file of credentials that cannot be read, or is not as it must be, changes nothing."""
        peer = self.flexi().join()
        for path in (self.mktemp(), self.file("\0 this is none")):
            self.values = {**BEFORE, "auth": [f"apikeys:{path}"], "keepalive": 5}
            self.assertRaises(SettingsRefused, self.reload.reload)
            self.assertEqual((peer.barrier(), self.tried()), ([], 200))
            self.assertFalse(self.pinged())

    def test_unforeseen(self) -> None:
        """A client whose rights cannot be found out is expelled."""
        peer = self.flexi().join()
        [client] = self.broker().broker.clients
        client.identity = "nobody's"
        self.change(auth=[f"apikeys:{self.file('')}"])
        self.turn()
        self.assertEqual([each.status for each in peer.messages()], [int(Unauthorized.status)])
        self.flushLoggedErrors()
