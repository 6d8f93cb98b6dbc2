"""What a broker tells about itself as a whole, wherever it is asked."""

from typing import TYPE_CHECKING, Any

from fleximq import __version__

if TYPE_CHECKING:
    from fleximq.broker.broker import Broker


def overview(broker: "Broker") -> dict[str, Any]:
    """Return name, version, uptime in seconds, how much of everything there is, the journal, and what was counted.

    The journal is None without one on disk; otherwise a map with the ``state`` ("ok" or "read-only") and the
    ``reason``, what was lost or cut off, and how large it is.
    """
    return {
        "name": "FlexiMQ",
        "version": __version__,
        "uptime": round(broker.clock.seconds() - broker.started, 3),
        "clients": len(broker.clients),
        "topics": len(broker.topics),
        "queues": len(broker.queues),
        "subscriptions": len(broker.subscriptions),
        "groups": len(broker.groups),
        "journal": broker.journalHealth(),
        "counts": dict(broker.counts.events),
    }
