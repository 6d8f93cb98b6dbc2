"""The paths of dead letters: list those of a queue with their stories, return or delete them; the same by HTTP."""

from dataclasses import replace
from typing import Any

from fleximq.broker.authorization import sees
from fleximq.broker.broker import Broker
from fleximq.broker.consumers.letter_filter import LetterFilter, deathOf
from fleximq.broker.envelope import ConnectedClient
from fleximq.broker.paths.arguments import Answer, Arguments, Path, answerStored, array, number, text
from fleximq.broker.paths.queue_paths import MAX_PEEK, NAME_BYTES, PEEK, fitting, lookInto, messageRow, missing
from fleximq.broker.queues.queue import Queue
from fleximq.errors import BadRequest
from fleximq.limits import DEAD
from fleximq.values.death import WORDS_BYTES
from fleximq.values.death_reason import DeathReason
from fleximq.values.message import Message

#: The default number of dead letters that one request returns, and the maximum number of ids in one.
LETTERS = _MOST_IDS = 1000
#: So many of the oldest letters are looked at for a list.
_LOOKED_AT = 1000
#: Longest id, and name of a client.
_ID_BYTES = 1024


def deadLetters(broker: Broker, client: ConnectedClient, arguments: Arguments, answer: Answer) -> None:
    """Answer ``/broker/dead-letters``: the oldest dead letters of a ``queue`` that fulfil conditions; they stay there.

    At most ``limit`` of the oldest :data:`_LOOKED_AT`, fewer if the others are only on disk or an answer is full; in a
    topic that the definition of the queue names, only those of the usual priority. ``searched`` is the number of
    letters that were looked at, ``matching`` of those that fulfil the conditions. The client must have the right to
    consume from the topic of the letters.
    """
    name = broker.queues.letterTopic(_queue(arguments))
    most = number(arguments, "limit", PEEK, MAX_PEEK, least=1)
    wanted = replace(_filter(arguments), queue=None if name.startswith(DEAD) else _queue(arguments))

    def look(queue: Queue) -> None:
        oldest = [letter for letter, _ in queue.stored.first(_LOOKED_AT)]
        found = list(filter(wanted.accepts, oldest))
        counts = {"waiting": queue.stored.depth, "searched": len(oldest), "matching": len(found)}
        answer({**counts, "letters": fitting(map(_row, found), most)})

    lookInto(broker, client, name, look)


def _row(letter: Message) -> dict[str, Any]:
    """Return the row of a dead letter: its story, nil for one of an earlier version, and its message."""
    death = deathOf(letter)
    story = dict.fromkeys(("queue", "topic", "reason", "attempts", "first", "last", "consumer", "words"))
    if death is not None:
        known = {**death.dump(), "topic": death.topic or death.queue}
        story |= {name: value for name, value in known.items() if name in story}
    message = messageRow(letter, 0)
    del message["deliveries"]
    return {**message, **story}


def returnDeadLetters(broker: Broker, client: ConnectedClient, arguments: Arguments, answer: Answer) -> None:
    """Answer ``/broker/dead-letters/return``: return at most ``limit`` dead letters, which fulfil conditions, into the
    ``queue`` in which they died.
    """
    _transfer(broker, client, arguments, answer, "returned", broker.admin.returnDeadLetters)


def deleteDeadLetters(broker: Broker, client: ConnectedClient, arguments: Arguments, answer: Answer) -> None:
    """Answer ``/broker/dead-letters/delete``: delete at most ``limit`` dead letters of a ``queue`` that fulfil
    conditions.
    """
    _transfer(broker, client, arguments, answer, "deleted", broker.admin.deleteDeadLetters)


def _transfer(
    broker: Broker, client: ConnectedClient, arguments: Arguments, answer: Answer, title: str, act: Any
) -> None:
    name = _queue(arguments)
    most = number(arguments, "limit", LETTERS)
    wanted = _filter(arguments)
    if not sees(client, name) and not sees(client, DEAD + name):
        raise missing(DEAD + name)

    def done(number: int, reason: str | None) -> None:
        answerStored(broker, answer, {title: number, "reason": reason})

    act(name, most, done, wanted)


def _queue(arguments: Arguments) -> str:
    """Return the name of the queue in which letters died; ``topic`` is the argument of earlier versions."""
    return text(arguments, "topic" if "topic" in arguments else "queue", NAME_BYTES).removeprefix(DEAD)


def _filter(arguments: Arguments) -> LetterFilter:
    return LetterFilter(
        _ids(arguments) if "ids" in arguments else None,
        _reason(arguments) if "reason" in arguments else None,
        text(arguments, "consumer", _ID_BYTES) if "consumer" in arguments else None,
        number(arguments, "before") if "before" in arguments else None,
        number(arguments, "after") if "after" in arguments else None,
        text(arguments, "words", WORDS_BYTES) if "words" in arguments else None,
    )


def _ids(arguments: Arguments) -> frozenset[str]:
    ids = array(arguments, "ids", _MOST_IDS)
    if not all(isinstance(each, str) for each in ids):
        raise BadRequest("'ids' must be an array of strings")
    return frozenset(ids)


def _reason(arguments: Arguments) -> DeathReason:
    known = [each.value for each in DeathReason]
    if arguments["reason"] not in known:
        raise BadRequest(f"'reason' must be one of {', '.join(known)}")
    return DeathReason(arguments["reason"])


#: Paths that read, and those that act.
READING: dict[str, Path] = {"/broker/dead-letters": deadLetters}
ACTING: dict[str, Path] = {
    "/broker/dead-letters/return": returnDeadLetters,
    "/broker/dead-letters/delete": deleteDeadLetters,
}
