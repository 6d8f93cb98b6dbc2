"""The client's side of one MiniMQ connection, without I/O (MiniMQ document, docs/reference/dialects.rst).

Answers have the order of the commands; an ACK has none.
"""

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from fleximq.client.errors import Answered, ConnectionLost, ConsumeFailed, ProduceFailed
from fleximq.client.protocol.completion import Pending
from fleximq.client.queues.reconnecting_link import QueueConversation
from fleximq.errors import BadFraming, BrokerError
from fleximq.limits import MEBIBYTE
from fleximq.wire.minimq_line import LineScanner, decodeText
from fleximq.wire.minimq_message import SEPARATOR, MiniMessage, checkTopic, isId, parseProduce

_NO_MESSAGE = b"NO_MSG"
_PONG = b"PONG:"
_ERROR = b"ERROR:"

#: Makes an error from a status and a text.
_Refusing = Callable[[int, str], Answered]
#: Parses a line, or raises BrokerError.
_Reading = Callable[[bytes], Any]


class MiniConversation(QueueConversation):
    """One connection."""

    def __init__(self) -> None:
        self._scanner = LineScanner(1024 * MEBIBYTE)
        self._pending: deque[tuple[Pending[Any], _Reading, _Refusing]] = deque()

    def produce(self, messages: Sequence[MiniMessage]) -> tuple[bytes, list[Pending[str]]]:
        """Return PRODUCEs, and for each a result with the id of the confirmed message; errors as :func:`lineOf`."""
        lines = b"".join(map(lineOf, messages))  # before answers are expected, as it may raise an error
        return lines, [self._expect(decodeText, partial(_refused, message)) for message in messages]

    def consume(self, topic: str) -> tuple[bytes, Pending[MiniMessage | None]]:
        """Return a CONSUME, and a result with a message or None; raises ValueError for an invalid topic."""
        _check(topic)
        result = self._expect(_readMessage, lambda status, words: ConsumeFailed(status, words, topic))
        return f"CONSUME:{topic}\n".encode(), result

    def ping(self) -> tuple[bytes, Pending[None]]:
        return b"PING:\n", self._expect(_readPong, Answered)

    @staticmethod
    def ack(messageId: str) -> bytes:
        """Return the ACK of a message."""
        return f"ACK:{messageId}\n".encode()

    def _expect(self, read: _Reading, refused: _Refusing) -> Pending[Any]:
        pending: Pending[Any] = Pending()
        self._pending.append((pending, read, refused))
        return pending

    def received(self, data: bytes) -> None:
        for line in self._scanner.feed(data):
            if not self._pending:
                raise BadFraming("a line came that answers no request")
            pending, read, refused = self._pending.popleft()
            if line.startswith(_ERROR):
                status, _, words = decodeText(line[len(_ERROR) :]).partition(":")
                if not status.isdecimal():
                    raise BadFraming("an error has no number")
                pending.fail(refused(int(status), words))
                continue
            try:
                pending.succeed(read(line))
            except BrokerError as error:
                pending.fail(ConnectionLost(f"the received bytes are not MiniMQ: {error}"))
                raise

    def lost(self, lost: ConnectionLost) -> None:
        while self._pending:
            self._pending.popleft()[0].fail(lost)


def lineOf(message: MiniMessage) -> bytes:
    """Return the PRODUCE of a message; raises ValueError if MiniMQ cannot express it, TypeError without a text."""
    if not isinstance(message.content, str):
        raise TypeError(f"the content is {type(message.content).__name__}, but must be str")
    _check(message.topic)
    if not isId(message.id):
        raise ValueError(f"the id {message.id!r} could be confused with other answers or fields")
    if "\n" in message.content:
        raise ValueError("a content cannot contain a line break; encode it, e.g. as JSON")
    for field in (message.correlation_id, message.reply_to):
        if field.startswith(":") or SEPARATOR in field or "\r" in field or "\n" in field:
            raise ValueError(f"{field!r} cannot be one field of a line")
    return f"PRODUCE:{SEPARATOR.join(message[:5])}\n".encode()


def _refused(message: MiniMessage, status: int, words: str) -> Answered:
    error = ProduceFailed(status, words, message.topic)
    error.id = message.id
    return error


def _check(topic: str) -> None:
    try:
        checkTopic(topic)
    except BrokerError as error:
        raise ValueError(f"the topic {topic!r}: {error}") from None


def _readMessage(line: bytes) -> MiniMessage | None:
    return None if line == _NO_MESSAGE else parseProduce(decodeText(line), str)


def _readPong(line: bytes) -> None:
    if line != _PONG:
        raise BadFraming("the answer to a PING is not a PONG")
