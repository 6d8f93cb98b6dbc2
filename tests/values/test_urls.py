"""URLs and the values they make."""

import subprocess
import sys
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

import fleximq
from fleximq.errors import SettingError
from fleximq.values.urls import Url, addressesOf, isUrl


class UrlTests(SynchronousTestCase):
    """What is read, and how it is written again."""

    def refused(self, text: str) -> str:
        """Return the sentence with which a text is refused."""
        return str(self.assertRaises(SettingError, Url.parse, text))

    def test_examplesOfSection62(self) -> None:
        """The examples of section 6.2."""
        for text, url in {
            "tcp://localhost:8080": Url("tcp", "localhost", 8080),
            "tcp://192.168.1.100:7890": Url("tcp", "192.168.1.100", 7890),
            "ipc:///tmp/fleximq.sock": Url("ipc", path="/tmp/fleximq.sock"),
            "ipc://fleximq_pipe": Url("ipc", path="fleximq_pipe"),
            "ws://localhost:8080/ws": Url("ws", "localhost", 8080, "/ws"),
            "wss://example.com/messaging": Url("wss", "example.com", 443, "/messaging"),
            "stdio://": Url("stdio"),
        }.items():
            self.assertEqual(Url.parse(text), url)

    def test_urlIsWrittenAsItCanBeRead(self) -> None:
        """A URL is written as it can be read."""
        for text in ("tcp://a:1", "tls://[::1]:2", "ws://*:3", "wss://a:4/b?c=d", "ipc://a b", "ipc:///a", "stdio://"):
            self.assertEqual(str(Url.parse(text)), text)
        self.assertEqual(str(Url.parse("WS://a")), "ws://a:80")

    def test_everyAddress(self) -> None:
        """No host, or a star, is every address."""
        self.assertEqual(Url.parse("tcp://:1"), Url.parse("tcp://*:1"))
        self.assertEqual(Url.parse("tcp://*:1").host, "")

    def test_ipv6AddressesStandInBracketsWithZoneIfTheyNeedOne(self) -> None:
        """IPv6 addresses stand in brackets, with a zone if they need one."""
        self.assertEqual([Url.parse(f"tcp://[{host}]:1").host for host in ("::1", "fe80::1%eth0")],
                         ["::1", "fe80::1%eth0"])  # fmt: skip
        self.assertEqual(self.refused("tcp://::1:1"), "the URL must be like tcp://HOST:PORT")

    def test_portIsAtMost65535(self) -> None:
        """A port is at most 65535; only WebSockets have a usual one."""
        self.assertEqual([Url.parse(f"tcp://a:{port}").port for port in (0, 65535)], [0, 65535])
        self.assertEqual(self.refused("tcp://a:65536"), "the port must be at most 65535, not 65536")
        self.assertEqual([Url.parse(text).port for text in ("ws://a", "wss://a/b")], [80, 443])
        for scheme in ("tcp", "tls"):
            self.assertEqual(self.refused(f"{scheme}://a"), f"the URL must name a port, e.g. {scheme}://localhost:7890")

    def test_whatSchemeHasNoUseForIsRefused(self) -> None:
        """What a scheme has no use for is refused."""
        for text, sentence in {
            "http://a": "there is no URL scheme 'http', only ipc, stdio, tcp, tls, ws, wss",
            "tcp:7890": "'tcp:7890' has no scheme before a ://; a URL is like tcp://localhost:7890",
            "a:7890": "'a:7890' has no scheme before a ://; a URL is like tcp://localhost:7890",
            "ipc": "'ipc' has no scheme before a ://; a URL is like tcp://localhost:7890",
            "tcp://a:1/b": "a tcp:// URL has no path",
            "tls://a:1/b": "a tls:// URL has no path",
            "stdio://a": "a stdio:// URL has no path",
            "tcp://u@a:1": "the URL must be like tcp://HOST:PORT",
            "tcp://a:x": "the URL must be like tcp://HOST:PORT",
            "ws://a b": "the URL must be like ws://HOST:PORT",
            "ws://a/b#c": "the URL has a fragment, which is for browsers only",
            "ipc://": "an ipc:// URL must name the path of a socket, e.g. ipc:///run/fleximq.sock",
            "ipc:///run/": "an ipc:// URL must name the path of a socket, e.g. ipc:///run/fleximq.sock",
            "ipc://a\0b": "an ipc:// URL must name the path of a socket, e.g. ipc:///run/fleximq.sock",
        }.items():
            self.assertEqual(self.refused(text), sentence)

    def test_severalAddresses(self) -> None:
        """Addresses after commas have the scheme and the path of the URL, or are TCP; a list has a URL for each."""
        for text, urls in {
            "tcp://a:1,[::1]:2, c:3,TCP://d:4": tuple(
                Url("tcp", host, port) for port, host in enumerate(("a", "::1", "c", "d"), 1)
            ),
            "WS://a:1,b/c?d=e,f://g": (Url("ws", "a", 1, "/c?d=e,f://g"), Url("ws", "b", 80, "/c?d=e,f://g")),
            "wss://a?b": None,
            "a:1,[::1]:2": (Url("tcp", "a", 1), Url("tcp", "::1", 2)),
            "7890": (Url("tcp", "localhost", 7890),),
            "ipc:///a,b": (Url("ipc", path="/a,b"),),
            "ws://a/?b,c": (Url("ws", "a", 80, "/?b,c"),),
        }.items():
            if urls is None:
                self.assertRaises(SettingError, addressesOf, text)
            else:
                self.assertEqual(addressesOf(text), urls)
        self.assertEqual([each.host for each in addressesOf(["tls://a:1", "tls://b:1,c:1"])], ["a", "b", "c"])

    def test_wrongAddresses(self) -> None:
        """Different schemes, empty addresses and several paths are refused."""
        for wrong, sentence in {
            ("tcp://a:1", "tls://b:1"): "the URLs of one broker must have the same scheme, not tcp and tls",
            (): "the URLs of one broker must have the same scheme, not none",
            "tcp://a:1,tls://b:1": "the URLs of one broker must have the same scheme, not tcp and tls",
            "tcp://a:1,http://b:1": "a tcp:// URL has no path",
            "ws://a/x,b/y": "several addresses are like ws://HOST:PORT,HOST:PORT, with one path at the end",
            "tcp://a:1,": "an address before or after a comma is empty in tcp://a:1,",
            "tcp://a:1,b": "the URL must name a port, e.g. tcp://localhost:7890",
            "tcp://a:1,b:2/c": "a tcp:// URL has no path",
        }.items():
            self.assertEqual(str(self.assertRaises(SettingError, addressesOf, wrong)), sentence)

    def test_slashBehindPortIsNoPath(self) -> None:
        """A slash behind the port is no path."""
        self.assertEqual(Url.parse("tcp://a:1/"), Url("tcp", "a", 1))
        self.assertEqual(Url.parse("ws://a:1/"), Url("ws", "a", 1))

    def test_whatIsSpoken(self) -> None:
        """WebSocket and TLS go by the scheme."""
        urls = [Url.parse(text) for text in ("tcp://a:1", "tls://a:1", "ws://a", "wss://a", "ipc://a", "stdio://")]
        self.assertEqual([url.isWebSocket for url in urls], [False, False, True, True, False, False])
        self.assertEqual([url.isSecure for url in urls], [False, True, False, True, False, False])

    def test_socketPath(self) -> None:
        """The examples of section 6.3.3: relative paths begin in the folder, absolute ones are kept."""
        self.assertEqual(Url.parse("ipc:///var/run/app/socket.sock").socketPath("/tmp"), "/var/run/app/socket.sock")
        self.assertEqual(Url.parse("ipc://app.sock").socketPath("/tmp"), "/tmp/app.sock")
        self.assertEqual(Url.parse("ipc://own/app.sock").socketPath("/run/x"), "/run/x/own/app.sock")

    def test_isUrl(self) -> None:
        """Only a known scheme makes a URL; endpoint strings are none."""
        self.assertEqual(
            [isUrl(text) for text in ("tcp://", "IPC://a", "stdio://", "tcp:7890", "unix://run/x", "http://a", "")],
            [True, True, True, False, False, False, False],
        )

    @given(st.sampled_from(("tcp", "tls", "ipc", "ws", "wss", "stdio", "x")), st.text())
    def test_anyText(self, scheme: str, rest: str) -> None:
        """Any text is refused, or makes a URL that is the same when it is written and read again."""
        try:
            url = Url.parse(f"{scheme}://{rest}")
        except SettingError:
            return
        self.assertEqual(Url.parse(str(url)), url)

    def test_noTwisted(self) -> None:
        """The client library, which does without Twisted, can read URLs."""
        code = "import sys; sys.modules['twisted'] = None; from fleximq.values.urls import Url; Url.parse('stdio://')"
        root = str(Path(fleximq.__file__).parents[1])
        ended = subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": root}, capture_output=True, timeout=300)
        self.assertEqual((ended.returncode, ended.stderr), (0, b""))
