"""What a queue has handed out and not heard of again.

Every delivery of a queue is hidden for the same time, so the order of handing out is the order of the deadlines:
the first entry is always the first one due. An OrderedDict rather than a dict, because finding the first entry of
a dict whose front was emptied is linear.
"""

from collections import OrderedDict
from collections.abc import Sequence

from fleximq.broker.envelope import Delivery

#: The tags of what one holder has in flight.
Held = set[int]


class InFlight:
    """Deliveries by tag, in order of their deadlines, and by the holder they were given to."""

    __slots__ = ("_handed", "_held")

    def __init__(self) -> None:
        self._handed: OrderedDict[int, tuple[Delivery, float, Held | None]] = OrderedDict()
        self._held: dict[object, Held] = {}

    def __len__(self) -> int:
        """Return the number of deliveries."""
        return len(self._handed)

    def __contains__(self, tag: int) -> bool:
        """Tell whether the delivery with this tag is in flight."""
        return tag in self._handed

    def hand(self, delivery: Delivery, due: float, holder: object) -> None:
        """Note a delivery that is due back at ``due``, never earlier than the one before.

        ``holder`` is any hashable object; it is remembered until :meth:`leave`. None is nobody.
        """
        held = self._heldBy(holder)
        if held is not None:
            held.add(delivery.tag)
        self._handed[delivery.tag] = (delivery, due, held)

    def handMany(self, deliveries: Sequence[Delivery], due: float, holder: object) -> None:
        """Note deliveries that are due back together; as :meth:`hand` for each."""
        held = self._heldBy(holder)
        if held is not None:
            held.update([delivery.tag for delivery in deliveries])
        handed = self._handed
        for delivery in deliveries:
            handed[delivery.tag] = (delivery, due, held)

    def remove(self, tag: int) -> Delivery | None:
        """Forget a delivery and return it; None if it is not in flight."""
        handed = self._handed.pop(tag, None)
        if handed is None:
            return None
        delivery, _, held = handed
        if held is not None:
            held.discard(tag)
        return delivery

    def leave(self, holder: object) -> tuple[Held, list[int]]:
        """Forget a holder; what it held stays in flight, and is told by :meth:`isHeld` from what others are given.

        :return: what to ask :meth:`isHeld` with, and the tags of what it held, ascending.
        """
        held = self._held.pop(holder, set())
        return held, sorted(held)

    def isHeld(self, tag: int, held: Held) -> bool:
        """Tell whether the delivery with this tag is in flight and still that of a holder who left."""
        return tag in held and tag in self._handed and self._handed[tag][2] is held

    def due(self, now: float, most: int) -> list[int]:
        """Return the tags of deliveries that are due by ``now``, first due first, at most so many."""
        tags: list[int] = []
        for tag, (_, due, _) in self._handed.items():
            if due > now or len(tags) >= most:
                break
            tags.append(tag)
        return tags

    def firstDue(self) -> float | None:
        """Return when the next delivery is due, None if nothing is in flight."""
        for _, due, _ in self._handed.values():
            return due
        return None

    def dues(self) -> list[tuple[int, float]]:
        """Return the tags of all deliveries with the time when each is due, first due first."""
        return [(tag, due) for tag, (_, due, _) in self._handed.items()]

    def get(self, tag: int) -> Delivery | None:
        """Return the delivery with this tag; None if it is not in flight."""
        handed = self._handed.get(tag)
        return None if handed is None else handed[0]

    def replace(self, delivery: Delivery) -> None:
        """Put this in the place of the one in flight with the same tag."""
        _, due, held = self._handed[delivery.tag]
        self._handed[delivery.tag] = (delivery, due, held)

    def deliveries(self) -> list[Delivery]:
        """Return all deliveries, first due first."""
        return [delivery for delivery, _, _ in self._handed.values()]

    def clear(self) -> None:
        """Forget everything, the holders included."""
        self._handed.clear()
        self._held.clear()

    def _heldBy(self, holder: object) -> Held | None:
        """Return the tags of what a holder has, which grow with it; None for nobody."""
        if holder is None:
            return None
        held = self._held.get(holder)
        if held is None:
            held = self._held[holder] = set()
        return held
