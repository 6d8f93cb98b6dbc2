"""Consumer groups of the pipeline as a journal knows them: by name, the last word of each. Pure.

A checkpoint holds all of them, and the notes behind it say what changed. docs/journal-format.rst.
"""

from collections.abc import Iterable
from typing import Any

from fleximq.values.records import GroupForgotten, GroupProgress, StateRecord

#: The most groups that a broker keeps, and the most bytes that the name of one may have.
MAX_GROUPS, MAX_GROUP_NAME_BYTES = 1000, 256


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
