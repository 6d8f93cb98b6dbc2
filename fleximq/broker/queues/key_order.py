"""The order of keys in a queue: of messages with the same key only one is out at a time, the first to arrive.

A message is *out* from its delivery until it leaves the queue for good, also while it waits for its next attempt. Later
messages of its key are *parked* when their turn would be, and return to the head of the queue one after the other. Many
messages of few keys fill the place for parked ones: then the queue delivers no others until some have left.
"""

from collections.abc import Iterator, Mapping
from hashlib import blake2b

from fleximq.broker.envelope import QueueDelivery
from fleximq.broker.queues.message_place import ONLY_IN_JOURNAL
from fleximq.values.message import Message

#: Maximum number of parked messages of a queue: 20 MB.
MAX_PARKED = 100_000
#: So many are parked in one turn of the reactor: 20 ms.
PARKED_AT_ONCE = 10_000
#: Keys longer than this are stored as hashes.
_LONG = 64

Key = str | bytes


def keyOf(message: Message) -> Key | None:
    """Return the key of a message, None without one; a hash of a long one."""
    key = None if message.head is None else message.head.key
    if key is None or len(key) <= _LONG:
        return key
    return blake2b(b"t" + key.encode() if isinstance(key, str) else b"b" + key, digest_size=16).digest()


class KeyOrder:
    """The keys of the messages that are out, and the parked messages; O(1) each.

    ``unread`` are the tags of messages in flight whose keys must be read from the journal, with their offsets; until
    then the queue delivers nothing.
    """

    __slots__ = ("_count", "_keys", "_out", "_parked", "unread")

    def __init__(self) -> None:
        self._out: dict[Key, int] = {}
        self._keys: dict[int, Key] = {}  # of those that are out or parked
        self._parked: dict[Key, dict[int, QueueDelivery]] = {}
        self._count = 0
        self.unread: dict[int, int] = {}

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[QueueDelivery]:
        """Iterate over the parked messages."""
        return (delivery for parked in self._parked.values() for delivery in parked.values())

    @property
    def isFull(self) -> bool:
        """Whether no more messages can be parked."""
        return self._count >= MAX_PARKED

    def admits(self, tag: int, key: Key | None) -> bool:
        """Tell whether a message can be delivered now; it is out then."""
        if key is None:
            return True
        if self._out.setdefault(key, tag) != tag:
            return False
        self._keys[tag] = key
        return True

    def meet(self, delivery: QueueDelivery) -> None:
        """Add a message that is in flight already."""
        if delivery.message.payload is ONLY_IN_JOURNAL:
            self.unread[delivery.tag] = delivery.message.offset
        else:
            self.admits(delivery.tag, keyOf(delivery.message))

    def read(self, keys: Mapping[int, Key | None], until: int) -> None:
        """Add the keys of messages in flight by offset, as they were read; those missing up to an offset are lost."""
        for tag, offset in sorted(self.unread.items()):
            if offset <= until:
                del self.unread[tag]
                self.admits(tag, keys.get(offset))

    def park(self, delivery: QueueDelivery, key: Key | None) -> None:
        """Add a message, with its earlier ``attempts``, that waits until an earlier one with its key is settled."""
        if key is None:
            raise ValueError("a message without a key is never parked")
        parked = self._parked.setdefault(key, {})
        isLater = not parked or delivery.tag > next(reversed(parked))
        parked[delivery.tag] = delivery
        if not isLater:  # it was in flight when the order began
            self._parked[key] = dict(sorted(parked.items()))
        self._keys[delivery.tag] = key
        self._count += 1

    def remove(self, tag: int) -> QueueDelivery | None:
        """Remove a parked message, and return it; None if it is not parked."""
        key = self._keys.get(tag)
        if key is None or self._out.get(key) == tag:
            return None
        del self._keys[tag]
        return self._take(key, tag)

    def ended(self, tag: int) -> QueueDelivery | None:
        """Record that a message that was out has left; return the parked one that is out in its place, if any."""
        self.unread.pop(tag, None)
        key = self._keys.get(tag)
        if key is None or self._out[key] != tag:
            return None
        del self._keys[tag]
        if key not in self._parked:
            del self._out[key]
            return None
        self._out[key] = following = next(iter(self._parked[key]))
        return self._take(key, following)

    def _take(self, key: Key, tag: int) -> QueueDelivery:
        parked = self._parked[key]
        delivery = parked.pop(tag)
        if not parked:
            del self._parked[key]
        self._count -= 1
        return delivery

    def clear(self) -> None:
        """Forget all."""
        self._out.clear()
        self._keys.clear()
        self._parked.clear()
        self._count = 0
        self.unread.clear()
