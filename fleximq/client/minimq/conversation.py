"""What a MiniMQ client says and hears on one connection, without any I/O (MiniMQ document, docs/dialects.rst).

Answers come in the order of the commands; an ACK has none.
"""

from collections import deque
from collections.abc import Callable
from typing import Any

from fleximq.client.errors import Answered, ConnectionLost, ConsumeFailed, ProduceFailed
from fleximq.client.protocol.completion import Pending
from fleximq.errors import BadFraming, BrokerError
from fleximq.limits import MEBIBYTE
from fleximq.wire.minimq_line import LineScanner, decodeText
from fleximq.wire.minimq_message import SEPARATOR, MiniMessage, checkTopic, isId, parseProduce

_NO_MESSAGE = b"NO_MSG"
_PONG = b"PONG:"
_ERROR = b"ERROR:"

#: Makes an error of a status and words.
_Refusing = Callable[[int, str], Answered]
#: Makes a value of a line, or raises BrokerError.
_Reading = Callable[[bytes], Any]


class MiniConversation:
    """One connection."""

    def __init__(self) -> None:
        self._scanner = LineScanner(1024 * MEBIBYTE)
        self._pending: deque[tuple[Pending[Any], _Reading, _Refusing]] = deque()

    # -- what is said ------------------------------------------------------------------------------

    def produce(self, message: MiniMessage) -> tuple[bytes, Pending[str]]:
        """Return a PRODUCE, and what will be the id of the message when it is safe.

        :raises ValueError: MiniMQ cannot spell the message.
        """
        line = lineOf(message)

        def refused(status: int, words: str) -> Answered:
            error = ProduceFailed(status, words, message.topic)
            error.id = message.id
            return error

        return line, self._expect(_readId, refused)

    def consume(self, topic: str) -> tuple[bytes, Pending[MiniMessage | None]]:
        """Return a CONSUME, and what will be a message, or None.

        :raises ValueError: MiniMQ cannot spell the topic.
        """
        _check(topic)
        line = f"CONSUME:{topic}\n".encode()
        return line, self._expect(_readMessage, lambda status, words: ConsumeFailed(status, words, topic))

    def ping(self) -> tuple[bytes, Pending[None]]:
        """Return a PING, and what is settled when all before it is done."""
        return b"PING:\n", self._expect(_readPong, Answered)

    @staticmethod
    def ack(id: str) -> bytes:
        """Return the ACK of a message."""
        return f"ACK:{id}\n".encode()

    def _expect(self, read: _Reading, refused: _Refusing) -> Pending[Any]:
        pending: Pending[Any] = Pending()
        self._pending.append((pending, read, refused))
        return pending

    # -- what is heard -----------------------------------------------------------------------------

    def received(self, data: bytes) -> None:
        """Take what was read, and settle what it answers.

        :raises BrokerError: it is not MiniMQ, or answers nothing that was asked; nothing can be read after that.
        """
        for line in self._scanner.feed(data):
            if not self._pending:
                raise BadFraming("a line came that answers nothing")
            pending, read, refused = self._pending.popleft()
            if line.startswith(_ERROR):
                status, _, words = decodeText(line[len(_ERROR) :]).partition(":")
                if not status.isdecimal():
                    raise BadFraming("an error came without a number")
                pending.fail(refused(int(status), words))
                continue
            try:
                pending.succeed(read(line))
            except BrokerError as error:
                pending.fail(ConnectionLost(f"what came is not MiniMQ: {error}"))
                raise

    def lost(self, lost: ConnectionLost) -> None:
        """Fail whatever was asked and not answered."""
        asked, self._pending = self._pending, deque()
        for pending, _, _ in asked:
            pending.fail(lost)


def lineOf(message: MiniMessage) -> bytes:
    """Return the PRODUCE of a message.

    :raises ValueError: MiniMQ cannot spell it.
    """
    _check(message.topic)
    if not isId(message.id):
        raise ValueError(f"the id {message.id!r} cannot be told from other answers, or from other fields")
    if "\n" in message.content:
        raise ValueError("a content cannot hold a line break: write it as JSON, for example")
    for field in (message.correlation_id, message.reply_to):
        if field.startswith(":") or SEPARATOR in field or "\r" in field or "\n" in field:
            raise ValueError(f"{field!r} would not be one field of a line")
    return f"PRODUCE:{SEPARATOR.join(message[:5])}\n".encode()


def _check(topic: str) -> None:
    try:
        checkTopic(topic)
    except BrokerError as error:
        raise ValueError(f"the topic {topic!r}: {error}") from None


def _readId(line: bytes) -> str:
    return decodeText(line)


def _readMessage(line: bytes) -> MiniMessage | None:
    return None if line == _NO_MESSAGE else parseProduce(decodeText(line), str)


def _readPong(line: bytes) -> None:
    if line != _PONG:
        raise BadFraming("the answer to a PING is no PONG")
