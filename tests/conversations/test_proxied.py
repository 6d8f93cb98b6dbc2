"""Behind a proxy that says for whom it speaks: everything that the broker counts or shows is the peer's own."""

import re
import shutil
import socket
import subprocess
import textwrap
import time
from pathlib import Path
from typing import ClassVar

from twisted.trial.unittest import SkipTest, SynchronousTestCase

from tests.broker_process import BrokerProcess
from tests.conversations.clients import BlipClient, FlexiClient, MiniClient, Stream
from tests.services.network.test_proxy_protocol import header1, header2

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "operating.rst"
_UPGRADE = (
    "Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
)  # fmt: skip


class ProxiedCase(SynchronousTestCase):
    """A broker behind a proxy."""

    options: ClassVar[tuple[str, ...]] = ()
    listens: ClassVar[tuple[str, ...]] = ("haproxy:tcp:0:interface=127.0.0.1",)

    def setUp(self) -> None:
        """Start it."""
        listens = [word for each in self.listens for word in ("--listen", each)]
        self.broker = BrokerProcess(*listens, "--allow-anonymous", *self.options).__enter__()
        self.addCleanup(self.broker.stop)

    def through(self, header: bytes, port: int = 0) -> socket.socket:
        """Return a connection that the proxy passes on with this header."""
        connected = socket.create_connection(("127.0.0.1", self.broker.port(port)), 10)
        self.addCleanup(connected.close)
        connected.sendall(header)
        return connected

    def addresses(self, flexi: FlexiClient) -> list[str]:
        """Return where all clients come from, as the broker lists them."""
        return sorted(each["address"] for each in flexi.ask("/broker/clients")["clients"])


class AddressTests(ProxiedCase):
    """All dialects on one port, and MiniMQ alone on another."""

    listens = ("haproxy:tcp:0:interface=127.0.0.1", "minimq+haproxy:tcp:0:interface=127.0.0.1")

    def test_listsOfClientsAndLogHavePeersOwnAddressWhateverItSpeaksAndOn(self) -> None:
        """Lists of clients and the log have the peer's own address, whatever it speaks, and on every listener."""
        flexi = FlexiClient(Stream(self.through(header1("192.0.2.1", 1001)))).join()
        BlipClient(self.through(header2((192, 0, 2, 2), 1002))).login()
        MiniClient(self.through(header2((192, 0, 2, 3), 1003))).ask("PING:")
        MiniClient(self.through(header1("2001:db8::4", 1004), port=1)).ask("PING:")
        self.assertEqual(
            self.addresses(flexi), ["192.0.2.1:1001", "192.0.2.2:1002", "192.0.2.3:1003", "[2001:db8::4]:1004"]
        )
        self.broker.waitForOutput(r"joined from 192\.0\.2\.2:1002")
        self.broker.waitForOutput(r"joined from \[2001:db8::4\]:1004")

    def test_halfClosed(self) -> None:
        """A peer that ends its input gets its answers through the proxy too."""
        stream = Stream(self.through(header1(), port=1))
        stream.say(b"PRODUCE:a:::t:::x:::-:::-\n")
        stream.endInput()
        self.assertEqual(stream.readAll(), b"a\n")


class ConnectionLimitTests(ProxiedCase):
    """Two connections of each address."""

    options = ("--max-clients-per-address", "2")

    def test_perAddress(self) -> None:
        """The third of an address is closed; those of others, through the same proxy, are not."""
        for _ in range(2):
            FlexiClient(Stream(self.through(header1()))).join()
        third = Stream(self.through(header2() + b"PING:\n"))
        self.assertEqual(third.readAll(), b"")
        FlexiClient(Stream(self.through(header1("192.0.2.8")))).join()
        self.broker.waitForOutput("Closing the connection from 192.0.2.7:50000: too many connections from one address")


class JoinRateTests(ProxiedCase):
    """Two attempts to join of each address."""

    options = ("--max-join-rate", "0.01,2")

    def test_attemptsAreCountedByPeersOwnAddress(self) -> None:
        """Attempts are counted by the peer's own address."""
        for _ in range(2):
            FlexiClient(Stream(self.through(header1()))).join()
        refused = FlexiClient(Stream(self.through(header1())))
        refused.tell("JOIN")
        self.assertEqual(refused.hear().status, 605)
        FlexiClient(Stream(self.through(header1("192.0.2.8")))).join()


class FlappingTests(ProxiedCase):
    """Three departures of each address."""

    options = ("--max-disconnects", "3")

    def test_departuresAreCountedByPeersOwnAddress(self) -> None:
        """Departures are counted by the peer's own address: who came and went too often is closed at the gate."""
        for number in range(3):
            FlexiClient(Stream(self.through(header1()))).join().close()
            self.broker.waitForOutput(rf"(?s)( left: .*){{{number + 1}}}")
        self.assertEqual(Stream(self.through(header2() + b"PING:\n")).readAll(), b"")
        self.broker.waitForOutput("Closing the connection from 192.0.2.7:50000: came and went too often")
        FlexiClient(Stream(self.through(header1("192.0.2.8")))).join()


class HowToTests(SynchronousTestCase):
    """The settings of nginx and HAProxy on docs/guides/operating.rst, run literally but for places and TLS."""

    def broker(self, *options: str) -> BrokerProcess:
        """Return a broker with a port for HTTP, and one for the PROXY protocol."""
        listens = ("--listen", "tcp:0:interface=127.0.0.1", "--listen", "haproxy:tcp:0:interface=127.0.0.1")
        broker = BrokerProcess(*listens, *options).__enter__()
        self.addCleanup(broker.stop)
        return broker

    def proxy(self, program: str, settings: str, *ports: int) -> None:
        """Run a proxy until the end of the test; these ports are open afterwards."""
        path = shutil.which(program, path="/usr/local/sbin:/usr/sbin:/usr/local/bin:/usr/bin:/bin")
        if path is None:
            raise SkipTest(f"{program} is not installed")
        folder = Path(self.mktemp()).absolute()
        folder.mkdir()
        (folder / "settings").write_text(settings.replace("FOLDER", str(folder)))
        option = {"nginx": "-c", "haproxy": "-f"}[program]
        process = subprocess.Popen([path, option, str(folder / "settings")], stderr=subprocess.DEVNULL)
        self.addCleanup(process.wait, 20)
        self.addCleanup(process.terminate)
        for port in ports:
            until = time.monotonic() + 300
            while socket.socket().connect_ex(("127.0.0.1", port)):
                self.assertIsNone(process.poll())
                self.assertLess(time.monotonic(), until)
                time.sleep(0.02)

    def nginx(self, server: str) -> int:
        """Return the port at which nginx serves this."""
        port = freePort()
        server = re.sub(r"(?m)^ *ssl_.*$", "", server).replace("listen 443 ssl", f"listen 127.0.0.1:{port}")
        paths = "".join(f"{each}_temp_path FOLDER;" for each in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        general = "daemon off; pid FOLDER/pid; error_log FOLDER/log; events {} http { access_log off;"
        self.proxy("nginx", f"{general} {paths}\n{server}\n}}\n", port)
        return port

    def haproxy(self, broker: BrokerProcess) -> tuple[int, int]:
        """Return the ports at which HAProxy serves all dialects, and HTTP alone."""
        every, web = freePort(), freePort()
        settings = re.sub(r" ssl crt .*", "", written("text", "send-proxy"))
        for old, new in (
            ("bind :7890", f"bind 127.0.0.1:{every}"), ("bind :443", f"bind 127.0.0.1:{web}"),
            ("127.0.0.1:7891", f"127.0.0.1:{broker.port(1)}"), ("127.0.0.1:7890", f"127.0.0.1:{broker.port(0)}"),
        ):  # fmt: skip
            settings = settings.replace(old, new)
        self.proxy("haproxy", settings, every, web)
        return every, web

    def code(self, port: int, path: str, *fields: str) -> int:
        """Return the status of the answer to a GET."""
        connected = socket.create_connection(("127.0.0.1", port), 10)
        self.addCleanup(connected.close)
        connected.sendall("\r\n".join((f"GET {path} HTTP/1.1", f"Host: 127.0.0.1:{port}", *fields, "", "")).encode())
        return int(connected.makefile("rb").readline().split()[1])

    def seen(self, port: int, scheme: str = "http") -> list[int]:
        """Return how a page, an own, and a foreign WebSocket are answered."""
        return [
            self.code(port, "/healthz"),
            self.code(port, "/ws", *_UPGRADE, f"Origin: {scheme}://127.0.0.1:{port}"),
            self.code(port, "/ws", *_UPGRADE, "Origin: https://evil.example"),
        ]

    def test_nginxRemote(self) -> None:
        """Without authentication the settings let nobody in through nginx; without them the proxy would be local."""
        broker = self.broker()
        server = written("nginx", "proxy_pass").replace("127.0.0.1:7890", f"127.0.0.1:{broker.port(0)}")
        self.assertEqual(self.seen(self.nginx(server)), [403] * 3)
        bare = re.sub(r"(?m)^ *proxy_(?!pass).*$", "", server)
        self.assertEqual(self.code(self.nginx(bare), "/healthz"), 200)

    def test_nginxServes(self) -> None:
        """With it pages and WebSockets work, the own origin included."""
        broker = self.broker("--auth", f"apikeys:{self.keys()}")
        server = written("nginx", "proxy_pass").replace("127.0.0.1:7890", f"127.0.0.1:{broker.port(0)}")
        self.assertEqual(self.seen(self.nginx(server)), [200, 101, 403])

    def test_haproxyRemote(self) -> None:
        """Without authentication HAProxy's clients are remote if they are not of this machine, or HTTP shows it."""
        broker = self.broker()
        every, web = self.haproxy(broker)
        self.assertEqual((self.code(every, "/healthz"), self.seen(web, "https")), (403, [403] * 3))

    def test_haproxyServes(self) -> None:
        """With it pages, WebSockets and streams work; where HAProxy says that it speaks TLS, origins are of TLS."""
        broker = self.broker("--auth", f"apikeys:{self.keys()}")
        every, web = self.haproxy(broker)
        self.assertEqual((self.seen(every), self.seen(web, "https")), ([200, 101, 403], [200, 101, 403]))
        self.assertEqual(self.seen(web), [200, 403, 403])
        stream = Stream(("127.0.0.1", every))
        self.addCleanup(stream.close)
        stream.say(b"PING:\n")
        self.assertTrue(stream.readAll().startswith(b"ERROR:401:"))

    def keys(self) -> str:
        """Return the path of a file without any key."""
        path = Path(self.mktemp()).absolute()
        path.touch(0o600)
        return str(path)


def written(kind: str, word: str) -> str:
    """Return the settings of this kind with this word on the page."""
    blocks = re.findall(rf"(?m)^\.\. code-block:: {kind}\n\n((?:    .*\n|\n)+)", PAGE.read_text())
    [found] = [each for each in blocks if word in each]
    return textwrap.dedent(found)


def freePort() -> int:
    """Return a port that was free just now: proxies cannot say which one the system chose."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
