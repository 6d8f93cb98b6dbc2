"""RFC 6455 as Autobahn speaks it, within bounds.

Autobahn does the handshake, control frames, fragments, extensions and all that is refused. What is done otherwise
here, and why:

- Batches of whole small frames are taken past its parser (:func:`fleximq.wire.websocket_frame.readSmallFrames`).
  Everything else it is given frame by frame: on its own it copies the rest of a read for every frame in it.
- Messages are gathered in a buffer that pieces of any size cannot swell; it keeps an object for each, empty ones too.
- After a violation nothing is parsed any more, after a close frame only the peer's own, and that not for ever: it
  would go on to gather.
- UTF-8 is looked at once, when a message is whole.
- Its timers and its logging of refusals stay off, and what it wants to send goes where its subclass says.
"""

from abc import ABCMeta, abstractmethod
from typing import Any, ClassVar

from autobahn.twisted.websocket import WebSocketServerProtocol
from twisted.logger import Logger

from fleximq.dialects.websocket.inflation import Inflation
from fleximq.wire.receive_buffer import ReceiveBuffer
from fleximq.wire.websocket_frame import TEXT, endOfFrame, isUtf8, readSmallFrames

#: The longest head of a request.
REQUEST_BYTES = 1 << 16

NORMAL, GOING_AWAY, PROTOCOL_ERROR, UNSUPPORTED = 1000, 1001, 1002, 1003
INVALID_PAYLOAD, POLICY_VIOLATION, TOO_BIG, INTERNAL_ERROR = 1007, 1008, 1009, 1011
SERVICE_RESTART, TRY_AGAIN_LATER = 1012, 1013

#: So many frames behind our own close frame are looked through for the peer's; then nothing more is.
LATE_FRAMES = 10_000

#: Frames of this opcode and above are control frames.
_CONTROL = 8


class BoundedProtocol(WebSocketServerProtocol, metaclass=ABCMeta):
    """Parses what it is fed with.

    Subclasses define :meth:`send`, :meth:`opened`, :meth:`deliverMessages`, :meth:`fail`, :meth:`refused` and
    :meth:`closed`.
    ``messages`` are those that arrived and are not worked through yet. ``kinds`` are the first bytes of the frames
    that may be taken quickly; where :data:`TEXT` is one of them, binary messages are read as text too. ``violated``
    says that the peer broke the protocol. While subclasses set ``halted``, what is fed is kept as it came; when they
    feed again, if only b"", it goes on.

    :param limit: the most bytes of a message, after inflation.
    """

    kinds: ClassVar[frozenset[int]]
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
        self.messages: list[bytes] = []
        self._late = 0
        self._limit = limit
        self._gathered = ReceiveBuffer()
        self._isText = False

    # -- for subclasses ----------------------------------------------------------------------------

    @abstractmethod
    def send(self, data: bytes) -> None:
        """Send a frame or an HTTP answer."""

    @abstractmethod
    def opened(self) -> None:
        """The handshake is done; raises nothing."""

    @abstractmethod
    def deliverMessages(self) -> None:
        """Work through ``messages``, before anything else is answered; raises nothing."""

    @abstractmethod
    def fail(self, code: int, words: str) -> None:
        """Close with this code and these words."""

    @abstractmethod
    def refused(self) -> None:
        """The request was refused and answered: close."""

    @abstractmethod
    def closed(self) -> None:
        """There is nothing more to expect from the peer: close."""

    # -- the way in --------------------------------------------------------------------------------

    def feed(self, data: bytes) -> None:
        """Work through what was read."""
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
        """Let go of all that was received and not worked through."""
        self.data = b""
        self.messages = []
        self._gathered = ReceiveBuffer()

    def _request(self, data: bytes) -> None:
        """Let Autobahn look at the request, then go on with the frames behind it."""
        self.data = data
        self.processHandshake()
        if self.state == self.STATE_OPEN:
            data, self.data = self.data, b""
            self._frames(data)
        elif self.state == self.STATE_CONNECTING and len(data) > REQUEST_BYTES:
            self.failHandshake("the head of the request is too long", 431)

    def _frames(self, data: bytes) -> None:
        """Take batches quickly, and everything else as Autobahn does it: to the end of one frame each time."""
        offset, size, kinds = 0, len(data), self.kinds
        while offset < size and not self.halted and not self.violated and self.state != self.STATE_CLOSED:
            if self.current_frame is not None:
                end = offset + self.current_frame.length - self.current_frame_masker.pointer()
            else:
                if not self.inside_message and self.state == self.STATE_OPEN:
                    offset = readSmallFrames(data, offset, kinds, self._limit, TEXT in kinds, self.messages.append)
                end = endOfFrame(data, offset)
            self.deliverMessages()
            if self.halted:
                break
            self.data = data[offset:end]
            offset = end
            while self.processData() and self.state != self.STATE_CLOSED:
                pass
        self.deliverMessages()
        if self.halted:
            self.data += data[offset:]

    # -- what Autobahn calls: the handshake --------------------------------------------------------

    def succeedHandshake(self, res: Any) -> None:
        """Answer the request; nothing it raises would be seen by anybody else."""
        try:
            super().succeedHandshake(res)
        except Exception:
            self._log.failure("a request for a WebSocket could not be answered")
            self.failHandshake("internal error", 500)

    def failHandshake(self, reason: str, code: int = 400, responseHeaders: Any = None) -> None:
        """Refuse the request and close."""
        self._log.debug("refusing a WebSocket with {code}: {reason}", code=code, reason=reason)
        self.sendHttpErrorResponse(code, reason, [("Connection", "close"), *(responseHeaders or [])])
        self.state = self.STATE_CLOSED
        self.refused()

    def _onOpen(self) -> None:
        if self._perMessageCompress is not None:
            self._perMessageCompress = Inflation(self._limit)
        self.opened()

    def consumeData(self) -> None:
        """Leave the frames behind a request to the read that brought it."""

    # -- what Autobahn calls: messages -------------------------------------------------------------

    def onFrameData(self, payload: bytes) -> None:
        """Take part of a frame; once a close frame was sent, only the peer's own matters."""
        if self.current_frame.opcode >= _CONTROL or self.state == self.STATE_OPEN:
            super().onFrameData(payload)

    def onFrameEnd(self) -> None:
        """Take the end of a frame, and be ready for the next whatever became of what was in it."""
        frame = self.current_frame
        self._late += self.state != self.STATE_OPEN
        if self._late > LATE_FRAMES:
            self.violated = True
            return
        if frame.opcode >= _CONTROL or self.state == self.STATE_OPEN:
            super().onFrameEnd()
        self.current_frame = None
        if frame.opcode < _CONTROL and (frame.fin or self.state != self.STATE_OPEN):
            self.inside_message = not frame.fin
            self._gathered.drain()

    def onMessageBegin(self, isBinary: bool) -> None:
        """Begin to gather a message."""
        self._isText = not isBinary
        self.message_data_total_length = 0

    def onMessageFrameBegin(self, length: int) -> None:
        """Refuse a frame on its length, before its bytes arrive; a compressed one while it is inflated."""
        if not self._isMessageCompressed and self._gathered.buffered + length > self._limit:
            self._tooBig()

    def onMessageFrameData(self, payload: bytes) -> None:
        """Keep a part of a message."""
        self._gathered.add(payload)

    def onMessageFrameEnd(self) -> None:
        """Wait for the message's end."""

    def onMessageEnd(self) -> None:
        """Take the whole message."""
        message = self._gathered.drain()
        if TEXT not in self.kinds or isUtf8(message):
            self.messages.append(message)
        elif self._isText:
            self.fail(INVALID_PAYLOAD, "the text is not UTF-8")

    # -- what Autobahn calls: the way out, and the end ---------------------------------------------

    def sendData(self, data: bytes, sync: bool = False, chopsize: int | None = None) -> None:
        """Send what Autobahn says, behind all that was said before."""
        self.send(data)

    def _max_message_size_exceeded(self, size: int, limit: int, reason: str) -> None:
        """Refuse what was inflated too far; the bound is not one that Autobahn knows."""
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
        """Do nothing: Autobahn registered none."""
