"""Credentials in requests: what is shown, and that nothing of it is left."""

from base64 import b64encode
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from fleximq.dialects.http.format.request_head import (
    RequestHead,
    UnreadableCredentials,
    credentialsIn,
    withoutCredentials,
)
from fleximq.security.credentials import ApiKey, Password, Token


def raw(target: str = "/", *fields: str) -> bytes:
    """Return the head of a request."""
    return "\r\n".join([f"GET {target} HTTP/1.1", "Host: here", *fields]).encode()


def shown(target: str = "/", *fields: str) -> Any:
    """Return what a request shows."""
    return credentialsIn(RequestHead.parse(raw(target, *fields)))


def basic(text: str) -> str:
    """Return the field of Basic."""
    return f"Authorization: Basic {b64encode(text.encode()).decode()}"


class ShownTests(SynchronousTestCase):
    """What a request shows."""

    def test_nothing(self) -> None:
        """Most show nothing."""
        for target in ("/", "/?", "/?x=token&y", "/token=x", "/?Token=x", "/?tokens=x"):
            self.assertIsNone(shown(target))

    def test_header(self) -> None:
        """Bearer and Basic, whose names may be written in any case."""
        for fields, credentials in (
            ("Authorization: Bearer abc.def-_", Token("abc.def-_")),
            ("authorization: BEARER  x ", Token("x")),
            (basic("user:pass:word"), Password("user", "pass:word")),
            (basic("käthe:"), Password("käthe", "")),
            (basic(":x").replace("Basic", "basic"), Password("", "x")),
        ):
            self.assertEqual(shown("/", fields), credentials)

    def test_query(self) -> None:
        """A parameter, percent-encoded."""
        for target, credentials in (
            ("/?token=abc", Token("abc")),
            ("/ws?a=b&token=a%2Bb%3D%26+c&d", Token("a+b=& c")),
            ("/?api_key=k%C3%A4se", ApiKey("käse")),
            ("/?%74oken=x", Token("x")),
            ("/?token", Token("")),
            ("http://here/?token=x", Token("x")),
        ):
            self.assertEqual(shown(target), credentials)

    def test_unreadable(self) -> None:
        """What is malformed, of another scheme, or more than one thing is shown, but nobody can look into it."""
        several: tuple[tuple[Any, ...], ...] = (
            ("/", "Authorization: Digest x"),
            ("/", "Authorization: Basic !!"),
            ("/", basic("nocolon")),
            ("/", f"Authorization: Basic {b64encode(bytes([255, 58])).decode()}"),
            ("/", "Authorization: Bearer"),
            ("/", "Authorization:"),
            ("/", "Authorization: Bearer a", "Authorization: Bearer a"),
            ("/?token=a", "Authorization: Bearer a"),
            ("/?token=a&token=a",),
            ("/?token=a&api_key=a",),
        )
        for request in several:
            self.assertIsInstance(shown(*request), UnreadableCredentials, request)


class WithoutTests(SynchronousTestCase):
    """What is left of a request."""

    def test_left(self) -> None:
        """Everything but credentials is left as it stands."""
        for before, after in (
            (raw("/"), raw("/")),
            (raw("/?a=%20+b&&c"), raw("/?a=%20+b&&c")),
            (raw("/ws?token=x"), raw("/ws")),
            (raw("/?a=b&token=x&c=d"), raw("/?a=b&c=d")),
            (raw("/?%61pi_key=x&a"), raw("/?a")),
            (
                raw("/", "X: y", "authorization:Bearer x", "Z: Authorization: a"),
                raw("/", "X: y", "Z: Authorization: a"),
            ),
        ):
            self.assertEqual(withoutCredentials(before), after)

    @given(
        st.lists(st.sampled_from(["token", "api_key", "to%6ben", "a", ""]), max_size=5),
        st.booleans(),
    )
    def test_nothingStays(self, names: list[str], header: bool) -> None:
        """Behind the door a request shows nothing, and its secret does not stand in it."""
        target = "/?" + "&".join(f"{name}=s3cret" if name not in ("a", "") else name for name in names)
        left = withoutCredentials(raw(target, *["Authorization: Bearer s3cret"] * header))
        self.assertNotIn(b"s3cret", left)
        self.assertIsNone(credentialsIn(RequestHead.parse(left)))

    def test_repr(self) -> None:
        """The value of a request does not tell them either."""
        head = RequestHead.parse(raw("/?token=s3cret", "Authorization: Bearer s3cret"))
        self.assertNotIn("s3cret", repr(head) + repr(credentialsIn(head)))
