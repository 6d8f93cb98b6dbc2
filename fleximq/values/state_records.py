"""State records of queues, consumer groups, schedules and values: the changes that a journal stores. Pure.

They are stored in NOTES frames (docs/reference/journal-format.rst, "State records"). A checkpoint contains the state of
all consumer groups.
"""

from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

#: Maximum number of groups, and maximum size of a group's name in bytes.
MAX_GROUPS, MAX_GROUP_NAME_BYTES = 1000, 256


class QueueOpened(NamedTuple):
    """A queue receives messages from this offset on. Its key is ``s:<subscription id>``, ``q:<topic>``, or for a reply
    queue ``r:<topic>``.
    """

    key: str
    topic: str
    qos: int
    id: int
    owner: str | None
    offset: int


class QueueClosed(NamedTuple):
    """The queue was deleted, with all its messages."""

    key: str


class QueueDefined(NamedTuple):
    """A queue's definition, from this offset on, as :meth:`fleximq.values.queue_definition.QueueDefinition.dump`
    returns it; None: it has none any more.
    """

    name: str
    definition: dict[str, Any] | None
    offset: int


class QueueDelivered(NamedTuple):
    """The first ``count`` messages of a queue were delivered, those of the offsets ``again`` once more; they are hidden
    until ``time`` (microseconds since 1970; 0: they were dropped).
    """

    key: str
    count: int  # type: ignore[assignment]  # tuple.count is not used
    again: Sequence[int]
    time: int = 0


class QueueAcknowledged(NamedTuple):
    """A queue no longer needs the messages of these offsets; an ``array("Q")``."""

    key: str
    offsets: "array[int]"


class QueueMoved(NamedTuple):
    """The messages of these offsets have left the front of the queue, were delivered ``attempts`` times (0: not yet),
    and are hidden until ``time`` (microseconds since 1970; 0: they wait).
    """

    key: str
    offsets: Sequence[int]
    attempts: int
    time: int


class ClientIdsReserved(NamedTuple):
    """All client ids below ``until`` may be in use."""

    until: int


class GroupProgress(NamedTuple):
    """At ``time`` (microseconds since 1970) a consumer group had processed all records before ``next``, except ``lost``
    of them.
    """

    group: str
    next: int
    time: int
    lost: int = 0


class GroupForgotten(NamedTuple):
    """A consumer group was deleted."""

    group: str


class SchedulesEnded(NamedTuple):
    """The schedules of the waiting records at these offsets ended without a publication; ``dues`` are their times in
    milliseconds since 1970.
    """

    offsets: Sequence[int]
    dues: Sequence[int]


class RepeatDefined(NamedTuple):
    """A recurring schedule has this definition from now on; None: it was removed."""

    name: str
    definition: Mapping[str, Any] | None


class ValuesRemoved(NamedTuple):
    """The values with these revisions, the offsets of their records, were deleted or have expired."""

    revisions: Sequence[int]


StateRecord = (
    QueueOpened
    | QueueClosed
    | QueueDefined
    | QueueDelivered
    | QueueAcknowledged
    | ClientIdsReserved
    | GroupProgress
    | GroupForgotten
    | SchedulesEnded
    | RepeatDefined
    | QueueMoved
    | ValuesRemoved
)


def follow(groups: dict[str, GroupProgress], note: StateRecord) -> None:
    """Apply a record to the known groups; records of queues and clients change none."""
    if isinstance(note, GroupProgress):
        groups[note.group] = note
    elif isinstance(note, GroupForgotten):
        groups.pop(note.group, None)


def dumped(groups: Iterable[GroupProgress]) -> list[list[Any]]:
    """Return groups in the form of a snapshot."""
    return [list(each) for each in groups]


def groupsIn(snapshot: Any) -> dict[str, GroupProgress]:
    """Return the groups of a broker's snapshot, none if it has none."""
    found = snapshot.get("groups") if isinstance(snapshot, dict) else None
    return {each[0]: GroupProgress(*each) for each in found or ()}
