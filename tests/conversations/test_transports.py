"""All dialects over every transport there is; the real program with real sockets."""

import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from twisted.trial.unittest import SkipTest, SynchronousTestCase

from tests.broker_process import BrokerProcess
from tests.certificates import makeCertificate
from tests.conversations.all_dialects import converse
from tests.conversations.clients import (
    PATIENCE,
    FlexiClient,
    IdentityClient,
    MiniClient,
    Stream,
    WebSocketStream,
)
from tests.web_socket_client import Refused

#: What systemd does, in one line: the listening socket is descriptor 3, and the environment names the process.
LAUNCHER = "import os, sys; os.environ['LISTEN_PID'] = str(os.getpid()); os.execv(sys.argv[1], sys.argv[1:])"


class TransportCase(SynchronousTestCase):
    """A test with a folder of its own, whose name is short enough for sockets."""

    def setUp(self) -> None:
        """Make the folder."""
        folder = tempfile.TemporaryDirectory(prefix="fx-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def running(self, *listens: str, more: tuple[str, ...] = ()) -> BrokerProcess:
        """Return a broker that listens there until the test ends."""
        broker = BrokerProcess(*(word for listen in listens for word in ("--listen", listen)), *more)
        broker.__enter__()
        self.addCleanup(broker.__exit__, None, None, None)
        return broker

    def tcp(self, broker: BrokerProcess, n: int = 0) -> Callable[[], socket.socket]:
        """Return what connects to the nth port of a broker."""
        return lambda: socket.create_connection(("127.0.0.1", broker.port(n)), timeout=PATIENCE)


def unix(path: str | Path) -> socket.socket:
    """Return a connection to a UNIX socket."""
    connected = socket.socket(socket.AF_UNIX)
    connected.settimeout(PATIENCE)
    connected.connect(str(path))
    return connected


class SocketTests(TransportCase):
    """TCP and UNIX sockets."""

    def test_urlServesAllDialectsAsEndpointStringDoes(self) -> None:
        """A URL serves all dialects as an endpoint string does."""
        converse(self.tcp(self.running("tcp://127.0.0.1:0")))

    def test_urlMayNameHost(self) -> None:
        """A URL may name a host."""
        converse(self.tcp(self.running("tcp://localhost:0")))

    def test_oneDialect(self) -> None:
        """A dialect may stand before a URL."""
        broker = self.running("minimq+tcp://127.0.0.1:0")
        with MiniClient(self.tcp(broker)()) as mini:
            self.assertTrue(mini.ask("no command").startswith("ERROR:400:"))

    def test_allDialectsAreSpokenOverUNIXSocket(self) -> None:
        """All dialects are spoken over a UNIX socket."""
        self.running(f"unix:{self.folder}/s")
        converse(lambda: unix(self.folder / "s"))

    def test_ipcUrlServesAllDialects(self) -> None:
        """So they are behind an ipc:// URL, whose folder and socket are made; the socket goes at the end."""
        broker = BrokerProcess("--listen", f"ipc://{self.folder}/own/s")
        with broker:
            self.assertEqual(broker.listeners, [f"ipc:{self.folder}/own/s"])
            converse(lambda: unix(self.folder / "own" / "s"))
        self.assertEqual(os.listdir(self.folder), ["own"])
        self.assertEqual(os.listdir(self.folder / "own"), [])

    def test_ipcRelative(self) -> None:
        """A relative path begins in the folder that is set."""
        self.running("ipc://own.sock", more=("--ipc-dir", str(self.folder)))
        converse(lambda: unix(self.folder / "own.sock"))

    def test_ipcStale(self) -> None:
        """What a killed broker left behind is replaced."""
        first = BrokerProcess("--listen", f"ipc://{self.folder}/s")
        first.__enter__()
        first.stop(signal.SIGKILL)
        self.assertTrue((self.folder / "s").exists())
        self.running(f"ipc://{self.folder}/s")
        converse(lambda: unix(self.folder / "s"))

    def test_localPeerBehindHaproxyIsRemote(self) -> None:
        """Behind haproxy: a local peer is remote: it is not served, unless everybody is."""
        hello = b"PROXY TCP4 192.0.2.7 127.0.0.1 50000 7890\r\n"
        for more, status in {(): 605, ("--allow-anonymous",): 200}.items():
            broker = self.running("haproxy:tcp:0:interface=127.0.0.1", more=more)
            connected = self.tcp(broker)()
            connected.sendall(hello)
            with FlexiClient(Stream(connected)) as flexi:
                flexi.send("JOIN")
                self.assertEqual(flexi.hear().status, status)


class TlsTests(TransportCase):
    """TLS, with a certificate of the test's own."""

    def setUp(self) -> None:
        """Make the certificate."""
        super().setUp()
        self.made = makeCertificate(self.folder)

    def secure(self, broker: BrokerProcess) -> Callable[[], socket.socket]:
        """Return what connects to a broker's first port and trusts its certificate only."""
        context = self.made.trusting()
        return lambda: context.wrap_socket(self.tcp(broker)(), server_hostname="localhost")

    def options(self) -> tuple[str, ...]:
        """Return the options that name the certificate."""
        return ("--tls-certificate", str(self.made.certificate), "--tls-key", str(self.made.key))

    def test_sslEndpointServesAllDialects(self) -> None:
        """All dialects are spoken behind ssl:."""
        files = f"privateKey={self.made.key}:certKey={self.made.certificate}"
        converse(self.secure(self.running(f"ssl:0:interface=127.0.0.1:{files}")))

    def test_tlsFolder(self) -> None:
        """So they are behind tls:, which takes a folder of certificates named after hosts."""
        folder = self.folder / "certificates"
        folder.mkdir()
        shutil.copy(self.made.both, folder / "localhost.pem")
        converse(self.secure(self.running(f"tls:{folder}:0:interface=127.0.0.1")))

    def test_tlsUrlServesAllDialects(self) -> None:
        """So they are behind a tls:// URL."""
        converse(self.secure(self.running("tls://127.0.0.1:0", more=self.options())))

    def test_whoSpeaksWithoutTLSWhereItIsExpectedIsNotServed(self) -> None:
        """Who speaks without TLS where it is expected is not served."""
        broker = self.running("tls://127.0.0.1:0", more=self.options())
        with MiniClient(self.tcp(broker)()) as mini:
            mini.line("PING:")
            self.assertNotIn(b"PONG", mini.readAll())

    def test_tlsOnAPlainPort(self) -> None:
        """Who speaks TLS where it is not expected is told nothing."""
        broker = self.running("tcp://127.0.0.1:0")
        self.assertRaises((ssl.SSLError, ConnectionError), self.secure(broker))
        broker.waitForOutput("no dialect begins with these bytes .first byte 0x16")

    def test_wssServesWebSockets(self) -> None:
        """wss:// serves WebSockets."""
        connect = self.secure(self.running("wss://127.0.0.1:0", more=self.options()))
        with FlexiClient(WebSocketStream(connect())) as flexi, IdentityClient(connect()) as identity:
            identity.subscribe("news")
            flexi.join().publish("news", "hello")
            self.assertTrue(identity.hear().endswith(":hello"))


class WebSocketTests(TransportCase):
    """ws:// URLs."""

    def test_both(self) -> None:
        """Both dialects that have WebSockets are served, and the welcome page."""
        connect = self.tcp(self.running("ws://127.0.0.1:0"))
        with FlexiClient(WebSocketStream(connect())) as flexi, IdentityClient(connect()) as identity:
            identity.subscribe("news")
            flexi.join().publish("news", "hello")
            self.assertTrue(identity.hear().endswith(":hello"))
        with Stream(connect()) as browser:
            browser.say(b"GET / HTTP/1.0\r\n\r\n")
            self.assertIn(b"200 OK", browser.readAll())

    def test_noStreams(self) -> None:
        """A stream dialect is answered by HTTP."""
        connect = self.tcp(self.running("ws://127.0.0.1:0"))
        with Stream(connect()) as stream:
            stream.say(b"PING:\r\n\r\n")
            self.assertTrue(stream.readAll().startswith(b"HTTP/1.1 400 "))

    def test_withPathThereAreWebSocketsOnItAndNowhereElse(self) -> None:
        """With a path there are WebSockets on it, and nowhere else."""
        connect = self.tcp(self.running("ws://127.0.0.1:0/messaging"))
        with FlexiClient(WebSocketStream(connect(), "/messaging?x=y")) as flexi:
            flexi.join()
        for path in ("/ws", "/"):
            error = self.assertRaises(Refused, WebSocketStream, connect(), path)
            self.assertIn(" 404 ", str(error))


class SystemdTests(TransportCase):
    """Sockets that are passed to the broker."""

    def test_listeningSocketThatBrokerInheritsIsServed(self) -> None:
        """A listening socket that the broker inherits is served."""
        with socket.create_server(("127.0.0.1", 0)) as listening:
            third = (
                f"os.dup2({listening.fileno()}, 3); " if listening.fileno() != 3 else "os.set_inheritable(3, True); "
            )
            launcher = [sys.executable, "-c", LAUNCHER.replace("sys; ", f"sys; {third}")]
            broker = BrokerProcess(
                "--listen",
                "systemd:domain=INET:index=0",
                environment={"LISTEN_FDS": "1", "LISTEN_FDNAMES": "broker"},
                launcher=launcher,
                pass_fds=(listening.fileno(),),
            )
            with broker:
                self.assertEqual(broker.listeners, [f"systemd:127.0.0.1:{listening.getsockname()[1]}"])
                converse(self.tcp(broker))

    def test_systemdSocketActivateStartsBrokerWithFirstConnectionWhichIs(self) -> None:
        """systemd-socket-activate starts the broker with the first connection, which is served too."""
        activate = shutil.which("systemd-socket-activate")
        if activate is None:
            raise SkipTest("there is no systemd-socket-activate")
        path = self.folder / "s"
        names = ("PATH", "PYTHONPATH", "PYTHONUNBUFFERED")
        launcher = [activate, "-l", str(path), "--fdname=broker", *(f"--setenv={name}" for name in names)]
        broker = BrokerProcess("--listen", "systemd:domain=UNIX:index=0", launcher=launcher)
        self.addCleanup(broker.stop)
        broker.start()
        broker.waitForOutput("Listening on .* as 3")
        converse(lambda: unix(path))


class StdioTests(TransportCase):
    """The broker's own standard input and output."""

    def ran(self, listen: str, said: bytes, *words: str) -> "subprocess.CompletedProcess[bytes]":
        """Return how a broker ended to which this was said."""
        broker = BrokerProcess("--listen", listen, *words)
        self.addCleanup(shutil.rmtree, broker.folder)
        return subprocess.run(
            broker.command, input=said, cwd=broker.folder, env=broker.variables, capture_output=True, timeout=300
        )

    def test_whatIsPipedInIsAnsweredThenBrokerEnds(self) -> None:
        """What is piped in is answered, then the broker ends; the log is on standard error, all of it."""
        for listen in ("stdio:", "stdio://", "minimq+stdio:"):
            ended = self.ran(listen, b"PRODUCE:id-1:::t:::hello::::::\nCONSUME:t\nPING:\n")
            self.assertEqual(ended.stdout, b"id-1\nid-1:::t:::hello::::::\nPONG:\n", ended.stderr)
            self.assertEqual(ended.returncode, 0)
            self.assertIn(b"Listening on stdio:", ended.stderr)
            self.assertIn(b"starting up", ended.stderr)

    def test_readsNoMore(self) -> None:
        """A client that closes what it reads from ends it as soon as there is something to tell it."""
        reading, writing = os.pipe()
        broker = BrokerProcess("--listen", "minimq+stdio:")
        self.addCleanup(shutil.rmtree, broker.folder)
        with subprocess.Popen(
            broker.command,
            cwd=broker.folder,
            env=broker.variables,
            stdin=subprocess.PIPE,
            stdout=writing,
            stderr=subprocess.PIPE,
        ) as process:
            self.addCleanup(process.kill)
            os.close(writing)
            os.close(reading)
            assert process.stdin is not None and process.stderr is not None
            while b"Listening on stdio:" not in (line := process.stderr.readline()):  # a start may take long
                self.assertTrue(line)
            process.stdin.write(b"PING:\n")
            process.stdin.flush()
            self.assertIn(b" left: connection lost", process.stderr.read())
            self.assertEqual(process.wait(PATIENCE), 0)

    def test_whatIsNoDialectEndsItAsWell(self) -> None:
        """What is no dialect ends it as well."""
        ended = self.ran("stdio:", b"\x7f\x7f")
        self.assertEqual((ended.returncode, ended.stdout), (0, b""))
        self.assertIn(b"no dialect begins with these bytes", ended.stderr)

    def test_noHttp(self) -> None:
        """There is no browser at a pipe."""
        ended = self.ran("stdio:", b"GET / HTTP/1.0\r\n\r\n")
        self.assertEqual((ended.returncode, ended.stdout), (0, b""))

    def test_otherListenersAreServedBesideStdio(self) -> None:
        """Other listeners are served beside it, until its client goes."""
        broker = BrokerProcess("--listen", "stdio:", "--listen", f"unix:{self.folder}/s", stdin=subprocess.PIPE)
        self.addCleanup(broker.stop)
        broker.start()
        broker.waitForOutput("Listening on unix:")
        converse(lambda: unix(self.folder / "s"))
        broker.closeInput()
        self.assertEqual(broker.wait(), 0)

    def test_daemonHasNoStandardInput(self) -> None:
        """A daemon has no standard input: one sentence, and nothing is left behind."""
        broker = BrokerProcess("--listen", "stdio:")
        self.addCleanup(shutil.rmtree, broker.folder)
        command = [word for word in broker.command if word not in ("-n", "--pidfile=")]
        ended = subprocess.run(command, cwd=broker.folder, env=broker.variables, capture_output=True, timeout=300)
        self.assertEqual(
            (ended.returncode, ended.stdout, ended.stderr),
            (1, b"", b"fleximq: stdio has no client in a daemon; start the broker with twistd -n\n"),
        )
        self.assertEqual(os.listdir(broker.folder), [])
