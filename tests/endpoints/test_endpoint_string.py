"""Endpoint strings and their parts, which are those that Twisted finds."""

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.endpoints import quoteStringArgument
from twisted.protocols.haproxy._parser import unparseEndpoint
from twisted.trial.unittest import SynchronousTestCase

from fleximq.endpoints.endpoint_string import BACKLOG, EndpointString, layersOf, withBacklog


class EndpointStringTests(SynchronousTestCase):
    """One string."""

    def test_argumentsAreThoseWithoutNameOfWhichKindComesFirst(self) -> None:
        """Arguments are those without a name, of which a kind comes first."""
        self.assertEqual(
            EndpointString.parse("unix:/run/a:mode=660"),
            ("unix:/run/a:mode=660", "unix", ("/run/a",), {"mode": "660"}),
        )

    def test_backslashMakesCharacterBehindItOrdinaryOneInNamesToo(self) -> None:
        """A backslash makes the character behind it an ordinary one, in names too; one at the end is nothing."""
        self.assertEqual(
            EndpointString.parse(r"a\:b:c\=d:e\f=g=h\\:i" + "\\")[1:], ("a:b", ("c=d", "i"), {"ef": "g=h\\"})
        )

    @given(st.lists(st.text(), max_size=3), st.dictionaries(st.text(), st.text(), max_size=3))
    def test_thereAndBack(self, arguments: list[str], named: dict[str, str]) -> None:
        """Whatever Twisted writes as a string is found in it again."""
        quoted = [each.replace("=", "\\=") for each in map(quoteStringArgument, arguments)]
        text = ":".join(
            ["kind", *quoted, *(unparseEndpoint((), {name.replace("=", "-"): named[name]}) for name in named)]
        )
        parsed = EndpointString.parse(text)
        self.assertEqual(
            parsed[1:], ("kind", tuple(arguments), {name.replace("=", "-"): value for name, value in named.items()})
        )

    def test_proxyTLSAndWhatIsBehindThem(self) -> None:
        """A proxy, TLS, and what is behind them."""
        for text, kinds in {
            "tcp:1": ["tcp"],
            "haproxy:haproxy:unix:/x": ["haproxy", "haproxy", "unix"],
            r"fleximqtls:cert=/a\:b:inner=tcp\:1\:interface=\:\:": ["fleximqtls", "tcp"],
            r"FlexiMQTLS:inner=HAProxy\:unix\:/a\\\:b:cert=c": ["FlexiMQTLS", "HAProxy", "unix"],
            "fleximqtls:cert=x": ["fleximqtls", ""],
            "": [""],
        }.items():
            self.assertEqual([layer.kind for layer in layersOf(text)], kinds, text)
        *_, inmost = layersOf(r"FlexiMQTLS:inner=HAProxy\:unix\:/a\\\:b:cert=c")
        self.assertEqual(inmost.arguments, ("/a:b",))

    @given(st.text(alphabet="fleximqtls:inner=hapoy\\"))
    def test_anyText(self, text: str) -> None:
        """There is an end to the layers of any text."""
        self.assertLessEqual(len(list(layersOf(text))), len(text) + 1)

    def test_backlog(self) -> None:
        """Only Twisted's own kinds are given one, behind a proxy too, and only where nothing was said."""
        for text in ("tcp:1", "unix:/x:mode=600", "ssl:1:privateKey=k", "haproxy:tcp:1"):
            self.assertEqual(withBacklog(text), f"{text}:backlog={BACKLOG}")
        for text in ("tcp:1:backlog=5", "tcp:1:127.0.0.1", "systemd:domain=INET:index=0", "tcp:1\\"):
            self.assertEqual(withBacklog(text), text)
