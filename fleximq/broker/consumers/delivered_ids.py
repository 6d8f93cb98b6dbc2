"""Finds the delivered message that an acknowledgement by id means; ids are chosen by clients and need not differ.

Of several messages with one id the one longest in flight is meant, else one that returned. Most ids are used once and
cost one dict entry; only duplicates have an order.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice

from fleximq.broker.envelope import QueueDelivery
from fleximq.broker.queues.queue import Queue

#: So many namesakes are examined for one in a permitted queue.
_LOOK = 1000


#: The queue of a delivered message, and its tag there. A plain tuple: one is made for each delivery.
DeliveryIndex = tuple[Queue, int]


@dataclass(slots=True, eq=False, repr=False)
class _Namesakes:
    """Delivered messages with the same id, each kind in order of its latest delivery."""

    inFlight: OrderedDict[DeliveryIndex, None] = field(default_factory=OrderedDict)
    returned: OrderedDict[DeliveryIndex, None] = field(default_factory=OrderedDict)


class DeliveredIds:
    """Finds delivered messages by id, over all queues, in O(1) for any number of duplicates."""

    def __init__(self) -> None:
        self._places: dict[str, DeliveryIndex | _Namesakes] = {}

    def __len__(self) -> int:
        return len(self._places)

    def delivered(self, messageId: str, place: DeliveryIndex) -> None:
        """Record a first or repeated delivery."""
        known = self._places.setdefault(messageId, place)
        if not isinstance(known, _Namesakes):
            if known == place:
                return
            first, known = known, _Namesakes()
            (known.inFlight if first[1] in first[0].stored.flying else known.returned)[first] = None
            self._places[messageId] = known
        known.returned.pop(place, None)
        known.inFlight[place] = None

    def deliveredMany(self, queue: Queue, deliveries: Sequence[QueueDelivery]) -> None:
        """Record deliveries of a queue; as :meth:`delivered` for the id of each message."""
        places = self._places
        for tag, message, _ in deliveries:
            messageId = message.message_id or ""
            if messageId in places:
                self.delivered(messageId, (queue, tag))
            else:
                places[messageId] = queue, tag

    def returned(self, messageId: str, place: DeliveryIndex) -> None:
        """Record that the message waits again."""
        known = self._places.get(messageId)
        if isinstance(known, _Namesakes):
            known.inFlight.pop(place, None)
            known.returned[place] = None

    def forget(self, messageId: str, place: DeliveryIndex) -> None:
        """Record that the message was removed."""
        known = self._places.get(messageId)
        if isinstance(known, _Namesakes):
            known.inFlight.pop(place, None)
            known.returned.pop(place, None)
            if known.inFlight or known.returned:
                return
        elif known != place:
            return
        self._places.pop(messageId, None)

    def take(
        self, ids: Iterable[str], may: Callable[[str], bool] | None, unknown: Callable[[str], object]
    ) -> dict[Queue, list[int]]:
        """Forget the messages that acknowledgements of ``ids`` mean, and return their tags by queue.

        ``may`` is as for :meth:`meant`; ``unknown`` is called with each unknown id.
        """
        taken: dict[Queue, list[int]] = {}
        places = self._places
        for messageId in ids:
            place = places.get(messageId)
            if may is not None or type(place) is not tuple:
                place = self.meant(messageId, may)
                if place is None:
                    unknown(messageId)
                    continue
                self.forget(messageId, place)
            else:
                del places[messageId]
            queue, tag = place
            if queue in taken:
                taken[queue].append(tag)
            else:
                taken[queue] = [tag]
        return taken

    def meant(self, messageId: str, may: Callable[[str], bool] | None = None) -> DeliveryIndex | None:
        """Return the queue and tag of the message that an acknowledgement of this id means; None if the id is unknown.

        :param may: tells if the client may acknowledge in a queue of this name; the first 1,000 duplicates are asked.
        """
        known = self._places.get(messageId)
        if may is not None:
            places = (
                chain(known.inFlight, known.returned) if isinstance(known, _Namesakes) else (known,) if known else ()
            )
            return next((place for place in islice(places, _LOOK) if may(place[0].name)), None)
        if isinstance(known, _Namesakes):
            return next(iter(known.inFlight or known.returned))
        return known
