"""A worker by HTTP: ``POST /queues/NAME/take`` and ``/settle`` (:mod:`fleximq.broker.consumers.takes`)."""

from collections.abc import Sequence
from functools import partial
from typing import Annotated

import msgspec

from fleximq.broker.authorization import permit
from fleximq.broker.consumers.principal_worker import Job, Settling
from fleximq.broker.consumers.queue_distribution import BATCH
from fleximq.broker.consumers.takes import MOST_LEASE, MOST_UNSETTLED, MOST_WAIT
from fleximq.broker.paths.settlement import SETTLE, WORDS_BYTES
from fleximq.dialects.http.format.routes import Parameter
from fleximq.dialects.http.operations.arguments import SHORTEST, flag, seconds, whole
from fleximq.dialects.http.operations.exchange import Exchange
from fleximq.dialects.http.operations.message_rows import jobRow
from fleximq.errors import BadRequest, BrokerError, NotFound, NotStored, TooLarge
from fleximq.rights import Action
from fleximq.values.records import headerOf
from fleximq.wire.payload_conversion import JSON_BYTES

TAKE_PARAMETERS = (
    Parameter("most", "integer", "how many jobs to take at most, 1 without it"),
    Parameter("wait", "number", f"seconds to wait for the first one, up to {MOST_WAIT:g}"),
    Parameter("lease", "number", "seconds after which a job returns to the queue unless it is settled, 30 without it"),
    Parameter("create", "boolean", "true: the queue is made if there is none, which is an error without it"),
)


def take(exchange: Exchange) -> None:
    """Take jobs of the queue in the path for the principal of the request."""
    arguments, broker, name = exchange.arguments, exchange.broker, exchange.name
    most = whole(arguments, "most", 1, 1, BATCH)
    wait = seconds(arguments, "wait", 0.0, 0, MOST_WAIT)
    lease = seconds(arguments, "lease", 0.0, SHORTEST, MOST_LEASE)
    if not flag(arguments, "create") and broker.ownsJournal:
        permit(exchange.client, Action.CONSUME, name)
        if broker.queues.get(name) is None:
            raise NotFound(f"there is no queue {name!r}; with create=true it is made")
    answer = partial(_answer, exchange)
    taken = broker.takes.take(exchange.client, name, most, wait, lease, answer)

    def gone() -> None:
        taken.cancel()
        exchange.answer({"jobs": []})  # to a client that has only ended its input, or if the broker stops

    exchange.whenGone = gone


def _answer(exchange: Exchange, result: Sequence[Job] | BrokerError) -> None:
    if isinstance(result, BrokerError):
        exchange.fail(result)
        return
    session = exchange.session
    session.traffic.messagesOut += len(result)
    exchange.send(b'{"jobs":[%b]}\n' % b",".join([_rowOf(exchange.name, job) for job in result]))
    if result:
        session.whenCut(partial(_return, exchange, result))


def _return(exchange: Exchange, jobs: Sequence[Job]) -> None:
    """Return jobs that did not reach their client to the queue."""
    settling = Settling(retries=[(job.tag, 0.0) for job in jobs])
    exchange.broker.takes.settle(exchange.client, exchange.name, settling, lambda unsettled, reason: None)


def _rowOf(queue: str, job: Job) -> bytes:
    _, message, attempts = job.delivery
    topic = queue if message.head is None else message.head.topic
    return jobRow(topic, headerOf(message), message, job.tag, attempts)


#: A list has at most the tags that a principal can have.
_MOST = msgspec.Meta(max_length=MOST_UNSETTLED)


class _Settlement(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a settlement; see NOTIF ``/queue/settle`` of FlexiMQ, but with seconds and texts as tags."""

    ack: Annotated[list[str], _MOST] = []
    retry: Annotated[list[tuple[str, float | None]], _MOST] = []
    reject: Annotated[list[tuple[str, str]], _MOST] = []
    extend: Annotated[list[tuple[str, float]], _MOST] = []


_decode = msgspec.json.Decoder(_Settlement).decode
_TIMES = f"[tag, seconds], each tag a string, with at most {MOST_UNSETTLED} entries"
#: For each key of a settlement: what its value must be. Errors to clients quote it.
_RULES = {
    "ack": f"a list of at most {MOST_UNSETTLED} tags, each a string",
    "retry": f"a list of {_TIMES}, or null for the seconds of the queue",
    "reject": f"a list of [tag, words], with at most {MOST_UNSETTLED} entries and {WORDS_BYTES} bytes of words in each",
    "extend": f"a list of {_TIMES}",
}


def _read(body: bytes) -> _Settlement:
    """Return the settlement in a body; raises BadRequest, which names the part that is wrong."""
    try:
        found = _decode(body)
    except msgspec.ValidationError as error:
        raise _wrong(str(error)) from None
    except ValueError:  # of msgspec, too
        raise BadRequest("the body of a settlement is not JSON") from None
    for place, (_, words) in enumerate(found.reject):
        if len(words.encode()) > WORDS_BYTES:
            raise _wrong(f"`$.reject[{place}][1]`")
    return found


def _wrong(words: str) -> BadRequest:
    """Return the error for a settlement that msgspec refuses with these words; they end with a place, `$.ack[0]`."""
    place = words.rpartition("`$.")[2].rstrip("`")
    key = next((each for each in _RULES if place.startswith(each)), None)
    if key is None:
        return BadRequest(f"a settlement must be a JSON object with keys of {', '.join(_RULES)}, and no others")
    where = "" if place == key else f"; {place} is wrong"
    return BadRequest(f"{key!r} of a settlement must be {_RULES[key]}{where}")


def settle(exchange: Exchange) -> None:
    """Settle jobs of the queue in the path, and answer with the tags that are not the principal's any more."""
    if len(exchange.body) > JSON_BYTES:  # of another type than JSON; to read it would hold up all other clients
        raise TooLarge(f"a settlement of at most {JSON_BYTES} bytes is taken")
    found = _read(exchange.body)
    exchange.broker.checkPath(SETTLE)
    settling = Settling(found.ack, found.retry, found.reject, found.extend)
    exchange.broker.takes.settle(exchange.client, exchange.name, settling, partial(_settled, exchange))


def _settled(exchange: Exchange, unsettled: list[str], reason: str | None) -> None:
    if reason is None:
        exchange.answer({"unsettled": unsettled})
    else:
        exchange.fail(NotStored(reason))
