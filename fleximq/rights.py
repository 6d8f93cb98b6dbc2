"""What somebody may do in the broker, as values that every room knows.

Permissions are made and kept elsewhere; here stand the words for what can be permitted, and the rights of those whom
nobody restricts.
"""

from enum import StrEnum

from zope.interface import implementer

from fleximq.interfaces import IRights


class Action(StrEnum):
    """Something that a client does to a topic, or to a path.

    ``SUBSCRIBE`` covers live deliveries, replay and BlipMQ's POLL, ``CONSUME`` the shared queue of a topic (MiniMQ).
    ``REQUEST``, ``NOTIFY``, ``READ`` and ``ADMIN`` are about paths; the last two are about the broker's own.
    """

    PUBLISH = "publish"
    SUBSCRIBE = "subscribe"
    CONSUME = "consume"
    REQUEST = "request"
    NOTIFY = "notify"
    BROADCAST = "broadcast"
    READ = "read"
    ADMIN = "admin"


@implementer(IRights)
class Everything:
    """The rights of somebody whom nothing is forbidden."""

    def may(self, action: str, name: str) -> bool:
        """Say yes."""
        return True

    def mayMatch(self, action: str, pattern: str) -> bool:
        """Say yes."""
        return True

    def mayAll(self, action: str) -> bool:
        """Say yes."""
        return True


#: The rights of all clients while no permissions are configured.
EVERYTHING = Everything()
