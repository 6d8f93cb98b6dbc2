"""The actions a principal may be granted, and the unrestricted rights.

Other rooms store the permissions; this module only defines the values.
"""

from enum import StrEnum

from zope.interface import implementer

from fleximq.interfaces import IRights


class Action(StrEnum):
    """An action of a client on a topic or a path.

    ``SUBSCRIBE`` covers live deliveries, replay and BlipMQ's POLL, ``CONSUME`` the shared queue of a topic (MiniMQ).
    ``REQUEST``, ``NOTIFY``, ``READ`` and ``ADMIN`` apply to paths; the last two to the broker's own.
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
    """Unrestricted rights."""

    def may(self, action: str, name: str) -> bool:
        """Return True."""
        return True

    def mayMatch(self, action: str, pattern: str) -> bool:
        """Return True."""
        return True

    def mayAll(self, action: str) -> bool:
        """Return True."""
        return True


#: The rights of all clients while no permissions are configured.
EVERYTHING = Everything()
