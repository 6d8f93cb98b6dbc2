"""Consumer groups of the pipeline as a journal knows them: by name, the last word of each. Pure.

A checkpoint holds all of them, and the notes behind it say what changed. docs/journal-format.rst.
"""

from array import array
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

#: The most groups that a broker keeps, and the most bytes that the name of one may have.
MAX_GROUPS, MAX_GROUP_NAME_BYTES = 1000, 256


class QueueOpened(NamedTuple):
    """A queue of this key takes what has this offset or a later one: ``s:<subscription id>`` or ``q:<topic>``."""

    key: str
    topic: str
    qos: int
    id: int
    owner: str | None
    offset: int


class QueueClosed(NamedTuple):
    """The queue is gone, with all that it held."""

    key: str


class QueueDelivered(NamedTuple):
    """The first ``count`` messages that ever came to a queue were handed out, those of the offsets ``again`` once more.

    They wait for their acknowledgement until ``time`` (microseconds since 1970; 0: for as long as it takes).
    """

    key: str
    count: int  # type: ignore[assignment]  # nobody counts the values of a note
    again: Sequence[int]
    time: int = 0


class QueueAcknowledged(NamedTuple):
    """A queue needs the messages of these offsets no more, whatever the reason; an ``array("Q")``."""

    key: str
    offsets: "array[int]"


class ClientIdsReserved(NamedTuple):
    """All client ids below ``until`` may have been given out."""

    until: int


class GroupProgress(NamedTuple):
    """A consumer group is done with all before the offset ``next``; it said so at ``time`` (microseconds since 1970).

    ``lost`` records it had to do without.
    """

    group: str
    next: int
    time: int
    lost: int = 0


class GroupForgotten(NamedTuple):
    """Nobody wants to know of a consumer group any more."""

    group: str


StateRecord = (
    QueueOpened | QueueClosed | QueueDelivered | QueueAcknowledged | ClientIdsReserved | GroupProgress | GroupForgotten
)


def follow(groups: dict[str, GroupProgress], note: StateRecord) -> None:
    """Let a note change what is known; one that is of no group changes nothing."""
    if isinstance(note, GroupProgress):
        groups[note.group] = note
    elif isinstance(note, GroupForgotten):
        groups.pop(note.group, None)


def dumped(groups: Iterable[GroupProgress]) -> list[list[Any]]:
    """Return groups as a snapshot holds them."""
    return [list(each) for each in groups]


def groupsIn(snapshot: Any) -> dict[str, GroupProgress]:
    """Return the groups of a broker's snapshot, none where it has none."""
    found = snapshot.get("groups") if isinstance(snapshot, dict) else None
    return {each[0]: GroupProgress(*each) for each in found or ()}
