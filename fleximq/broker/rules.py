"""How the broker is set: the times and sizes that its rules depend on."""

from dataclasses import dataclass, field

from fleximq.limits import Limits


@dataclass(frozen=True, slots=True)
class Rules:
    """Times are in seconds.

    ``requestTimeout``: after it an unanswered REQ gets 504 (0: never). ``redelivery``: how long a message handed
    out stays hidden while it is not acknowledged. ``maxDeliveries``: after so many it becomes a dead letter.
    ``grace``: how long a subscription outlives its last connection. ``queueExpiry``: how long a work queue lives
    without a consumer. ``echoBroadcast``: a BCAST reaches its sender too.
    """

    requestTimeout: float = 0.0
    redelivery: float = 30.0
    maxDeliveries: int = 20
    grace: float = 60.0
    queueExpiry: float = 3600.0
    echoBroadcast: bool = False
    limits: Limits = field(default_factory=Limits)
