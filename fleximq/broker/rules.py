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

    ``durable``: patterns of the topics whose messages are all kept. ``retain``: patterns of those that are kept too,
    and whose latest message a new subscriber gets. ``messageTtl``: patterns, and after how long their messages are not
    delivered any more. ``idempotenceWindow``: how long a message's id is remembered; ``minimqIdempotent``: that of a
    MiniMQ message too. ``durableGrace``: how long a durable subscription outlives its last use. ``history``: how many
    messages of the past a new Identity subscriber gets.
    """

    requestTimeout: float = 0.0
    redelivery: float = 30.0
    maxDeliveries: int = 20
    grace: float = 60.0
    queueExpiry: float = 3600.0
    echoBroadcast: bool = False
    durable: tuple[str, ...] = ()
    retain: tuple[str, ...] = ()
    messageTtl: tuple[tuple[str, float], ...] = ()
    idempotenceWindow: float = 120.0
    minimqIdempotent: bool = False
    durableGrace: float = 86400.0
    history: int = 0
    limits: Limits = field(default_factory=Limits)
