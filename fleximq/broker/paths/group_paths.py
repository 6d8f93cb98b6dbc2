"""The broker's paths for consumer groups of the pipeline: they say how far they are, and whoever asks is told.

Groups are of one journal, so without a journal on disk there are none and all is answered with 503.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from fleximq.broker.envelope import ConnectedClient
from fleximq.broker.paths.arguments import Arguments, IBrokerView, Path, array, journalOf, listing, number, page, text
from fleximq.errors import BadRequest
from fleximq.values.records import StoredBatch
from fleximq.values.state_records import MAX_GROUP_NAME_BYTES, MAX_GROUPS, GroupProgress

Answer = Callable[[Any], None]
#: The latest time in milliseconds that is one in microseconds, too.
_MAX_MILLISECONDS = ((1 << 63) - 1) // 1000


def lag(broker: IBrokerView, client: ConnectedClient, arguments: Arguments, answer: Answer) -> None:
    """Answer ``/pipeline/lag``: the ``journal``'s id, and how many of the words were ``taken``, as they are about it.

    ``groups`` are maps with ``group``, ``journal`` and ``next``, the offset before which the group is done with
    everything; perhaps with ``lost``, how many records it had to do without (what was said last, without it), and
    ``time``, milliseconds since 1970 (now, without it).
    """
    journal = journalOf(broker)
    words = array(arguments, "groups")
    if len(words) > MAX_GROUPS:
        raise BadRequest(f"'groups' may be at most {MAX_GROUPS}")
    checked = [_word(broker, word) for word in words]
    mine = [word for id, word in checked if id == journal.id]
    broker.groups.reached(mine)
    answer({"journal": journal.id, "taken": len(mine)})


def _word(broker: IBrokerView, word: Any) -> tuple[str, GroupProgress]:
    """Return the journal that a word is about, and the word."""
    if not isinstance(word, dict):
        raise BadRequest("'groups' must be maps")
    name = text(word, "group", MAX_GROUP_NAME_BYTES)
    before = broker.groups.get(name)
    time = number(word, "time", broker.groups.wall() // 1000, _MAX_MILLISECONDS) * 1000
    lost = number(word, "lost", 0 if before is None else before.lost)
    return text(word, "journal", MAX_GROUP_NAME_BYTES), GroupProgress(name, number(word, "next"), time, lost)


def groups(broker: IBrokerView, client: ConnectedClient, arguments: Arguments, answer: Answer) -> None:
    """Answer ``/pipeline/groups``: every group by name, and how far it is behind the ``end`` of the ``journal``.

    That is about so many ``records`` and ``bytes``, and so many ``seconds`` that the oldest of these has waited; nil if
    it cannot be read.
    """
    after, limit = page(arguments, str, "")
    journal = journalOf(broker)
    found = listing("groups", broker.groups, lambda word: word.group, after, limit, _row(broker))
    rows = found["groups"]
    found |= {"journal": journal.id, "end": journal.end}
    _ages(broker, [row for row in rows if row["records"]], lambda: answer(found))


def forget(broker: IBrokerView, client: ConnectedClient, arguments: Arguments, answer: Answer) -> None:
    """Answer ``/pipeline/forget``: whether there was a ``group`` of this name, which is ``forgotten`` now."""
    journalOf(broker)
    answer({"forgotten": broker.groups.forget(text(arguments, "group", MAX_GROUP_NAME_BYTES))})


GROUP_PATHS: dict[str, Path] = {
    "/pipeline/lag": lag,
    "/pipeline/groups": groups,
    "/pipeline/forget": forget,
}


def _row(broker: IBrokerView) -> Callable[[GroupProgress], dict[str, Any]]:
    def row(word: GroupProgress) -> dict[str, Any]:
        waiting = broker.journal.backlogFrom(word.next)
        return {
            "group": word.group,
            "next": word.next,
            "records": waiting.records,
            "bytes": waiting.bytes,
            "seconds": 0.0,
            "lost": word.lost,
            "time": word.time // 1000,
        }

    return row


def _ages(broker: IBrokerView, rows: Sequence[dict[str, Any]], done: Callable[[], None]) -> None:
    """Fill in how long the oldest record has waited that each of these groups has not read."""
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
    # In their order, so that the journal takes each stretch apart once for all who are there.
    for offset in sorted(byOffset):
        broker.journal.read(offset, _all, 1, partial(found, offset))


def _all(topic: str) -> bool:
    return True
