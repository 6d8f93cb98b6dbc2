"""BlipMQ frame payloads, decoded and encoded (BlipMQ document, "Payload Formats").

A decoder raises :class:`fleximq.errors.BadRequest` with the exact words that the document puts into the NACK. Checks
run in one order everywhere: shape, empty topic, QoS, length of the topic. Encoders return payloads;
:func:`fleximq.wire.blipmq_frame.encodeFrame` puts them into frames.
"""

from struct import Struct
from typing import NamedTuple

from fleximq.errors import BadRequest, InvalidTopic
from fleximq.limits import TOPIC_BYTES, isTooLong

#: The protocol version of the document, "HELLO".
VERSION = 1

_U16 = Struct(">H")
_U64 = Struct(">Q")
_CODE_AND_LENGTH = Struct(">HH")
_QOS_AND_LENGTH = Struct(">BH")
_U16_MOST = 0xFFFF


class TopicAndQos(NamedTuple):
    """Topic and QoS of a PUBLISH or SUBSCRIBE. ``qos`` is 0 or 1."""

    topic: str
    qos: int


class Nack(NamedTuple):
    """An error code of the document, and its words."""

    code: int
    message: str


def decodeHello(payload: bytes) -> int:
    """Return the protocol version that the client requests; raises BadRequest unless there are exactly two bytes."""
    if len(payload) != _U16.size:
        raise BadRequest("invalid HELLO payload")
    return int(_U16.unpack(payload)[0])


def encodeHello(version: int = VERSION) -> bytes:
    """Return the payload of a HELLO."""
    return _U16.pack(version)


def decodeAuth(payload: bytes) -> str:
    """Return the API key; raises BadRequest unless it is exactly one length and as many bytes of UTF-8."""
    _fields(_U16, payload, "invalid AUTH payload")
    return _text(payload[_U16.size :], "invalid AUTH payload")


def encodeAuth(key: str) -> bytes:
    """Return the payload of an AUTH; raises ValueError for a key of more than 65,535 bytes."""
    return _counted(key)


def decodePublish(head: bytes) -> TopicAndQos:
    """Decode the head of a PUBLISH run, or a PUBLISH too short to have messages.

    :raises BadRequest: "invalid PUBLISH payload", "empty topic" or "invalid QoS value".
    :raises InvalidTopic: for a topic over :data:`fleximq.limits.TOPIC_BYTES`.
    """
    qos, _ = _fields(_QOS_AND_LENGTH, head, "invalid PUBLISH payload")
    return _checked(head[_QOS_AND_LENGTH.size :], qos, "invalid PUBLISH payload")


def encodePublish(topic: str, qos: int) -> bytes:
    """Return the head of a PUBLISH, before its message; raises ValueError for a topic of more than 65,535 bytes."""
    return bytes([qos]) + _counted(topic)


def decodeSubscribe(payload: bytes) -> TopicAndQos:
    """Decode a SUBSCRIBE. Bytes after the QoS are ignored.

    :raises BadRequest: "invalid SUBSCRIBE payload", "empty topic" or "invalid QoS value".
    :raises InvalidTopic: for a topic over :data:`fleximq.limits.TOPIC_BYTES`.
    """
    if len(payload) < _U16.size:
        raise BadRequest("invalid SUBSCRIBE payload")
    end = _U16.size + _U16.unpack_from(payload)[0]
    if end >= len(payload):
        raise BadRequest("invalid SUBSCRIBE payload")
    return _checked(payload[_U16.size : end], payload[end], "invalid SUBSCRIBE payload")


def encodeSubscribe(topic: str, qos: int) -> bytes:
    """Return the payload of a SUBSCRIBE; raises ValueError for a topic of more than 65,535 bytes."""
    return _counted(topic) + bytes([qos])


def decodeAck(payload: bytes, zero: bool = False) -> int:
    """Return the subscription id of an ACK; raises BadRequest if it is invalid.

    :param zero: whether it may be 0, as it is in the server's answers to HELLO and AUTH.
    """
    return _subscription(payload, "invalid ACK payload", zero)


def decodePoll(payload: bytes) -> int:
    """Return the subscription id of a POLL; raises BadRequest if it is invalid or 0."""
    return _subscription(payload, "invalid POLL payload", False)


def encodeSubscription(subscription: int) -> bytes:
    """Return the payload of an ACK or a POLL: one subscription id."""
    return _U64.pack(subscription)


def decodeNack(payload: bytes) -> Nack:
    """Return the code and the words of a NACK; raises BadRequest if it is invalid."""
    code, _ = _fields(_CODE_AND_LENGTH, payload, "invalid NACK payload")
    return Nack(code, _text(payload[_CODE_AND_LENGTH.size :], "invalid NACK payload"))


def encodeNack(code: int, message: str) -> bytes:
    """Return the payload of a NACK; words over 65,535 bytes are cut between two characters."""
    words = message.encode("utf-8", "replace")[:_U16_MOST].decode("utf-8", "ignore").encode()
    return _CODE_AND_LENGTH.pack(code, len(words)) + words


def _fields(form: Struct, payload: bytes, words: str) -> tuple[int, ...]:
    """Return the numbers that begin a payload; the last one must be the number of bytes after them."""
    if len(payload) >= form.size:
        numbers = form.unpack_from(payload)
        if form.size + numbers[-1] == len(payload):
            return numbers
    raise BadRequest(words)


def _checked(topic: bytes, qos: int, words: str) -> TopicAndQos:
    text = _text(topic, words)
    if not text:
        raise BadRequest("empty topic")
    if qos not in (0, 1):
        raise BadRequest("invalid QoS value")
    if isTooLong(text):
        raise InvalidTopic(f"topic is longer than {TOPIC_BYTES} bytes")
    return TopicAndQos(text, qos)


def _subscription(payload: bytes, words: str, zero: bool) -> int:
    if len(payload) != _U64.size:
        raise BadRequest(words)
    subscription = int(_U64.unpack(payload)[0])
    if not subscription and not zero:
        raise BadRequest("subscription_id must be non-zero")
    return subscription


def _text(encoded: bytes, words: str) -> str:
    try:
        return encoded.decode()
    except UnicodeDecodeError as error:
        raise BadRequest(words) from error


def _counted(text: str) -> bytes:
    encoded = text.encode()
    if len(encoded) > _U16_MOST:
        raise ValueError(f"{len(encoded)} bytes do not fit behind a length of two bytes")
    return _U16.pack(len(encoded)) + encoded
