"""MiniMQ lines: bytes to commands, and the answers (MiniMQ document, sections 2, 3, 5, 7 and 8).

A read is split once with ``bytes.split``; an unfinished line waits in a linear buffer. Messages inside PRODUCE and
inside deliveries belong to :mod:`fleximq.wire.minimq_message`.

Hot: about 0.1 us to split off a line of 130 bytes (0.2 us if lines end with CRLF) and 0.35 to 0.6 us to parse its
command (timeit over reads of 64 KiB, CPython 3.11, one core).
"""

from collections.abc import Iterator, Sequence
from enum import Enum
from itertools import islice
from typing import NamedTuple

from fleximq.errors import BadRequest, TooLarge
from fleximq.limits import Limits
from fleximq.wire.minimq_message import checkTopic
from fleximq.wire.receive_buffer import ReceiveBuffer

#: Answers to a CONSUME of an empty queue, and to a PING.
NO_MESSAGE, PONG = b"NO_MSG\n", b"PONG:\n"


class LineScanner:
    """Splits a stream of bytes into lines, which end with LF or CRLF.

    :param limit: the maximum length of a line, without its end, in bytes.
    """

    __slots__ = ("_buffer", "_isOver", "_limit")

    def __init__(self, limit: int = Limits().line) -> None:
        self._buffer = ReceiveBuffer()
        self._limit = limit
        self._isOver = False

    @property
    def buffered(self) -> int:
        """The number of buffered bytes of an unfinished line."""
        return self._buffer.buffered

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield the lines that ``data`` completes, without their ends. Iterate to the end before feeding again.

        :raises TooLarge: as soon as a line is over the limit, after the lines before it; then at every call.
        """
        if self._isOver:
            raise self._over()
        if b"\n" in data:
            if self._buffer.buffered:
                self._buffer.add(data)
                data = self._buffer.drain()
            lines = data.split(b"\n")
            isPlain = len(data) <= self._limit and b"\r" not in data
            data = lines.pop()
            if isPlain:
                yield from lines
            else:
                yield from map(self._ended, lines)
        self._buffer.add(data)
        if data and not self._fits(self._buffer.buffered, data):
            self._buffer.drain()
            raise self._over()

    def _ended(self, line: bytes) -> bytes:
        if not self._fits(len(line), line):
            raise self._over()
        return line.rstrip(b"\r")

    def _fits(self, length: int, tail: bytes) -> bool:
        """Return whether a line of ``length`` bytes is within the limit; a CR at its tail belongs to its end."""
        return length <= self._limit or (length == self._limit + 1 and tail.endswith(b"\r"))

    def _over(self) -> TooLarge:
        self._isOver = True
        return TooLarge(f"the line is longer than {self._limit} bytes")


class CommandKind(Enum):
    """The commands of the MiniMQ document, section 5 and 8."""

    PRODUCE = b"PRODUCE"
    CONSUME = b"CONSUME"
    ACK = b"ACK"
    PING = b"PING"


class MiniCommand(NamedTuple):
    """One line of a client. ``payload`` is the part after the first colon."""

    kind: CommandKind
    payload: str


_KINDS = {kind.value: kind for kind in CommandKind}
_ACK = CommandKind.ACK
_ACK_PREFIX = b"ACK:"
_CONSUME = CommandKind.CONSUME


def parseCommand(line: bytes) -> MiniCommand:
    """Return the command of a line. The topic of a CONSUME has been checked, the message of a PRODUCE has not.

    An ACK never raises, since it has no answer; if it is not UTF-8 its payload is empty, which is no message's id.

    :raises BadRequest: without a colon, for an unknown command (case matters) and for text that is not UTF-8.
    :raises InvalidTopic: for the topic of a CONSUME, see :func:`fleximq.wire.minimq_message.checkTopic`.
    """
    word, colon, encoded = line.partition(b":")
    if not colon:
        raise BadRequest("no colon after the command")
    kind = _KINDS.get(word)
    if kind is None:
        raise BadRequest("unknown command")
    try:
        payload = decodeText(encoded)
    except BadRequest:
        if kind is _ACK:
            return MiniCommand(kind, "")
        raise
    if kind is _CONSUME:
        checkTopic(payload)
    return MiniCommand(kind, payload)


def readAcknowledgements(lines: Sequence[bytes], place: int) -> list[str]:
    """Return the ids of the ACKs from ``place`` on, up to the first other line."""
    ids = []
    for line in islice(lines, place, None):
        if not line.startswith(_ACK_PREFIX):
            break
        try:
            ids.append(line[len(_ACK_PREFIX) :].decode())
        except UnicodeDecodeError:
            ids.append("")
    return ids


def decodeText(encoded: bytes) -> str:
    """Return the text of a line, or of a part of it; raises BadRequest if it is not UTF-8."""
    try:
        return encoded.decode()
    except UnicodeDecodeError as error:
        raise BadRequest("the line is not UTF-8") from error


def encodeError(code: int, words: str) -> bytes:
    """Return an error as one line; line breaks in the words become spaces."""
    return f"ERROR:{code}:{' '.join(words.split())}\n".encode("utf-8", "replace")
