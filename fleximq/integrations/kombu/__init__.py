"""The transport of kombu, and so of Celery: ``broker_url = "fleximq://localhost:7890"``.

The broker routes, orders and stores; this module only translates. An exchange of kombu is a prefix of topics, and a
binding is a source of the queue's definition, so the broker delivers a publication to all queues bound to it. A
delivery belongs to its consumer as long as the connection lasts. A Celery task with an ETA is a schedule of the broker:
no worker holds it before its time. See docs/guides/celery.rst for the differences from other transports.

Importing this module registers the scheme ``fleximq``. The class path ``fleximq.integrations.kombu:Transport`` needs no
import.
"""

try:
    from kombu.transport import TRANSPORT_ALIASES
except ImportError as error:
    raise ImportError('the transport of kombu needs kombu: pip install "fleximq[celery]"') from error

from fleximq.integrations.kombu.channel import Channel
from fleximq.integrations.kombu.transport import Transport

__all__ = ["Channel", "Transport"]

TRANSPORT_ALIASES["fleximq"] = "fleximq.integrations.kombu:Transport"
