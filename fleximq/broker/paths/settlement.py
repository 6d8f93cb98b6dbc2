"""The path ``/queue/settle``: the outcome of deliveries to a consumer."""

from typing import Annotated, Any, Required, TypedDict

import msgspec

from fleximq.broker.broker import Broker
from fleximq.broker.envelope import ConnectedClient
from fleximq.broker.paths.arguments import Answer, Arguments, answerStored
from fleximq.errors import BadRequest
from fleximq.limits import KIBIBYTE, TOPIC_BYTES

#: The path, also of notifications to the broker, which are not answered.
SETTLE = "/queue/settle"
#: Maximum bytes of the words of a rejection.
WORDS_BYTES = 4 * KIBIBYTE
#: Maximum number of tags in each list: those that a consumer can have.
_MOST_TAGS = 65_535
#: Maximum of a delay: ten years.
_MOST_MILLISECONDS = 10 * 365 * 86_400_000

_Tag = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
_Milliseconds = Annotated[int, msgspec.Meta(ge=0, le=_MOST_MILLISECONDS)]
_Words = Annotated[str, msgspec.Meta(max_length=WORDS_BYTES)]
_Most = msgspec.Meta(max_length=_MOST_TAGS)


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


def readSettlement(packed: bytes) -> Settlement:
    """Return the arguments from their MessagePack; raises msgspec's errors, or BadRequest for too many words."""
    found = _decode(packed)
    for _, words in found.get("reject", ()):
        if len(words.encode()) > WORDS_BYTES:
            raise BadRequest(f"the words of a rejection may have {WORDS_BYTES} bytes")
    return found


def settle(broker: Broker, client: ConnectedClient, arguments: Any) -> list[int]:
    """Settle deliveries, and return the tags that are not this consumer's; raises BadRequest without arguments."""
    if not arguments:
        raise BadRequest("'queue' must be the name of a queue")
    get = arguments.get
    retries = [(tag, None if delay is None else delay / 1000) for tag, delay in get("retry", ())]
    extends = [(tag, seconds / 1000) for tag, seconds in get("extend", ())]
    return broker.settle(client, arguments["queue"], get("ack", ()), retries, get("reject", ()), extends)


def settled(broker: Broker, client: ConnectedClient, arguments: Arguments, answer: Answer) -> None:
    """Answer ``/queue/settle`` when all is done and on disk: ``unknown``, the tags that were not this consumer's."""
    unknown = settle(broker, client, arguments)
    answerStored(broker, answer, {"unknown": unknown})
