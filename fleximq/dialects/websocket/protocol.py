"""Sessions' side of a WebSocket (RFC 6455), with bounded memory and time.

The handshake, control frames, fragments and all refusals are decided by Autobahn
(:mod:`fleximq.dialects.websocket.autobahn_parser`). In front of it:

- Batches of complete small frames are read without it (:func:`fleximq.wire.websocket_frame.readSmallFrames`). Other
  input is passed to it frame by frame, and before admission in steps: by itself it copies the rest of a read for each
  frame, which takes quadratic time.
- Compression is negotiated and removed here: the parser sees neither offers nor the bit of a compressed message.
- Messages are collected in one buffer; Autobahn stores an object for each fragment, even an empty one.
- After a violation input is ignored; after our close frame only the peer's is awaited, for a limited number of frames.
- UTF-8 is checked once, for the complete message.
"""

import re
import sys
from abc import ABCMeta, abstractmethod
from enum import Enum
from typing import ClassVar

from autobahn.twisted.websocket import WebSocketServerFactory
from autobahn.websocket.types import ConnectionDeny
from twisted.internet.interfaces import IAddress
from twisted.internet.protocol import connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure

from fleximq.compiled import choice
from fleximq.dialects.websocket.autobahn_parser import AutobahnParser
from fleximq.dialects.websocket.close_code import (
    INVALID_PAYLOAD,
    POLICY_VIOLATION,
    PROTOCOL_ERROR,
    TOO_BIG,
    WebSocketFault,
)
from fleximq.dialects.websocket.inflation import DEFLATE, Inflation, acceptDeflate, tooBig
from fleximq.wire.receive_buffer import ReceiveBuffer
from fleximq.wire.websocket_frame import CLOSE, TEXT, endOfFrame, hasHead, isUtf8

#: Maximum size of a request head.
REQUEST_BYTES = 1 << 16

#: Frames searched for the peer's close frame after ours was sent; later ones are ignored.
LATE_FRAMES = 10_000

#: Maximum frames, fragments and control frames included, before the client is admitted.
EARLY_FRAMES = 1000

#: Bytes of a frame passed to Autobahn at once: before admission so few that they inflate to 64 KiB at most.
UNLIMITED, UNADMITTED_STEP = sys.maxsize, 64

#: The field that may occur several times, each with some of the offers (RFC 6455, section 11.3.2).
_OFFERS = re.compile(rb"\r\nsec-websocket-extensions[ \t]*:([^\r\n]*)", re.IGNORECASE)
_HEAD_END = b"\r\n\r\n"
_ACCEPTED = b"HTTP/1.1 101 "

#: The reserved bits of a frame; the first alone marks the message that it begins as compressed.
_RESERVED, _DEFLATED = 0x70, 0x40
#: Frames with this opcode and above are control frames; those with 0 continue a message.
_OPCODE, _CONTROL, _CONTINUATION = 0x0F, 8, 0


class WebSocketState(Enum):
    """How far a WebSocket has come."""

    CONNECTING = "the request is awaited"
    OPEN = "both sides send"
    CLOSING = "our close frame was sent, and the peer's may follow"
    CLOSED = "the request was refused, both close frames were sent, or the connection is lost"


_CONNECTING, _OPEN, _CLOSED = WebSocketState.CONNECTING, WebSocketState.OPEN, WebSocketState.CLOSED


class BoundedProtocol(metaclass=ABCMeta):
    """Parses input; a message has at most ``limit`` bytes after inflation.

    ``messages`` are complete and unprocessed. ``kinds`` are the first bytes of frames that may be read in batches; with
    :data:`TEXT`, binary messages are read as text too. ``violated`` is set after a protocol violation. While subclasses
    set ``halted``, input is buffered; the next :meth:`feed` continues. ``step`` bytes of a frame are processed at once,
    of a compressed message at most ``deflatedStep``.
    """

    kinds: ClassVar[frozenset[int]]
    deflatedStep: ClassVar[int] = UNLIMITED
    _log = Logger()

    def __init__(self, limit: int) -> None:
        self.state = _CONNECTING
        self.violated = False
        self.halted = False
        self.step = UNLIMITED
        self.messages: list[bytes] = []
        self._limit = limit
        # Input that was not processed: an incomplete request or head of a frame, or all of it while halted.
        self._input = b""
        self._left = 0  # bytes of the current frame that the parser has not seen
        self._counted = 0  # frames before admission, or after our close frame
        # The current message: whether it is unfinished, compressed, and text; and its bytes.
        self._isInside = self._isDeflated = self._isText = False
        self._gathered = ReceiveBuffer()
        self._inflation: Inflation | None = None
        # What the parser has answered: a refusal of the request or a close frame, and whether it has ended by a reply.
        self._answer: bytes | None = None
        self._end: bool | None = None

    def startParser(self, factory: WebSocketServerFactory, address: IAddress) -> None:
        """Make the parser, before the first :meth:`feed`."""
        self._parser = AutobahnParser(factory, self, address)

    def stopParser(self, reason: Failure = connectionDone) -> None:
        """Drop the parser and all unprocessed input: the connection is lost."""
        self.state = _CLOSED
        self._input = b""
        self.messages = []
        self._gathered = ReceiveBuffer()
        self._inflation = None
        self._parser.connectionLost(reason)
        del self._parser  # a reference cycle

    # -- for subclasses ----------------------------------------------------------------------------

    @abstractmethod
    def send(self, data: bytes) -> None:
        """Send a frame or an HTTP response."""

    @abstractmethod
    def subprotocolOf(self, offered: list[str]) -> str | None:
        """Return the subprotocol to choose of those offered.

        :raises ConnectionDeny: the peer is refused.
        """

    @abstractmethod
    def opened(self) -> None:
        """The handshake is complete; raises no exception."""

    @abstractmethod
    def deliverMessages(self) -> None:
        """Process ``messages``, before other input is answered; raises no exception."""

    @abstractmethod
    def fail(self, code: int, words: str) -> None:
        """Close with this code and text."""

    @abstractmethod
    def refused(self, code: int, reason: str) -> None:
        """Log and close: the request was refused with this status and text, and answered."""

    @abstractmethod
    def closed(self) -> None:
        """Close: no more input is expected from the peer."""

    def messageBegun(self, isText: bool) -> None:
        """Begin to collect a message."""
        self._isText = isText

    def frameBegun(self, length: int) -> None:
        """Refuse a frame on its length, before its payload arrives; a compressed one during inflation."""
        if not self._isDeflated and self._gathered.buffered + length > self._limit:
            self.fail(TOO_BIG, tooBig(self._limit))

    def messageData(self, payload: bytes) -> None:
        """Append a part of a message."""
        self._gathered.add(payload)

    def messageEnded(self) -> None:
        """Process the complete message."""
        message = self._gathered.drain()
        if TEXT not in self.kinds or isUtf8(message):
            self.messages.append(message)
        elif self._isText:
            self.fail(INVALID_PAYLOAD, "the text is not UTF-8")

    # -- input -------------------------------------------------------------------------------------

    def feed(self, data: bytes) -> None:
        """Process a read."""
        if self.violated or self.state is _CLOSED:
            return
        if self._input:
            data = self._input + data
            self._input = b""
        if self.halted:
            self._input = data
        elif self.state is _CONNECTING:
            self._request(data)
        else:
            self._frames(data)

    def _request(self, data: bytes) -> None:
        end = data.find(_HEAD_END)
        if end < 0:
            self._input = data
            if len(data) > REQUEST_BYTES:
                self._refuse(b"HTTP/1.1 431 the head of the request is too long\r\n\r\n")
            return
        end += len(_HEAD_END)
        accepted = acceptDeflate(b",".join(_OFFERS.findall(data, 0, end)).decode("latin-1"))
        if accepted is not None:
            self._inflation = Inflation(self._limit, accepted)
        self._parser.receive(_OFFERS.sub(b"", data[:end]))
        if self.state is _CONNECTING:
            self._refuse(self._answer or b"HTTP/1.1 500 internal error\r\n\r\n")
        else:
            self._frames(data[end:])

    def _refuse(self, response: bytes) -> None:
        self.state = _CLOSED
        status, end, fields = response.partition(b"\r\n")
        self.send(status + b"\r\nConnection: close" + end + fields)
        _, code, reason = status.decode(errors="replace").split(" ", 2)
        self.refused(int(code), reason)

    def _frames(self, data: bytes) -> None:
        """Process batches directly, and pass other input to Autobahn, up to the end of one frame each time."""
        offset, size, kinds = 0, len(data), self.kinds
        while offset < size and not self.halted and not self.violated and self.state is not _CLOSED:
            if self._left:
                end = offset + self._left
            else:
                if not self._isInside and self.state is _OPEN:
                    offset = choice.readSmallFrames(
                        data, offset, kinds, self._limit, TEXT in kinds, self.messages.append
                    )
                if not hasHead(data, offset):
                    break
                end = endOfFrame(data, offset)
            self.deliverMessages()
            if self.halted:
                break
            offset = self._pass(data, offset, end)
        self.deliverMessages()
        if self.state is not _CLOSED and not self.violated:
            self._input = data[offset:]

    def _pass(self, data: bytes, offset: int, end: int) -> int:
        """Pass a part of the frame that ends at ``end`` to Autobahn; return the end of the part."""
        first = data[offset]
        passed = first if self._left else self._begin(first)
        if passed is None:
            return offset
        step = min(self.step, self.deflatedStep) if self._isDeflated else self.step
        stop = min(end, len(data), offset + step)
        self._left = end - stop
        part = data[offset:stop]
        self._parser.receive(part if passed == first else bytes([passed]) + part[1:])
        self._settle()
        return stop

    def _begin(self, first: int) -> int | None:
        """Begin a frame with this first byte; return the byte without the mark of compression, if that was agreed on.

        Returns None for a frame that ends the processing of input.
        """
        opcode = first & _OPCODE
        isMarked = self._inflation is not None and first & _RESERVED == _DEFLATED
        if self.state is not _OPEN:
            self._counted += 1
            self.violated = self._counted > LATE_FRAMES
        elif self.step is not UNLIMITED:
            self._counted += 1
            if self._counted > EARLY_FRAMES:
                self._violate(POLICY_VIOLATION, "there were too many frames before the client was admitted")
        # RFC 7692, section 6.1: only the first frame of a message is marked.
        if isMarked and opcode >= _CONTROL:
            self._violate(PROTOCOL_ERROR, f"received compressed control frame [{DEFLATE}]")
        elif isMarked and opcode == _CONTINUATION and self._isInside:
            self._violate(PROTOCOL_ERROR, f"received continuation data frame with compress bit set [{DEFLATE}]")
        elif opcode < _CONTROL and not self._isInside:
            self._isDeflated = isMarked
        if self.violated:
            return None
        return first & ~_DEFLATED if isMarked else first

    def _settle(self) -> None:
        """Act on the close frame that the parser has written, and on its end."""
        frame, self._answer = self._answer, None
        if frame is not None and self.state is _OPEN:
            if self._end:
                self.state = _CLOSED
                self.send(frame)
            else:
                # An unmasked frame of at most 125 bytes: its head has two bytes, the code follows.
                code, words = int.from_bytes(frame[2:4], "big"), frame[4:].decode(errors="replace")
                if code == PROTOCOL_ERROR:
                    self._violate(code, words)
                else:
                    self.fail(code, words)
        if self._end is not None:
            self.state = _CLOSED
            self.closed()

    def _violate(self, code: int, words: str) -> None:
        self.violated = True
        self.fail(code, words)

    # -- called by the parser ----------------------------------------------------------------------

    def onRequest(self, protocols: list[str]) -> tuple[str | None, dict[str, str]]:
        """See :class:`~fleximq.dialects.websocket.autobahn_parser.ParsedWebSocket`."""
        try:
            subprotocol = self.subprotocolOf(protocols)
        except ConnectionDeny:
            raise
        except Exception:
            self._log.failure("a request for a WebSocket could not be answered")
            raise ConnectionDeny(ConnectionDeny.INTERNAL_SERVER_ERROR, "internal error") from None
        inflation = self._inflation
        return subprotocol, {} if inflation is None else {"Sec-WebSocket-Extensions": inflation.accepted}

    def onOpen(self) -> None:
        """The handshake is complete."""
        self.state = _OPEN
        self.opened()

    def onAnswer(self, data: bytes) -> None:
        """Send an answer; a refusal, and a close frame, are sent when the parser returns."""
        if data[0] == CLOSE or (self.state is _CONNECTING and not data.startswith(_ACCEPTED)):
            self._answer = data
        elif self.state is _CONNECTING or self.state is _OPEN:
            self.send(data)

    def onEnd(self, isReply: bool) -> None:
        """Note that the parser has ended."""
        self._end = isReply

    @property
    def _isRead(self) -> bool:
        """Whether messages are processed; not in a frame that broke the protocol, or after our close frame."""
        return self.state is _OPEN and self._answer is None

    def onMessageBegin(self, isBinary: bool) -> None:
        """A message begins."""
        self._isInside = True
        if self._isRead:
            if self._isDeflated and self._inflation is not None:
                self._inflation.begin()
            self.messageBegun(not isBinary)

    def onMessageFrameBegin(self, length: int) -> None:
        """A frame of a message begins."""
        if self._isRead:
            self.frameBegun(length)

    def onMessageFrameData(self, payload: bytes) -> None:
        """Inflate and collect a part of a message."""
        if self._isRead:
            try:
                if self._isDeflated and self._inflation is not None:
                    payload = self._inflation.inflate(payload)
            except WebSocketFault as fault:
                self.fail(fault.code, fault.words)
            else:
                self.messageData(payload)

    def onMessageEnd(self) -> None:
        """End a message."""
        self._isInside = False
        if not self._isRead:
            self._gathered.drain()
            return
        try:
            if self._isDeflated and self._inflation is not None:
                self._inflation.end()
        except WebSocketFault as fault:
            self.fail(fault.code, fault.words)
        else:
            self.messageEnded()
