"""The loops over single messages of queues; all other code of a delivery runs once for many of them. Hot.

Users say ``message_loops.NAME`` at each call: :mod:`fleximq.compiled.choice` replaces the functions by those in C where
it has chosen the compiled core. A message takes 0.04 to 0.3 us in each, in C 0.02 to 0.08 us.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Any, TypeVar

from fleximq.values.message import Message

Key = TypeVar("Key")
Value = TypeVar("Value")
#: A named tuple of a tag, a message and the number of its deliveries.
Delivery = TypeVar("Delivery", bound=tuple[int, Message, int])

_new = tuple.__new__
_BEFORE_OFFSET = Message._fields.index("offset") - 1


def numbered(messages: Sequence[Message], first: int) -> list[Message]:
    """Return the messages with neighbouring offsets from ``first`` on."""
    return [
        _new(Message, (payload, content, qos, messageId, correlation, replyTo, legacy, line, offset, head))
        for offset, (payload, content, qos, messageId, correlation, replyTo, legacy, line, _, head) in enumerate(
            messages, first
        )
    ]


def messagesWith(payloads: Sequence[bytes], others: tuple[Any, ...], first: int) -> list[Message]:
    """Return a message for each payload; ``others`` are their fields after it, but their offsets are neighbouring ones
    from ``first`` on, unless it is 0.
    """
    if not first:
        return [_new(Message, (payload, *others)) for payload in payloads]
    before, after = others[:_BEFORE_OFFSET], others[_BEFORE_OFFSET + 1 :]
    return [_new(Message, (payload, *before, offset, *after)) for offset, payload in enumerate(payloads, first)]


def sizeOf(payloads: Iterable[bytes]) -> int:
    """Return the bytes of all payloads."""
    return sum(map(len, payloads))


def stepping(numbers: Sequence[int], step: int) -> range | None:
    """Return the range of exactly these numbers, with this step between them; None if there is none."""
    if not numbers:
        return None
    found = range(numbers[0], numbers[-1] + step, step)
    return found if len(found) == len(numbers) and [*found] == [*numbers] else None


def copies(message: Message, payloads: Sequence[bytes], offsets: Sequence[int]) -> list[Message]:
    """Return copies of a message, each with one of these payloads and offsets."""
    _, content, qos, messageId, correlation, replyTo, legacy, line, _, head = message
    return [
        _new(Message, (payload, content, qos, messageId, correlation, replyTo, legacy, line, offset, head))
        for payload, offset in zip(payloads, offsets, strict=True)
    ]


def offsetsOf(messages: Iterable[Message]) -> list[int]:
    """Return the offsets of those messages that are in the journal."""
    return [message[8] for message in messages if message[8]]


def withQos(messages: Sequence[Message], qos: int) -> Sequence[Message]:
    """Return the messages with this QoS; those that have it are not copied, nor is the sequence if all have it."""
    for message in messages:
        if message[2] != qos:
            return [each if each.qos == qos else each._replace(qos=qos) for each in messages]
    return messages


def firstDeliveries(
    kind: type[Delivery], tags: Sequence[int], step: int, more: int, messages: Sequence[Message]
) -> list[Delivery]:
    """Return the first deliveries of messages, each with one of these tags times ``step`` plus ``more``."""
    return [_new(kind, (tag * step + more, message, 1)) for tag, message in zip(tags, messages, strict=True)]


def addSizes(sizes: dict[int, int], deliveries: Iterable[tuple[int, Message, int]]) -> int:
    """Add the bytes of each payload by the tag of its delivery, and return their sum."""
    size = 0
    for tag, message, _ in deliveries:
        sizes[tag] = length = len(message[0])
        size += length
    return size


def putEach(items: dict[Key, Value], keys: Iterable[Key], values: Iterable[Value]) -> None:
    """Put values into a dict, each by its key."""
    items.update(zip(keys, values, strict=True))


def popFirst(items: deque[Value], number: int) -> list[Value]:
    """Remove and return so many first items; there are so many."""
    popleft = items.popleft
    return [popleft() for _ in range(number)]


def popEach(items: dict[Key, Value], keys: Iterable[Key]) -> list[Value | None]:
    """Remove the items with these keys, and return their values; None for each that is not there."""
    return [*map(items.pop, keys, repeat(None))]


def quotients(numbers: Iterable[int], divisor: int, modulus: int, remainder: int) -> list[int]:
    """Return the numbers that have this remainder by ``modulus``, divided by ``divisor``."""
    return [number // divisor for number in numbers if number % modulus == remainder]


_LOOPS = numbered, copies, offsetsOf, withQos, firstDeliveries, addSizes, putEach, popFirst, popEach, quotients
_RUNS = messagesWith, sizeOf, stepping
#: The functions in pure Python, by name.
REFERENCE: dict[str, Any] = {each.__name__: each for each in (*_LOOPS, *_RUNS)}


def use(others: Any) -> None:
    """Replace these functions by those of the same names of another module."""
    globals().update({name: getattr(others, name) for name in REFERENCE})
