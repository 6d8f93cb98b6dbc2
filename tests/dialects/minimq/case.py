"""Talking MiniMQ, for tests."""

from typing import Any

from fleximq.dialects.minimq import MiniFactory
from tests.dialects.conversations import ConversationCase, Peer, makeContext

#: The ids that v1.0 messages get in tests, in this order.
NEW_IDS = ("new-1", "new-2", "new-3")


class MiniCase(ConversationCase):
    """A conversation with a MiniMQ listener."""

    def setUp(self) -> None:
        """Open the listener."""
        super().setUp()
        self.listen()

    def listen(self, **settings: Any) -> None:
        """Open it anew, with other settings."""
        self.context = makeContext(self.clock, **settings)
        self.factory = MiniFactory(self.context, iter(NEW_IDS).__next__)

    def peer(self) -> Peer:
        """Return somebody who has just connected."""
        return self.connect(self.factory)
