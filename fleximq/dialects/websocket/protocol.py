"""Autobahn's RFC 6455 protocol with bounded memory and time.

Autobahn handles the handshake, control frames, fragments, extensions and all refusals. The differences, and their
reasons:

- Batches of complete small frames bypass its parser (:func:`fleximq.wire.websocket_frame.readSmallFrames`). Other input
  is passed to it frame by frame: by itself it copies the rest of a read for each frame.
- Messages are collected in one buffer; Autobahn stores an object for each fragment, even an empty one.
- After a violation input is ignored; after our close frame only the peer's is awaited, for a limited number of frames.
- UTF-8 is checked once, for the complete message.
- Its timers and its log lines about refusals are off, and subclasses decide how its output is sent.
"""

import re
import sys
from abc import ABCMeta, abstractmethod
from typing import Any, ClassVar

from autobahn.twisted.websocket import WebSocketServerProtocol
from twisted.logger import Logger

from fleximq.compiled import choice
from fleximq.dialects.websocket.inflation import Inflation, isDeflateOffer
from fleximq.wire.receive_buffer import ReceiveBuffer
from fleximq.wire.websocket_frame import TEXT, endOfFrame, isUtf8

#: Maximum size of a request head.
REQUEST_BYTES = 1 << 16

NORMAL, GOING_AWAY, PROTOCOL_ERROR, UNSUPPORTED = 1000, 1001, 1002, 1003
INVALID_PAYLOAD, POLICY_VIOLATION, TOO_BIG, INTERNAL_ERROR = 1007, 1008, 1009, 1011
SERVICE_RESTART, TRY_AGAIN_LATER = 1012, 1013

#: Frames searched for the peer's close frame after ours was sent; later ones are ignored.
LATE_FRAMES = 10_000

#: Maximum frames, fragments and control frames included, before the client is admitted.
EARLY_FRAMES = 1000

#: Bytes of a frame passed to Autobahn at once: before admission so few that they inflate to 64 KiB at most.
UNLIMITED, UNADMITTED_STEP = sys.maxsize, 64

#: The field that may occur several times, each with some of the offers (RFC 6455, section 11.3.2).
_OFFERS = re.compile(rb"\r\nsec-websocket-extensions:([^\r\n]*)", re.IGNORECASE)

#: The first reserved bit of a frame: the message that it begins is compressed.
_DEFLATED = 0x40

#: Frames with this opcode and above are control frames.
_CONTROL = 8


class BoundedProtocol(WebSocketServerProtocol, metaclass=ABCMeta):
    """Parses input; a message has at most ``limit`` bytes after inflation.

    ``messages`` are complete and unprocessed. ``kinds`` are the first bytes of frames that may bypass Autobahn; with
    :data:`TEXT`, binary messages are read as text too. ``violated`` is set after a protocol violation. While subclasses
    set ``halted``, input is buffered; the next :meth:`feed` continues. ``step`` bytes of a frame are processed at once,
    of a compressed one at most ``deflatedStep``.
    """

    kinds: ClassVar[frozenset[int]]
    deflatedStep: ClassVar[int] = UNLIMITED
    data: bytes
    current_frame: Any
    _isMessageCompressed: bool
    _perMessageCompress: Any
    _log = Logger()

    def __init__(self, limit: int) -> None:
        super().__init__()
        self.current_frame = None
        self.inside_message = False
        self.violated = False
        self.halted = False
        self.step = UNLIMITED
        self.messages: list[bytes] = []
        self._early = self._late = 0
        self._limit = limit
        self._gathered = ReceiveBuffer()
        self._isText = False

    # -- for subclasses ----------------------------------------------------------------------------

    @abstractmethod
    def send(self, data: bytes) -> None:
        """Send a frame or an HTTP response."""

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

    # -- input -------------------------------------------------------------------------------------

    def feed(self, data: bytes) -> None:
        """Process a read."""
        if self.violated or self.state == self.STATE_CLOSED:
            return
        if self.halted:
            self.data += data
            return
        if self.data:
            data = self.data + data
            self.data = b""
        if self.state == self.STATE_CONNECTING:
            self._request(data)
        else:
            self._frames(data)

    def forget(self) -> None:
        """Drop all unprocessed input."""
        self.data = b""
        self.messages = []
        self._gathered = ReceiveBuffer()

    def _request(self, data: bytes) -> None:
        self.data = _withOneField(data)
        self.processHandshake()
        if self.state == self.STATE_OPEN:
            data, self.data = self.data, b""
            self._frames(data)
        elif self.state == self.STATE_CONNECTING and len(data) > REQUEST_BYTES:
            self.failHandshake("the head of the request is too long", 431)

    def _frames(self, data: bytes) -> None:
        """Process batches directly, and pass other input to Autobahn, up to the end of one frame each time."""
        offset, size, kinds = 0, len(data), self.kinds
        while offset < size and not self.halted and not self.violated and self.state != self.STATE_CLOSED:
            if self.current_frame is not None:
                end = offset + self.current_frame.length - self.current_frame_masker.pointer()
            else:
                if not self.inside_message and self.state == self.STATE_OPEN:
                    offset = choice.readSmallFrames(
                        data, offset, kinds, self._limit, TEXT in kinds, self.messages.append
                    )
                end = endOfFrame(data, offset)
            self.deliverMessages()
            if self.halted:
                break
            step = self.step
            if end - offset > self.deflatedStep and self._isDeflated(data[offset]):
                step = min(step, self.deflatedStep)
            if end - offset > step:
                end = offset + step
            self.data = data[offset:end]
            offset = end
            while self.processData() and self.state != self.STATE_CLOSED:
                pass
        self.deliverMessages()
        if self.halted:
            self.data += data[offset:]

    def _isDeflated(self, first: int) -> bool:
        """Return whether the next bytes may be compressed; the first of them begins a message, unless one has begun."""
        return self._isMessageCompressed if self.inside_message else first & _DEFLATED > 0

    # -- called by Autobahn: the handshake ---------------------------------------------------------

    def _parseExtensionsHeader(self, header: str, removeQuotes: bool = True) -> list[tuple[str, Any]]:
        """Return the offers that can be accepted; the others are declined."""
        return [each for each in super()._parseExtensionsHeader(header, removeQuotes) if isDeflateOffer(*each)]

    def succeedHandshake(self, res: Any) -> None:
        """Answer the request; log exceptions here, because no caller would."""
        try:
            super().succeedHandshake(res)
        except Exception:
            self._log.failure("a request for a WebSocket could not be answered")
            self.failHandshake("internal error", 500)

    def failHandshake(self, reason: str, code: int = 400, responseHeaders: Any = None) -> None:
        """Refuse the request and close."""
        self.sendHttpErrorResponse(code, reason, [("Connection", "close"), *(responseHeaders or [])])
        self.state = self.STATE_CLOSED
        self.refused(code, reason)

    def _onOpen(self) -> None:
        if self._perMessageCompress is not None:
            self._perMessageCompress = Inflation(self._limit)
        self.opened()

    def consumeData(self) -> None:
        """Do nothing: frames after a request are processed with the read that contains them."""

    # -- called by Autobahn: messages --------------------------------------------------------------

    def onFrameData(self, payload: bytes) -> None:
        """Process a part of a frame; after our close frame only control frames matter."""
        if self.current_frame.opcode >= _CONTROL or self.state == self.STATE_OPEN:
            super().onFrameData(payload)

    def onFrameEnd(self) -> None:
        """Process the end of a frame, and prepare for the next one in any case."""
        frame = self.current_frame
        self._late += self.state != self.STATE_OPEN
        if self._late > LATE_FRAMES:
            self.violated = True
            return
        self._early += self.step is not UNLIMITED
        if self._early > EARLY_FRAMES:
            self.violated = True
            self.fail(POLICY_VIOLATION, "there were too many frames before the client was admitted")
            return
        if frame.opcode >= _CONTROL or self.state == self.STATE_OPEN:
            super().onFrameEnd()
        self.current_frame = None
        if frame.opcode < _CONTROL and (frame.fin or self.state != self.STATE_OPEN):
            self.inside_message = not frame.fin
            self._gathered.drain()

    def onMessageBegin(self, isBinary: bool) -> None:
        """Start to collect a message."""
        self._isText = not isBinary
        self.message_data_total_length = 0

    def onMessageFrameBegin(self, length: int) -> None:
        """Refuse a frame on its length, before its payload arrives; a compressed one during inflation."""
        if not self._isMessageCompressed and self._gathered.buffered + length > self._limit:
            self._tooBig()

    def onMessageFrameData(self, payload: bytes) -> None:
        """Append a part of a message."""
        self._gathered.add(payload)

    def onMessageFrameEnd(self) -> None:
        """Do nothing until the end of the message."""

    def onMessageEnd(self) -> None:
        """Process the complete message."""
        message = self._gathered.drain()
        if TEXT not in self.kinds or isUtf8(message):
            self.messages.append(message)
        elif self._isText:
            self.fail(INVALID_PAYLOAD, "the text is not UTF-8")

    # -- called by Autobahn: output and the end ----------------------------------------------------

    def sendData(self, data: bytes, sync: bool = False, chopsize: int | None = None) -> None:
        """Send Autobahn's output after all earlier output."""
        self.send(data)

    def _max_message_size_exceeded(self, size: int, limit: int, reason: str) -> None:
        self._tooBig()

    def _tooBig(self) -> None:
        self.fail(TOO_BIG, f"a message may have {self._limit} bytes")

    def _protocol_violation(self, reason: str) -> bool:
        self.violated = True
        self.fail(PROTOCOL_ERROR, reason)
        return True

    def _fail_connection(self, code: int = GOING_AWAY, reason: str = "going away") -> None:
        self.fail(code, reason)

    def _closeConnection(self, abort: bool = False) -> None:
        self.closed()

    def unregisterProducer(self) -> None:
        """Do nothing: Autobahn registered no producer."""


def _withOneField(request: bytes) -> bytes:
    """Return a request with the offers of extensions in one field; Autobahn refuses several."""
    head, end, rest = request.partition(b"\r\n\r\n")
    offers = _OFFERS.findall(head) if end else ()
    if len(offers) < 2:
        return request
    return _OFFERS.sub(b"", head) + b"\r\nSec-WebSocket-Extensions:" + b",".join(offers) + end + rest
