"""The path ``/queue/settle``: the outcome of deliveries to a consumer."""

from typing import Annotated, Any, Required, TypedDict

import msgspec

from fleximq.broker.broker import Broker
from fleximq.broker.envelope import ConnectedClient
from fleximq.broker.paths.arguments import Answer, Arguments, answerStored
from fleximq.errors import BadRequest
from fleximq.limits import KIBIBYTE, MOST_MILLISECONDS, TOPIC_BYTES
from fleximq.values.queue_keys import MOST_PREFETCH

#: The path, also of notifications to the broker, which are not answered.
SETTLE = "/queue/settle"
#: Maximum bytes of the words of a rejection.
WORDS_BYTES = 4 * KIBIBYTE

_Tag = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
_Milliseconds = Annotated[int, msgspec.Meta(ge=0, le=MOST_MILLISECONDS)]
_Words = Annotated[str, msgspec.Meta(max_length=WORDS_BYTES)]
#: A list has at most the tags that a consumer can have.
_Most = msgspec.Meta(max_length=MOST_PREFETCH)


class Settlement(TypedDict, total=False):
    """The arguments of the path: the tags to acknowledge, those to retry after milliseconds (None: as the queue's
    definition says), those to reject with words, and those to extend by milliseconds from now.
    """

    queue: Required[Annotated[str, msgspec.Meta(min_length=1, max_length=TOPIC_BYTES)]]
    ack: Annotated[list[_Tag], _Most]
    retry: Annotated[list[tuple[_Tag, _Milliseconds | None]], _Most]
    reject: Annotated[list[tuple[_Tag, _Words]], _Most]
    extend: Annotated[list[tuple[_Tag, _Milliseconds]], _Most]


_decode = msgspec.msgpack.Decoder(Settlement).decode
_TIMES = f"[tag, milliseconds] with at most {MOST_MILLISECONDS} milliseconds"
#: For each key of a settlement: what its value must be. Errors to clients quote it.
_RULES = {
    "queue": f"a string of 1 to {TOPIC_BYTES} bytes, the name of a queue",
    "ack": f"an array of at most {MOST_PREFETCH} tags",
    "retry": f"an array of at most {MOST_PREFETCH} entries {_TIMES}, or nil for those of the queue",
    "reject": f"an array of at most {MOST_PREFETCH} entries [tag, words] with at most {WORDS_BYTES} bytes of words",
    "extend": f"an array of at most {MOST_PREFETCH} entries {_TIMES}",
}


def readSettlement(packed: bytes) -> Settlement:
    """Return the arguments from their MessagePack; raises BadRequest for wrong ones, or an error of msgspec if the
    bytes are not MessagePack.
    """
    try:
        found = _decode(packed)
    except msgspec.ValidationError as error:
        # It ends with the place of the wrong value, like $.ack[0]; without one, the whole is wrong.
        place = str(error).rpartition("`$.")[2]
        raise _wrong(next((key for key in _RULES if place.startswith(key)), "queue")) from None
    if "reject" in found and any(len(words.encode()) > WORDS_BYTES for _, words in found["reject"]):
        raise _wrong("reject")
    return found


def _wrong(key: str) -> BadRequest:
    return BadRequest(f"{key!r} of a settlement must be {_RULES[key]}")


def settle(broker: Broker, client: ConnectedClient, arguments: Any) -> list[int]:
    """Settle deliveries, and return the tags that are not this consumer's; raises BadRequest without arguments."""
    if not arguments:
        raise _wrong("queue")
    get = arguments.get
    if len(arguments) == 2 and "ack" in arguments:  # most settlements only acknowledge
        return broker.settle(client, arguments["queue"], arguments["ack"])
    retries = [(tag, None if delay is None else delay / 1000) for tag, delay in get("retry", ())]
    extends = [(tag, seconds / 1000) for tag, seconds in get("extend", ())]
    return broker.settle(client, arguments["queue"], get("ack", ()), retries, get("reject", ()), extends)


def settled(broker: Broker, client: ConnectedClient, arguments: Arguments, answer: Answer) -> None:
    """Answer ``/queue/settle`` when all is done and on disk: ``unknown``, the tags that were not this consumer's."""
    unknown = settle(broker, client, arguments)
    answerStored(broker, answer, {"unknown": unknown})
