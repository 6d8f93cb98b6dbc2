"""Which web pages may open a WebSocket."""

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from fleximq.dialects.http.routing.origins import Origins


class OriginsTests(SynchronousTestCase):
    """Origins against the listener that was addressed."""

    def test_always(self) -> None:
        """No origin, a file's and any page of this machine are admitted, whatever the Host."""
        for origin in (
            None, "null", "file://", "file:///home/me/page.html", "http://localhost", "http://localhost:3000",
            "https://LOCALHOST", "http://app.localhost:1", "http://127.0.0.1:8000", "http://127.3.2.1", "http://[::1]:80",
        ):  # fmt: skip
            for host in (None, "127.0.0.1:7890", "example.com"):
                self.assertTrue(Origins().admit(origin, host), origin)

    def test_foreign(self) -> None:
        """Pages of elsewhere are not, however they look."""
        for origin in (
            "https://example.com", "http://localhost.example.com", "http://127.0.0.1.example.com", "http://10.0.0.1",
            "http://example.com@localhost", "http://localhost@example.com", "localhost", "", "http://", "http://localhost/x",
            "http://[::1", "http://[::1]evil.example", "http://localhost:port", "NULL", "*", "null, null",
        ):  # fmt: skip
            self.assertFalse(Origins().admit(origin, "127.0.0.1:7890"), origin)

    def test_own(self) -> None:
        """The listener's own origin is its address with its port, the usual ones left out or not."""
        for origin, host in (
            ("http://10.0.0.1:7890", "10.0.0.1:7890"),
            ("http://10.0.0.1", "10.0.0.1"),
            ("http://10.0.0.1", "10.0.0.1:80"),
            ("https://10.0.0.1:443", "10.0.0.1"),
            ("http://[2001:DB8::1]:7890", "[2001:db8::1]:7890"),
        ):
            self.assertTrue(Origins().admit(origin, host), origin)
        foreign: tuple[tuple[str, str | None], ...] = (
            ("http://10.0.0.1:7890", "10.0.0.1:7891"),
            ("http://10.0.0.1:7890", "10.0.0.2:7890"),
            ("https://10.0.0.1", "10.0.0.1:80"),
            ("http://10.0.0.1:7890", None),
            ("http://10.0.0.1:7890", ""),
            ("http://10.0.0.1:7890", "10.0.0.1:x"),
        )
        for page, asked in foreign:
            self.assertFalse(Origins().admit(page, asked), (page, asked))

    def test_rebinding(self) -> None:
        """A name is no proof where only this machine is served: it may have been bent to point here."""
        self.assertFalse(Origins().admit("http://evil.example:7890", "evil.example:7890"))
        self.assertTrue(Origins(namesTrusted=True).admit("http://me.example:7890", "me.example:7890"))
        self.assertFalse(Origins(namesTrusted=True).admit("http://evil.example:7890", "me.example:7890"))

    def test_strict(self) -> None:
        """Where credentials are checked only the listener's own origin and those added are admitted."""
        origins = Origins(frozenset({"https://a.example"}), namesTrusted=True, strict=True)
        for origin in (None, "http://me.example:7890", "https://me.example:7890", "https://a.example"):
            self.assertTrue(origins.admit(origin, "me.example:7890"), origin)
        for origin in (
            "null", "file://", "file:///home/me/page.html", "http://localhost", "http://127.0.0.1:7890", "http://[::1]",
            "http://me.example", "https://b.example",
        ):  # fmt: skip
            self.assertFalse(origins.admit(origin, "me.example:7890"), origin)
        self.assertTrue(Origins(frozenset({"null"}), strict=True).admit("null", None))

    def test_scheme(self) -> None:
        """Inside TLS a page that came without it is another origin, since anybody on the way could write it."""
        origins = Origins(namesTrusted=True)
        for page, secure, good in (
            ("http://me.example", False, True), ("https://me.example", False, True),
            ("http://me.example", True, False), ("https://me.example", True, True),
            ("ftp://me.example", False, False), ("chrome-extension://me.example", False, False),
        ):  # fmt: skip
            self.assertEqual(origins.admit(page, "me.example", secure), good, page)

    def test_changing(self) -> None:
        """What changes something is never taken from null, a file or another page of this machine, nor by a star."""
        origins = Origins(frozenset({"*", "https://a.example"}))
        for origin in ("null", "file://", "http://localhost:3000", "http://127.0.0.1:1", "https://b.example"):
            self.assertFalse(origins.admit(origin, "127.0.0.1:7890", changing=True), origin)
        for good in (None, "http://127.0.0.1:7890", "https://a.example"):
            self.assertTrue(origins.admit(good, "127.0.0.1:7890", changing=True), good)
        named = Origins(frozenset({"null"}))
        self.assertTrue(named.admit("null", None, changing=True))

    def test_localOwn(self) -> None:
        """A page of this machine's own name is the listener's own, if its port is the listener's."""
        for origin, host, good in (
            ("http://localhost:7890", "localhost:7890", True), ("http://localhost:1", "localhost:7890", False),
        ):  # fmt: skip
            self.assertEqual(Origins().admit(origin, host, changing=True), good, origin)

    def test_added(self) -> None:
        """Added ones are admitted by scheme, name and port, and no others."""
        origins = Origins(frozenset({"https://Example.com", "http://a.example:8080"}))
        for origin in ("https://example.com", "https://example.com:443", "http://a.example:8080", "http://localhost"):
            self.assertTrue(origins.admit(origin, None), origin)
        for origin in ("http://example.com", "https://www.example.com", "https://example.com:444", "http://a.example"):
            self.assertFalse(origins.admit(origin, None), origin)

    def test_all(self) -> None:
        """A star admits everybody."""
        self.assertTrue(Origins(frozenset({"*"})).admit("https://anything.example", None))

    def test_hosts(self) -> None:
        """Where only this machine is served, a name of others in Host is a sign of DNS rebinding."""
        origins = Origins(frozenset({"https://console.example"}))
        self.assertTrue(origins.admitHost(None))
        for host in (
            "127.0.0.1:7890", "localhost", "LOCALHOST:1", "[::1]:7890", "app.localhost", "192.0.2.1",
            "console.example:7890",
        ):  # fmt: skip
            self.assertTrue(origins.admitHost(host), host)
        for host in (
            "", "evil.example", "evil.example:7890", "localhost.evil.example", "[", "a@127.0.0.1", "127.0.0.1.evil",
            "127.0.0.1/x", "\xff", "[::1]evil.example", "[::1]:80evil", "[::1", "::1", "[127.0.0.1]", "[::1%25lo]",
            "[]", "localhost:80evil", "localhost:", "localhost:65536", "localhost: 80", "local\thost", "localhost#",
            "localhost?", "evil.example\\localhost", "localhost,evil.example", "evil.example[::1]",
            "evil.example:80@localhost:80",
            "127.0.0.1.evil.example", "localhost.", "localhost\x00", " localhost", "localhost:80:80",
        ):  # fmt: skip
            self.assertFalse(origins.admitHost(host), host)
            self.assertTrue(Origins(namesTrusted=True).admitHost(host), host)

    @given(st.text(), st.text() | st.none())
    def test_anyText(self, origin: str, host: str | None) -> None:
        """Whatever stands in the headers is decided."""
        self.assertIn(Origins(namesTrusted=True).admit(origin, host), (True, False))
        self.assertIn(Origins().admitHost(host), (True, False))
