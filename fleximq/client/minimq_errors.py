"""What the broker refuses in the MiniMQ dialect."""

from fleximq.client.errors import Answered


class ProduceFailed(Answered):
    """The broker did not take a message (MiniMQ document, section 7): it is not in the queue.

    ``path`` is its topic, ``id`` its id. Of several that were produced together this is the first; ``others`` holds
    those behind it.
    """

    id: str = ""
    others: "tuple[ProduceFailed, ...]" = ()


class ConsumeFailed(Answered):
    """The broker does not let this client consume; ``path`` is the topic."""
