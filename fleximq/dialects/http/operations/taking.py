"""A worker by HTTP: ``POST /queues/NAME/take`` and ``/settle`` (:mod:`fleximq.broker.consumers.takes`)."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated

import msgspec

from fleximq.broker.consumers.principal_worker import Job, Settling
from fleximq.broker.consumers.takes import MOST_UNSETTLED, MOST_WAIT
from fleximq.broker.paths.settlement import SETTLE, WORDS_BYTES
from fleximq.dialects.http.format.routes import Parameter
from fleximq.dialects.http.operations.exchange import Exchange
from fleximq.dialects.http.operations.message_rows import jobRow
from fleximq.errors import BadRequest, BrokerError, NotStored, TooLarge
from fleximq.values.records import headerOf
from fleximq.wire.payload_conversion import JSON_BYTES

TAKE_PARAMETERS = (
    Parameter("most", "integer", "how many jobs to take at most, 1 without it"),
    Parameter("wait", "number", f"seconds to wait for the first one, up to {MOST_WAIT:g}"),
    Parameter("lease", "number", "seconds after which a job returns to the queue unless it is settled, 30 without it"),
)


def take(exchange: Exchange) -> None:
    """Take jobs of the queue in the path for the principal of the request."""
    arguments = exchange.arguments
    most, wait, lease = (
        _number(arguments, name, usual) for name, usual in (("most", 1.0), ("wait", 0.0), ("lease", 0.0))
    )
    if not most.is_integer():
        raise BadRequest("most must be a whole number")
    if "lease" in arguments and not lease:
        raise BadRequest("a lease must be longer than 0 seconds")
    answer = partial(_answer, exchange)
    taken = exchange.broker.takes.take(exchange.client, exchange.name, int(most), wait, lease, answer)

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
    session.whenCut = partial(_return, exchange, result)
    exchange.send(b'{"jobs":[%b]}\n' % b",".join([_rowOf(exchange.name, job) for job in result]))


def _return(exchange: Exchange, jobs: Sequence[Job]) -> None:
    """Return jobs that did not reach their client to the queue."""
    settling = Settling(retries=[(job.tag, 0.0) for job in jobs])
    exchange.broker.takes.settle(exchange.client, exchange.name, settling, lambda unsettled, reason: None)


def _rowOf(queue: str, job: Job) -> bytes:
    _, message, attempts = job.delivery
    topic = queue if message.head is None else message.head.topic
    return jobRow(topic, headerOf(message), message, job.tag, attempts)


def _number(arguments: Mapping[str, str], name: str, usual: float) -> float:
    text = arguments.get(name)
    try:
        return usual if text is None else float(text)
    except ValueError:
        raise BadRequest(f"{name} must be a number") from None


#: A list has at most the tags that a principal can have.
_MOST = msgspec.Meta(max_length=MOST_UNSETTLED)


class _Settlement(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a settlement; see NOTIF ``/queue/settle`` of FlexiMQ, but with seconds and texts as tags."""

    ack: Annotated[list[str], _MOST] = []
    retry: Annotated[list[tuple[str, float | None]], _MOST] = []
    reject: Annotated[list[tuple[str, str]], _MOST] = []
    extend: Annotated[list[tuple[str, float]], _MOST] = []


_decode = msgspec.json.Decoder(_Settlement).decode
_SHAPE = (
    f"a settlement is a JSON object with lists of up to {MOST_UNSETTLED} entries: ack of tags,"
    f" retry of [tag, seconds or null], reject of [tag, words of at most {WORDS_BYTES} bytes], extend of [tag, seconds]"
)


def settle(exchange: Exchange) -> None:
    """Settle jobs of the queue in the path, and answer with the tags that are not the principal's any more."""
    if len(exchange.body) > JSON_BYTES:  # of another type than JSON; to read it would hold up all other clients
        raise TooLarge(f"a settlement of at most {JSON_BYTES} bytes is taken")
    try:
        found = _decode(exchange.body)
    except ValueError:  # of msgspec, too
        raise BadRequest(_SHAPE) from None
    if any(len(words.encode()) > WORDS_BYTES for _, words in found.reject):
        raise BadRequest(_SHAPE)
    exchange.broker.checkPath(SETTLE)
    settling = Settling(found.ack, found.retry, found.reject, found.extend)
    exchange.broker.takes.settle(exchange.client, exchange.name, settling, partial(_settled, exchange))


def _settled(exchange: Exchange, unsettled: list[str], reason: str | None) -> None:
    if reason is None:
        exchange.answer({"unsettled": unsettled})
    else:
        exchange.fail(NotStored(reason))
