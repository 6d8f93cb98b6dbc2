"""The actions a principal may be granted, and the unrestricted rights."""

from dataclasses import dataclass
from enum import StrEnum

from zope.interface import implementer

from fleximq.interfaces import IRights
from fleximq.limits import NO_LIMITS


class Action(StrEnum):
    """An action of a client on a topic or a path.

    ``SUBSCRIBE`` covers live deliveries, replay and BlipMQ's POLL, ``CONSUME`` the shared queue of a topic (MiniMQ).
    ``REQUEST``, ``NOTIFY``, ``READ`` and ``ADMIN`` apply to paths; the last two to the broker's own. ``PROGRESS``
    applies to the names of consumer groups, ``SERVE`` to the names under which FlexiMQ clients join.
    """

    PUBLISH = "publish"
    SUBSCRIBE = "subscribe"
    CONSUME = "consume"
    REQUEST = "request"
    NOTIFY = "notify"
    BROADCAST = "broadcast"
    READ = "read"
    PROGRESS = "progress"
    SERVE = "serve"
    ADMIN = "admin"


@implementer(IRights)
@dataclass(frozen=True, eq=False)
class Everything:
    """The right to every action, to ``admin`` only if ``admin`` is set."""

    admin: bool
    limits = NO_LIMITS

    def may(self, action: str, name: str) -> bool:
        return self.admin or action != Action.ADMIN

    def mayMatch(self, action: str, pattern: str) -> bool:
        return True

    def mayAll(self, action: str) -> bool:
        return True

    def forClient(self, clientId: int) -> "Everything":
        return self


#: The rights of the broker itself, and of all clients of a broker that serves only its own machine without permissions.
EVERYTHING = Everything(admin=True)
#: The rights of all clients of other brokers without permissions.
ALL_BUT_ADMIN = Everything(admin=False)
#: Both permit every action but ``admin``, so only that one needs to be checked.
UNRESTRICTED = (EVERYTHING, ALL_BUT_ADMIN)
