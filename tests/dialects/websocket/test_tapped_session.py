"""A session of a WebSocket with a tap."""

from types import SimpleNamespace
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from fleximq.dialects.websocket.tapped_session import TappedSession


class Session:
    """Remembers its input."""

    def __init__(self) -> None:
        self.told: list[Any] = []
        self.receivedAt = 0.0
        self.reads = SimpleNamespace(received=self.told.append)

    def receivedAll(self, messages: list[bytes]) -> None:
        """Remember messages."""
        self.told.append(messages)


class TappedSessionTests(SynchronousTestCase):
    """What the session gets, and what the tap."""

    def setUp(self) -> None:
        self.session: Any = Session()
        self.tapped: list[bytes] = []
        self.both: Any = TappedSession(self.session, self.tapped.append)

    def test_texts(self) -> None:
        """The session gets the messages at once, the tap each of them."""
        self.both.receivedAll([b"a", b"b"])
        self.assertEqual((self.tapped, self.session.told), ([b"a", b"b"], [[b"a", b"b"]]))

    def test_stream(self) -> None:
        """So it is with the bytes of a stream."""
        self.both.reads.received(b"abc")
        self.assertEqual((self.tapped, self.session.told), ([b"abc"], [b"abc"]))

    def test_attributes(self) -> None:
        """Its attributes are those of the session, also when they are set."""
        self.both.receivedAt = 5.0
        self.assertEqual((self.session.receivedAt, self.both.receivedAt), (5.0, 5.0))
