"""The states of a client connection, the same in all dialects::

WAITING --letIn()--> OPEN --end()--> ENDING --connection lost--> CLOSED
 |   ^|___________________________________^
 v   |
CHECKING (of credentials; back to WAITING when decided. Or of a name by the nodes of a mesh; then OPEN)
"""

from enum import Enum


# A session gets input in WAITING and OPEN only, and messages of others from OPEN on. Each state is left once, but for
# CHECKING, which may be repeated: with other credentials, or when an open client waits for a mesh. ENDING still sends
# answers, for at most LINGER seconds; no state follows CLOSED.
class ConnectionState(Enum):
    """The state of a connection."""

    WAITING = "waiting for its handshake"
    CHECKING = "its credentials are being checked, or its name is being told to the nodes of a mesh"
    OPEN = "open"
    ENDING = "ending"
    CLOSED = "closed"
