"""Counted events: a text for observers and ``/broker/about``, with the family and the label that metrics need."""

from enum import Enum

#: The reason of a disconnect that ``/metrics`` counts separately, too.
SLOW_CONSUMER = "slow consumer"


class EventFamily(Enum):
    """Families of events that have a metric of their own; the value is the beginning of their texts."""

    JOINED = "joined: "
    LEFT = "left: "
    NOT_LET_IN = "not let in: "
    ERROR = "error: "
    DROPPED = "dropped: "
    JOURNAL = "journal: "
    REFUSED_MESSAGES = "refused: journal"
    REFUSED_CONNECTIONS = "refused: "
    EXPIRED = "expired: "
    LOST = "lost: "
    REDELIVERED = "redelivered"
    DEAD_LETTERS = "dead letters: "
    REPEATED = "repeated publications"


class CountedEvent(str):
    """An event of a family, equal to its text: the beginning that its family has, then its label."""

    __slots__ = ("family", "label")

    family: EventFamily
    label: str

    def __new__(cls, family: EventFamily, label: str = "") -> "CountedEvent":
        event = super().__new__(cls, family.value + label)
        event.family = family
        event.label = label
        return event
