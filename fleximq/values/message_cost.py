"""The cost of messages: the bytes that they count against the bounds of queues."""

from collections.abc import Callable, Iterable, Sequence

from fleximq.values.message import Message
from fleximq.values.message_run import MessageRun

#: Bytes that a message costs in addition to its contents, for the bounds of queues. Measured on CPython 3.11: 170 in a
#: backlog, 216 with an id.
OVERHEAD = 256
#: More than any cost.
ANY = 1 << 62
#: The same as :func:`measure`, ten times as fast, where :mod:`fleximq.compiled.choice` has chosen the compiled core.
compiled: Callable[[Iterable[Message], int], tuple[int, int]] | None = None


def measure(messages: Iterable[Message], most: int = ANY) -> tuple[int, int]:
    """Return how many of the first messages it takes to cost ``most``, and their cost. 0.1 us a message.

    A message costs its payload, its ids, a header of more bytes than :data:`OVERHEAD`, and that.
    """
    if compiled is not None:
        return compiled(messages, most)
    # By index: unpacking takes longer. Most messages have no id but their own.
    count = size = 0
    for message in messages:
        if size >= most:
            break
        count += 1
        size += len(message[0]) + OVERHEAD
        if (messageId := message[3]) is not None:
            size += len(messageId) if messageId.isascii() else 4 * len(messageId)
        if message[4] is not None or message[5] is not None:
            size += _widest(message[4]) + _widest(message[5])
        if (head := message[9]) is not None and (header := len(head[1])) > OVERHEAD:
            size += header
    return count, size


def cost(messages: Sequence[Message]) -> int:
    """Return the cost of these messages in a queue's bytes. 0.1 us a message, less than by :func:`measure`, and nothing
    for those of a run.
    """
    if type(messages) is MessageRun:
        return messages.size + messages.each * len(messages.payloads)
    if compiled is not None:
        return compiled(messages, ANY)[1]
    size = OVERHEAD * len(messages)
    for message in messages:
        size += len(message[0])
        if (messageId := message[3]) is not None:
            size += len(messageId) if messageId.isascii() else 4 * len(messageId)
        if message[4] is not None or message[5] is not None:
            size += _widest(message[4]) + _widest(message[5])
        if (head := message[9]) is not None and (header := len(head[1])) > OVERHEAD:
            size += header
    return size


def costOf(message: Message) -> int:
    """Return the cost of one message."""
    return cost((message,))


def _widest(messageId: str | None) -> int:
    """Return the most bytes that a text takes in memory."""
    return 0 if messageId is None else len(messageId) if messageId.isascii() else 4 * len(messageId)
