"""What may follow --listen."""

import os
import re
import socket
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.endpoints import _SystemdParser
from twisted.internet.protocol import Factory
from twisted.internet.testing import MemoryReactor, MemoryReactorClock
from twisted.python.systemd import ListenFDs
from twisted.trial.unittest import SynchronousTestCase

from fleximq.endpoints.endpoint_string import BACKLOG
from fleximq.endpoints.listen import DIALECTS, LONGEST_PATH, Listen, ListenDefaults, WebListen, isPassedBySystemd
from fleximq.endpoints.standard_streams import StandardStreamsEndpoint
from fleximq.endpoints.tls_endpoint import TlsFactory
from fleximq.errors import SettingError
from tests.certificates import makeCertificate


class ListenTests(SynchronousTestCase):
    """Texts and the values they make."""

    def refused(self, text: str) -> str:
        """Return the sentence with which a text is refused."""
        return str(self.assertRaises(SettingError, Listen.parse, text))

    def test_allDialects(self) -> None:
        """Without a dialect all are served."""
        listen = Listen.parse("tcp:7890")
        self.assertEqual((listen.dialect, listen.endpoint, listen.served), (None, "tcp:7890", "all dialects"))

    def test_oneDialect(self) -> None:
        """Each dialect may stand before the plus."""
        for dialect in DIALECTS:
            listen = Listen.parse(f"{dialect}+tcp:0:interface=127.0.0.1")
            self.assertEqual((listen.dialect, listen.endpoint), (dialect, "tcp:0:interface=127.0.0.1"))
            self.assertEqual((listen.served, str(listen)), (dialect, f"{dialect}+tcp:0:interface=127.0.0.1"))

    def test_plusInAnEndpoint(self) -> None:
        """A plus behind the first colon belongs to the endpoint."""
        self.assertEqual(Listen.parse("unix:/tmp/a+b"), Listen(None, "unix:/tmp/a+b"))

    def test_whateverTwistedUnderstandsIsTaken(self) -> None:
        """Whatever Twisted understands is taken."""
        for text in ("tcp6:0", "unix:/run/x:mode=660", "stdio:", "haproxy:tcp:80", "tcp:80:backlog=5"):
            self.assertEqual(str(Listen.parse(text)), text)

    def test_miniMQListenerMayGiveItsClientsPrincipal(self) -> None:
        """A MiniMQ listener may give its clients a principal; a TCP port is then on loopback only."""
        for text, endpoint, name in (
            ("tcp:5677:principal=workers", "tcp:5677:interface=127.0.0.1", "workers"),
            ("tcp:principal=a\\:b:5677", "tcp:5677:interface=127.0.0.1", "a:b"),
            ("tcp:0:interface=127.0.0.2:principal=w", "tcp:0:interface=127.0.0.2", "w"),
            ("unix:/run/x:principal=w:mode=660", "unix:/run/x:mode=660", "w"),
        ):
            listen = Listen.parse(f"minimq+{text}")
            self.assertEqual((listen.endpoint, listen.principal), (endpoint, name))
        self.assertEqual(str(Listen.parse("minimq+unix:/run/x:principal=w")), "minimq+unix:/run/x:principal=w")

    def test_noPrincipal(self) -> None:
        """Elsewhere, and for other dialects, a principal is refused in one sentence."""
        only = "but principal is only for unix:PATH, tcp:PORT and tcp:PORT:interface=127.0.0.1"
        wrong = ("tcp:1:interface=10.0.0.1", "tcp:1:0.0.0.0", "tcp6:1", "haproxy:tcp:1", "stdio:", "ssl:1")
        for endpoint in wrong:
            self.assertIn(only, self.refused(f"minimq+{endpoint}:principal=w"))
        for dialect in ("", "blipmq+", "fleximq+"):
            self.assertIn(
                "principal is for MiniMQ, which has no credentials", self.refused(f"{dialect}tcp:1:principal=w")
            )
        for name in ("", "anonymous", "spawn\\:x", " a"):
            self.assertIn("cannot be the name of a principal", self.refused(f"minimq+tcp:1:principal={name}"))

    def test_unknownDialect(self) -> None:
        """A dialect that does not exist is named, and so are those that do."""
        known = "fleximq, blipmq, minimq, identity, http, or none"
        for dialect in ("mqtt", "", "FlexiMQ", "minimq "):
            self.assertEqual(
                self.refused(f"{dialect}+tcp:1"),
                f"listen names the dialect {dialect!r}, but must name one of {known}",
            )

    def test_noEndpoint(self) -> None:
        """An endpoint there must be."""
        for text in ("", " ", "minimq+"):
            self.assertEqual(self.refused(text), f"listen is {text!r}, but must name an endpoint, e.g. tcp:7890")
        self.assertEqual(
            self.refused("unix:"), "listen is 'unix:', but must name the path of a socket, e.g. unix:/run/fleximq"
        )

    def test_whateverTwistedsParsersRaiseBecomesOneSentenceThatNamesText(self) -> None:
        """Whatever Twisted's parsers raise becomes one sentence that names the text."""
        missing = os.path.abspath(self.mktemp())
        for text, reason in {
            "tcp:http": "'http' is not a number",
            "tcp": "tcp endpoints take other arguments",
            "tcp:1:foo=3": "tcp endpoints take other arguments",
            "foo:1": "there is no kind of endpoint named 'foo': use tcp:7890, unix:PATH or tls://0.0.0.0:7891",
            "haproxy:foo:1": "there is no kind of endpoint named 'foo': use tcp:7890, unix:PATH or tls://0.0.0.0:7891",
            "unix:/tmp/x:mode=9": "'9' is not a number",
            f"ssl:1:privateKey={missing}": f"{missing} cannot be read: no such file or directory",
            "systemd:domain=INET:index=99": (
                "systemd passed no such socket; sockets need names too: systemd-socket-activate --fdname=NAME"
            ),
            "tls:127.0.0.1:7891": (
                "127.0.0.1 is not a folder of certificates: tls://0.0.0.0:7891 uses --tls-certificate"
            ),
            "a=b": "it is not a server endpoint of Twisted: list index out of range",
            "tcp:\\": "it is not a server endpoint of Twisted: generator raised StopIteration",
        }.items():
            self.assertEqual(self.refused(text), f"listen is {text!r}, but {reason}")

    @given(st.one_of(st.text(), st.text(alphabet="tcpunix:+=\\/0123456789minq")))
    def test_anyText(self, text: str) -> None:
        """Any text is taken or refused in one line."""
        try:
            listen = Listen.parse(text)
        except SettingError as error:
            self.assertEqual(str(error).count("\n"), 0)
        else:
            self.assertEqual(str(listen), re.sub(r"(?a)(^|\+)(\d+)$", r"\1tcp:\2", text))

    def test_bareNumber(self) -> None:
        """A number is a port of TCP, with a dialect too."""
        self.assertEqual(Listen.parse("7890"), Listen.parse("tcp:7890"))
        self.assertEqual(str(Listen.parse("minimq+5677")), "minimq+tcp:5677")
        self.assertEqual(str(WebListen.parse("9090")), "tcp:9090")

    def test_hostAndPort(self) -> None:
        """So is a number after a host."""
        for text in ("127.0.0.1:7890", "tcp:127.0.0.1:7890"):
            self.assertEqual(Listen.parse(text), Listen.parse("tcp://127.0.0.1:7890"))
        self.assertEqual(str(Listen.parse("minimq+[::1]:5677")), "minimq+tcp://[::1]:5677")

    def test_passedDomain(self) -> None:
        """The domain of a socket that systemd passes must be the one that the endpoint names."""
        with socket.create_server(("::1", 0), family=socket.AF_INET6) as server:
            self.patch(_SystemdParser, "_sddaemon", ListenFDs([server.fileno()], ["web"]))
            for text in ("systemd:domain=INET6:index=0", "minimq+haproxy:systemd:domain=INET6:name=web", "tcp:1"):
                Listen.parse(text).checkPassed()
            for text in ("systemd:domain=INET:index=0", "http+haproxy:systemd:domain=UNIX:name=web"):
                listen = Listen.parse(text.removeprefix("http+"))
                error = self.assertRaises(SettingError, listen.checkPassed)
                self.assertEqual(
                    str(error), f"listen is {str(listen)!r}, but systemd passed a socket of another domain: write INET6"
                )

    def test_onlyPeersOfHaproxy(self) -> None:
        """Only peers of haproxy: stand behind a proxy."""
        self.assertEqual(
            [Listen.parse(text).proxied for text in ("tcp:1", "haproxy:tcp:1", "blipmq+HAProxy:unix:/x")],
            [False, True, True],
        )

    def test_whatSystemdPassesIsKnownAsSuchWhateverStandsBeforeIt(self) -> None:
        """What systemd passes is known as such, whatever stands before it."""
        passed = ("systemd:domain=INET:index=0", "minimq+haproxy:Systemd:x", "fleximqtls:cert=x:inner=systemd\\:x")
        self.assertEqual(
            [isPassedBySystemd(text) for text in (*passed, "tcp:1", "", "+", "unix:/systemd")], [True] * 3 + [False] * 4
        )

    def test_socketPath(self) -> None:
        """The path of a UNIX socket is known, however it is written."""
        paths = {
            "unix:/run/x": "/run/x",
            "minimq+unix:/run/x:mode=600": "/run/x",
            "unix:/run/a\\:b:lockfile=0": "/run/a:b",
            "unix:address=/run/x": "/run/x",
            "unix:mode=600:address=/run/x": "/run/x",
            "haproxy:unix:/run/x": "/run/x",
            "tcp:1": None,
            "haproxy:tcp:1": None,
        }
        self.assertEqual({text: Listen.parse(text).socketPath for text in paths}, paths)

    def test_longPath(self) -> None:
        """A path that the system would not take is refused, counted in bytes, before a lock is left beside it."""
        for longest in ("/" + "x" * (LONGEST_PATH - 1), "/" + "é" * (LONGEST_PATH // 2)):
            self.assertEqual(Listen.parse(f"unix:{longest}").socketPath, longest)
            for text in (f"unix:{longest}x", f"ipc://{longest}x"):
                self.assertIn("but the path of a socket may have 107 bytes", self.refused(text))

    def test_endpointItMakesListensOnReactorItIsGiven(self) -> None:
        """The endpoint it makes listens on the reactor it is given."""
        reactor = MemoryReactor()
        factory = Factory()
        Listen.parse("minimq+tcp:7890:interface=127.0.0.1").open(reactor).listen(factory)
        self.assertEqual(reactor.tcpServers, [(7890, factory, BACKLOG, "127.0.0.1")])

    def test_backlog(self) -> None:
        """Twisted's own endpoints let many clients come at once, unless they say how many."""
        given = {
            "tcp:7890": BACKLOG,
            "tcp:7890:backlog=5": 5,
            "tcp:7890:127.0.0.1:6": 6,
            "tcp:7890:127.0.0.1": 50,
            "unix:/x": BACKLOG,
            "unix:/x:mode=600": BACKLOG,
            "unix:/x:backlog=7": 7,
            "haproxy:tcp:7890": BACKLOG,
            "haproxy:tcp:7890:backlog=8": 8,
            "HAProxy:haproxy:unix:/x": BACKLOG,
        }
        for text, backlog in given.items():
            reactor = MemoryReactor()
            Listen.parse(text).open(reactor).listen(Factory())
            servers = reactor.tcpServers or reactor.unixServers
            self.assertEqual(servers[0][2], backlog, text)

    def test_stdio(self) -> None:
        """Standard input and output are known as such, and have no proxy and no browser."""
        for text in ("stdio:", "stdio://", "STDIO://", "minimq+stdio:"):
            self.assertTrue(Listen.parse(text).isStdio, text)
            self.assertIsInstance(Listen.parse(text).open(MemoryReactor()), StandardStreamsEndpoint)
        self.assertFalse(Listen.parse("tcp:1").isStdio)
        for text, reason in {
            "haproxy:stdio:": "a proxy cannot be behind stdio",
            "haproxy:haproxy:stdio:": "a proxy cannot be behind stdio",
            "identity+stdio:": "a WebSocket cannot be behind stdio",
            "stdio://x": "a stdio:// URL has no path",
        }.items():
            self.assertEqual(self.refused(text), f"listen is {text!r}, but {reason}")


class UrlTests(SynchronousTestCase):
    """URLs in the place of endpoint strings."""

    def opened(self, text: str, **defaults: Any) -> MemoryReactor:
        """Return a reactor on which this was opened."""
        reactor = MemoryReactorClock()
        self.factory = Factory()
        Listen.parse(text, ListenDefaults(**defaults)).open(reactor).listen(self.factory)
        return reactor

    def refused(self, text: str, **defaults: Any) -> str:
        """Return the reason for which a text is refused."""
        sentence = str(self.assertRaises(SettingError, Listen.parse, text, ListenDefaults(**defaults)))
        return sentence.removeprefix(f"listen is {text!r}, but ")

    def test_tcpOnOneAddressOrAll(self) -> None:
        """TCP, on one address or all."""
        self.assertEqual(self.opened("tcp://127.0.0.1:7890").tcpServers, [(7890, self.factory, BACKLOG, "127.0.0.1")])
        self.assertEqual(self.opened("minimq+tcp://*:1").tcpServers, [(1, self.factory, BACKLOG, "")])
        self.assertEqual(self.opened("tcp://[::1]:1").tcpServers, [(1, self.factory, BACKLOG, "::1")])

    def test_webSocket(self) -> None:
        """WebSockets are TCP, and nothing else is served there."""
        self.assertEqual(self.opened("ws://127.0.0.1/ws").tcpServers, [(80, self.factory, BACKLOG, "127.0.0.1")])
        for text, served in {"ws://*:1": "WebSocket", "identity+WS://*:1": "identity"}.items():
            self.assertEqual((Listen.parse(text).onlyWebSockets, Listen.parse(text).served), (True, served))
        self.assertFalse(Listen.parse("tcp://*:1").onlyWebSockets)

    def test_streamDialects(self) -> None:
        """BlipMQ and MiniMQ have no WebSockets."""
        for dialect in ("blipmq", "minimq"):
            self.assertEqual(self.refused(f"{dialect}+ws://*:1"), f"{dialect} is not spoken over WebSocket")

    def test_tlsNeedsCertificateWhichHasToBeReadableBeforeAnythingStarts(self) -> None:
        """TLS needs a certificate, which has to be readable before anything starts."""
        folder = Path(self.mktemp())
        folder.mkdir()
        made = makeCertificate(folder)
        for text in ("tls://127.0.0.1:1", "wss://127.0.0.1:1"):
            ((port, factory, backlog, interface),) = self.opened(text, certificate=str(made.both)).tcpServers
            self.assertEqual((port, backlog, interface), (1, BACKLOG, "127.0.0.1"))
            assert isinstance(factory, TlsFactory)
            self.assertIs(factory.wrappedFactory, self.factory)
            self.assertEqual(self.refused(text), f"{text[:3]}:// needs --tls-certificate and --tls-key")
            self.assertEqual(
                self.refused(text, certificate="/no", key="/nor"), "/no cannot be read: no such file or directory"
            )
            self.assertIn(
                "'x' must name suites of TLS 1.2", self.refused(text, certificate=str(made.both), ciphers="x")
            )

    def test_pathsBeginInFolderThatWasSet(self) -> None:
        """Paths begin in the folder that was set."""
        for text, path in {
            "ipc:///run/a.sock": "/run/a.sock",
            "ipc://a.sock": "/srv/a.sock",
            "minimq+ipc://b/a+c": "/srv/b/a+c",
        }.items():
            self.assertEqual(Listen.parse(text, ListenDefaults("/srv")).socketPath, path)
            self.assertEqual(self.opened(text, ipcDir="/srv").unixServers, [(path, self.factory, BACKLOG, 0o666, True)])
        self.assertEqual(Listen.parse("ipc://a").socketPath, "/tmp/a")
        self.assertIsNone(Listen.parse("tcp://a:1").socketPath)

    def test_whatCanOnlyBePipesNameIsRefusedWhereThereAreNone(self) -> None:
        """What can only be a pipe's name is refused where there are none."""
        for path in ("C:\\temp\\app.pipe", "\\\\.\\pipe\\app"):
            self.assertEqual(self.refused(f"ipc://{path}"), "the pipe \\\\.\\pipe\\app can be served on Windows only")

    def test_whatIsWrongWithURLIsTold(self) -> None:
        """What is wrong with a URL is told."""
        for text, reason in {
            "tcp://a": "the URL must name a port, e.g. tcp://localhost:7890",
            "ipc://": "an ipc:// URL must name the path of a socket, e.g. ipc:///run/fleximq.sock",
            "http://a": "there is no kind of endpoint named 'http': use tcp:7890, unix:PATH or tls://0.0.0.0:7891",
        }.items():
            self.assertIn(reason, self.refused(text))
