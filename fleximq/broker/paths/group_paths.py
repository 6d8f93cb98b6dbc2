"""``/pipeline`` paths: consumer groups report their progress, and clients list it; 503 without a journal on disk."""

from collections.abc import Callable, Sequence
from functools import partial
from operator import attrgetter
from typing import Any

from fleximq.broker.authorization import permit
from fleximq.broker.broker import Broker
from fleximq.broker.envelope import ConnectedClient
from fleximq.broker.paths.arguments import (
    Answer,
    Arguments,
    Listing,
    Path,
    answerStored,
    array,
    journalOf,
    number,
    page,
    text,
)
from fleximq.broker.paths.rows import groupRow
from fleximq.errors import BadRequest
from fleximq.rights import Action
from fleximq.values.records import StoredBatch
from fleximq.values.state_records import MAX_GROUP_NAME_BYTES, MAX_GROUPS, GroupProgress

#: The maximum time in milliseconds that fits in microseconds, too.
_MAX_MILLISECONDS = ((1 << 63) - 1) // 1000


def lag(broker: Broker, client: ConnectedClient, arguments: Arguments, answer: Answer) -> None:
    """Answer ``/pipeline/lag``: the ``journal``'s id, and how many of the reports were ``taken``, as they are about it.

    ``groups`` are maps with ``group``, ``journal`` and ``next``, the offset before which the group has finished;
    optionally ``lost``, how many records it had to skip (default: as in the last report), ``dead``, how many dead
    letters it has (for the metrics only), and ``time``, milliseconds since 1970 (default: now).

    :raises NotPermitted: the client may not report the progress of one of the groups; then none was taken.
    """
    journal = journalOf(broker)
    words = array(arguments, "groups", MAX_GROUPS)
    checked = [_word(broker, word) for word in words]
    for _, word in checked:
        permit(client, Action.PROGRESS, word.group)
    mine = [word for journalId, word in checked if journalId == journal.id]
    dead = {text(word, "group", MAX_GROUP_NAME_BYTES): number(word, "dead", 0) for word in words if "dead" in word}
    broker.groups.reached(mine)
    broker.groups.dead |= {word.group: dead[word.group] for word in mine if word.group in dead}
    # Not refused while the journal is read-only: the next report repeats it, and nothing waits for it.
    broker.whenCommitted(lambda: answer({"journal": journal.id, "taken": len(mine)}))


def _word(broker: Broker, word: Any) -> tuple[str, GroupProgress]:
    """Return the journal of a report, and the report."""
    if not isinstance(word, dict):
        raise BadRequest("'groups' must be maps")
    name = text(word, "group", MAX_GROUP_NAME_BYTES)
    before = broker.groups.get(name)
    time = number(word, "time", broker.groups.wall() // 1000, _MAX_MILLISECONDS) * 1000
    lost = number(word, "lost", 0 if before is None else before.lost)
    return text(word, "journal", MAX_GROUP_NAME_BYTES), GroupProgress(name, number(word, "next"), time, lost)


def groups(broker: Broker, client: ConnectedClient, arguments: Arguments, answer: Answer) -> None:
    """Answer ``/pipeline/groups``: every group by name, and its distance to the ``end`` of the ``journal``.

    The distance is about so many ``records`` and ``bytes``, and ``seconds`` since the oldest of them was stored; nil if
    it cannot be read.
    """
    some = page(arguments, str, "")
    journal = journalOf(broker)
    found = Listing("groups", broker.groups, attrgetter("group"), partial(groupRow, broker), *some).atOnce()
    rows = found["groups"]
    for row in rows:
        row["seconds"] = 0.0
    found |= {"journal": journal.id, "end": journal.end}
    _ages(broker, [row for row in rows if row["records"]], lambda: answer(found))


def forget(broker: Broker, client: ConnectedClient, arguments: Arguments, answer: Answer) -> None:
    """Answer ``/pipeline/forget``: whether a ``group`` of this name existed, which is ``forgotten`` now."""
    journalOf(broker)
    forgotten = broker.groups.forget(text(arguments, "group", MAX_GROUP_NAME_BYTES))
    answerStored(broker, answer, {"forgotten": forgotten})


GROUP_PATHS: dict[str, Path] = {"/pipeline/lag": lag, "/pipeline/groups": groups, "/pipeline/forget": forget}


def _ages(broker: Broker, rows: Sequence[dict[str, Any]], done: Callable[[], None]) -> None:
    """Fill in the ages of the oldest records that these groups have not read."""
    byOffset: dict[int, list[dict[str, Any]]] = {}
    for row in rows:
        byOffset.setdefault(row["next"], []).append(row)
    waiting = set(byOffset)
    now = broker.groups.wall()

    def found(offset: int, batches: Sequence[StoredBatch], _: int) -> None:
        time = next((batch.timestamps[0] for batch in batches if len(batch)), None)
        for row in byOffset[offset]:
            row["seconds"] = None if time is None else round(max(0, now - time) / 1_000_000, 3)
        waiting.discard(offset)
        if not waiting:
            done()

    if not byOffset:
        done()
    # In order, so that the journal decodes each range once for all.
    for offset in sorted(byOffset):
        broker.journal.read(offset, lambda topic: True, 1, partial(found, offset))
