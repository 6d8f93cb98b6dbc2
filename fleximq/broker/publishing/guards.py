"""Whether those subscribers that lose nothing have room for a run; all of them are asked before any is filled.

They do not know yet what is on its way to them through the journal, so that is added to what they are asked for.
"""

from typing import Any, NamedTuple

from fleximq.broker.envelope import Envelope
from fleximq.broker.queues.waiting_messages import OVERHEAD, costOf
from fleximq.broker.topics.topic_table import Topic


class Admitted(NamedTuple):
    """What fits of a run: places of its messages.

    ``size`` are the bytes in those that do, ``words`` say why others do not.
    """

    taken: list[int]
    refused: list[int]
    size: int
    words: str


def admitsAll(topic: Topic, count: int, size: int) -> bool:
    """Tell whether a run of so many messages, with so many bytes in them, fits as a whole."""
    count += topic.owed
    size += topic.owedBytes
    return all(guard.admits(count, size) is None for guard in topic.guards.values())


def admitted(envelope: Envelope, body: Any) -> Admitted:
    """Return which messages of a run fit: each one that still has room beside those before it."""
    topic = envelope.topic
    taken: list[int] = []
    refused: list[int] = []
    words = ""
    size = 0
    for place, message in enumerate(envelope.source.messages(body)):
        more = size + costOf(message) - OVERHEAD
        reason = _reason(topic, topic.owed + len(taken) + 1, topic.owedBytes + more)
        if reason is None:
            taken.append(place)
            size = more
        else:
            refused.append(place)
            words = reason
    return Admitted(taken, refused, size, words)


def _reason(topic: Topic, count: int, size: int) -> str | None:
    reasons = (guard.admits(count, size) for guard in topic.guards.values())
    return next((reason for reason in reasons if reason is not None), None)
