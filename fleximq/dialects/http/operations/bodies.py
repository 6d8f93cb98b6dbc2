"""The bodies of requests as payloads of FlexiMQ messages, in MessagePack."""

import msgspec

from fleximq.dialects.http.format.http_request import BodyKind
from fleximq.errors import BadRequest, TooLarge
from fleximq.values.message import Content, Message
from fleximq.values.nesting import NestedTooDeeply, checkNesting, mayBeDeep
from fleximq.wire.payload_conversion import toMessagePack
from fleximq.wire.websocket_frame import isUtf8

#: Maximum number of lines of a body; more would hold up all other clients.
MAX_LINES = 10_000
_decode = msgspec.json.Decoder().decode
_encode = msgspec.msgpack.Encoder().encode


def payloadsOf(kind: BodyKind, body: bytes) -> list[bytes]:
    """Return the messages in a body as MessagePack; raises BadRequest."""
    if kind is BodyKind.JSON:
        return [packed(body)]
    if kind is BodyKind.LINES:
        return _lines(body)
    if kind is BodyKind.MESSAGEPACK:
        return [body]
    if kind is BodyKind.TEXT and not isUtf8(body):
        raise BadRequest("the text is not UTF-8")
    return [toMessagePack(Message(body, Content.TEXT if kind is BodyKind.TEXT else Content.BYTES))]


def _lines(body: bytes) -> list[bytes]:
    if body.count(b"\n") > MAX_LINES:
        raise TooLarge(f"a body of at most {MAX_LINES} lines is taken")
    payloads = []
    for number, line in enumerate(body.split(b"\n"), 1):
        if line and not line.isspace():
            try:
                payloads.append(packed(line))
            except BadRequest as error:
                raise BadRequest(f"line {number}: {error}") from None
    return payloads


def packed(text: bytes) -> bytes:
    """Return a value in JSON as MessagePack; raises BadRequest."""
    try:
        value = _decode(text)
        payload = _encode(value)
        if mayBeDeep(payload):
            checkNesting(value)
    except (RecursionError, NestedTooDeeply):
        raise BadRequest("the value is nested too deeply") from None
    except OverflowError:
        raise BadRequest("the value has a whole number of more than 64 bits") from None
    except ValueError:  # of msgspec, too
        raise BadRequest("the value is not JSON") from None
    return payload
