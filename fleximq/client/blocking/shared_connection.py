"""One connection shared by several threads: complete messages are sent, and a waiting thread reads for all.

There are two locks. The sending thread holds ``_sending`` from the first to the last byte of a message. ``lock``
guards everything else and is never held during a wait. A thread that holds ``lock`` never acquires ``_sending``.
"""

import math
import select
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from typing import TypeVar

from fleximq.client.errors import ConnectionLost
from fleximq.client.events import Delivery, Event, Pinged
from fleximq.client.protocol.conversation import Conversation
from fleximq.client.sockets import PipeSocket, asConnectionLost
from fleximq.errors import BrokerError
from fleximq.limits import KIBIBYTE, MEBIBYTE
from fleximq.values.transitions import Transitions

_READ_BYTES = _WRITE_BYTES = 256 * KIBIBYTE
#: A sending thread reads available bytes each time it has sent this much.
_READ_AFTER_BYTES = 256 * KIBIBYTE
#: A thread that waits to send checks this often whether it should read.
_SEND_CHECK_MILLISECONDS = 50
#: While reading is paused, waiting threads check the connection this often, in seconds.
_FULL_CHECK_SECONDS = 5.0
#: Limit of a wait in seconds: Python handles a signal that arrived just before, or in another thread, afterwards.
SIGNAL_SECONDS = 1.0
#: Automatic answers are dropped while more pending output than this is unsent.
_MAX_PENDING_BYTES = MEBIBYTE
_BLOCKED = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)

T = TypeVar("T")


class WireState(Enum):
    """The state of the socket."""

    UNCONNECTED = "unconnected"
    CONNECTED = "connected"
    PEER_ENDED = "peer ended"  # the end was read together with the last bytes, which are dispatched first
    RECONNECTING = "reconnecting"  # lost; waiting threads wait for the next connection
    LOST = "lost"
    CLOSED = "closed"


class WireEvent(Enum):
    """Events of the socket."""

    ATTACHED = "attached"
    END_SEEN = "end seen"
    LOST = "lost"
    LOST_FOR_NOW = "lost, but the client reconnects"
    CLOSED = "closed"


TRANSITIONS = Transitions(
    {
        (WireState.UNCONNECTED, WireEvent.ATTACHED): WireState.CONNECTED,
        (WireState.RECONNECTING, WireEvent.ATTACHED): WireState.CONNECTED,
        (WireState.CONNECTED, WireEvent.END_SEEN): WireState.PEER_ENDED,
        (WireState.CONNECTED, WireEvent.LOST): WireState.LOST,
        (WireState.PEER_ENDED, WireEvent.LOST): WireState.LOST,
        (WireState.CONNECTED, WireEvent.LOST_FOR_NOW): WireState.RECONNECTING,
        (WireState.PEER_ENDED, WireEvent.LOST_FOR_NOW): WireState.RECONNECTING,
        **{(state, WireEvent.CLOSED): WireState.CLOSED for state in WireState},
    }
)


class SharedConnection:
    """Sends for any thread, and reads while a thread waits.

    One of the waiting threads reads and dispatches events; the others sleep. A thread that sends a lot also reads from
    time to time, and whenever the send buffer is full, so that two sides with full buffers do not wait for each other.

    ``lost`` is the reason for a missing connection, or None. Callbacks are called under the ``lock``.

    :param connected: a connected socket, owned by this object from now on; None if one is attached later.
    :param onEvent: called with each event except PINGs, which are answered here; it must not wait.
    :param onDeliveries: called with consecutive deliveries instead.
    :param isFull: returns whether threads that wait for deliveries should stop reading.
    :param onLost: called with the reason at the end; returns whether :meth:`attach` will replace the connection.
    """

    def __init__(
        self,
        connected: socket.socket | PipeSocket | None,
        conversation: Conversation,
        onEvent: Callable[[Event], None],
        onDeliveries: Callable[[list[Delivery]], None],
        isFull: Callable[[], bool] = lambda: False,
        onLost: Callable[[ConnectionLost], bool] = lambda lost: False,
    ) -> None:
        self._socket: socket.socket | PipeSocket | None = None
        self._conversation = conversation
        self._onEvent = onEvent
        self._onLost = onLost
        self._onDeliveries = onDeliveries
        self._isFull = isFull
        self._sending = threading.Lock()
        self.lock = threading.RLock()
        # `with self.lock`, not `with self._changed`: Control-C between two steps of the latter would leave it locked.
        self._changed = threading.Condition(self.lock)
        #: Which thread reads; 0: none.
        self._reader = 0
        self._pendingOutput: deque[bytes | memoryview] = deque()
        self._sentSinceRead = 0
        self._state = WireState.UNCONNECTED
        self.lost: ConnectionLost | None = ConnectionLost("there is no connection yet")
        if connected is not None:
            self._use(connected)

    def _use(self, connected: socket.socket | PipeSocket) -> None:
        connected.setblocking(False)
        self._socket = connected
        source = connected.fileno()
        self._descriptors = source, connected.writeFileno() if isinstance(connected, PipeSocket) else source
        # select() is limited to descriptors below 1024, and two threads cannot share one poll object.
        self._reads, self._sends = select.poll(), select.poll()
        self._pendingOutput.clear()
        self._takeDue()
        self._state = TRANSITIONS[self._state, WireEvent.ATTACHED]
        self.lost = None

    def fileno(self) -> int:
        """Return the descriptor that is readable when there are bytes to read; -1 without a connection."""
        return -1 if self._socket is None else self._socket.fileno()

    def _takeDue(self) -> None:
        if self._hasRoom:
            self._pendingOutput.extend(self._conversation.toSend)
            self._conversation.toSend.clear()

    @property
    def _hasRoom(self) -> bool:
        return sum(map(len, self._pendingOutput)) < _MAX_PENDING_BYTES

    def attach(self, connected: socket.socket | PipeSocket, conversation: Conversation) -> None:
        """Replace a lost connection; raises ConnectionLost and closes the new one if this was closed meanwhile."""
        with self._sending:
            with self.lock:
                while self._reader:
                    self._changed.wait()
                if self._state is WireState.CLOSED:
                    connected.close()
                    self._check()
                self._closeSocket()
                self._conversation = conversation
                self._use(connected)
                self._changed.notify_all()
        self.writePending()

    def send(self, data: bytes, conversation: Conversation | None = None) -> bool:
        """Send complete messages; an interrupt ends the connection, since half a message may have been sent.

        :param conversation: that of the messages; if it has been replaced, they are dropped and False is returned.
        :raises ConnectionLost: the connection ended.
        """
        with self._sending:
            if conversation is not None and conversation is not self._conversation:
                return False
            while self._pendingOutput:
                self._sendAll(self._pendingOutput.popleft())
            self._sendAll(self._conversation.framed(data))
            self._sentSinceRead += len(data)
            if self._sentSinceRead >= _READ_AFTER_BYTES:
                self._sentSinceRead = 0
                self._readIfIdle()
        if self._pendingOutput:
            self.writePending()
        return True

    def sendLater(self, data: bytes, always: bool = False) -> None:
        """Send complete messages soon, without waiting; called under the lock. ``always`` ignores the limit."""
        if always or self._hasRoom:
            self._pendingOutput.append(self._conversation.framed(data))

    def poll(self) -> None:
        """Read available bytes if no other thread reads, and send pending output."""
        self._readIfIdle()
        self.writePending()

    def fail(self, lost: ConnectionLost) -> None:
        """End the connection for this reason."""
        with self.lock:
            self._endWith(lost)

    def waitFor(self, ready: Callable[[], T], timeout: float | None, needed: bool = True) -> T:
        """Wait until ``ready``, called after each event, returns a true value, and return it, even after the end.

        :param timeout: seconds after which the last value of ``ready`` is returned; 0 reads available bytes once.
        :param needed: read even if ``isFull``; otherwise pause reading then.
        :raises ConnectionLost: the connection ended before.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        left, late, waitExpired = timeout, False, False
        while True:
            reads = False
            try:
                with self.lock:
                    found = ready()
                    if found:
                        return found
                    if self._state is not WireState.RECONNECTING:
                        self._check()
                    if late:
                        return found
                    reads = self.lost is None and not self._reader and (needed or waitExpired or not self._isFull())
                    waitExpired = False
                    if reads:
                        self._reader = threading.get_ident()
                    else:
                        waitExpired = not self._changed.wait(
                            _FULL_CHECK_SECONDS if left is None else min(left, _FULL_CHECK_SECONDS)
                        )
                if reads:
                    # A sending thread also sends the pending output.
                    sends = bool(self._pendingOutput) and not self._sending.locked()
                    seconds = SIGNAL_SECONDS if left is None else min(left, SIGNAL_SECONDS)
                    self._poll(self._reads, True, sends, math.ceil(max(0.0, seconds) * 1000))
            finally:
                if reads:
                    self._readOnce()
            if deadline is not None:
                left = deadline - time.monotonic()
                late = left <= 0

    def wake(self) -> None:
        """Let all waiting threads check again; called under the lock."""
        self._changed.notify_all()

    def close(self) -> None:
        """End the connection for good; waiting threads raise the reason."""
        with self.lock:
            if self.lost is None and isinstance(self._socket, ssl.SSLSocket):
                with suppress(OSError):
                    self._socket.unwrap()  # sends the end of TLS, without which the broker assumes a lost connection
            self._end("the client was closed")
            self._state = TRANSITIONS[self._state, WireEvent.CLOSED]
            self._changed.notify_all()
            # The number of a closed descriptor may be reused at once. An interrupted thread may still be the reader.
            while self._reader not in (0, threading.get_ident()):
                self._changed.wait()
        with self._sending, self.lock:
            self._closeSocket()

    def abandon(self, lost: ConnectionLost) -> None:
        """Close the descriptor in a forked child without ending the connection."""
        self._sending = threading.Lock()
        self._state = TRANSITIONS[self._state, WireEvent.CLOSED]
        self._reader = 0
        self.lost = lost
        self._pendingOutput.clear()
        self._closeSocket()

    def _closeSocket(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    # -- reading -----------------------------------------------------------------------------------

    def _readOnce(self) -> None:
        with self.lock:
            self._reader = 0
            try:
                self._readAvailable()
            finally:
                self._changed.notify_all()
        if self._pendingOutput:
            self.writePending()

    def _readIfIdle(self) -> None:
        with self.lock:
            if not self._reader and not self._isFull():
                self._readAvailable()
                self._changed.notify_all()

    def _readAvailable(self) -> bool:
        """Read and dispatch available bytes; False if there are none, or the connection has ended."""
        if self.lost is not None:
            return False
        try:
            data = self._receive()
        except _BLOCKED:
            return False
        except OSError as error:
            self._endWith(asConnectionLost(error, "the connection ended"))
            return False
        if not data:
            self._end("the broker closed the connection")
            return False
        self._dispatch(data)
        return self._readAvailable() if self._state is WireState.PEER_ENDED else True

    def _receive(self) -> bytes:
        assert self._socket is not None
        data = self._socket.recv(_READ_BYTES)
        if not data or not isinstance(self._socket, ssl.SSLSocket):
            return data
        # TLS yields small chunks, and poll() does not see bytes that are already decrypted.
        chunks, size = [data], len(data)
        try:
            while data and (size < _READ_BYTES or self._socket.pending()):
                data = self._socket.recv(_READ_BYTES)
                chunks.append(data)
                size += len(data)
        except _BLOCKED:
            return b"".join(chunks)
        except OSError:
            data = b""
        if not data:
            # The end was read as well, and poll() does not report it: the caller must read once more.
            self._state = TRANSITIONS[self._state, WireEvent.END_SEEN]
        return b"".join(chunks)

    def _dispatch(self, data: bytes) -> None:
        try:
            for event in self._conversation.runs(data):
                if isinstance(event, list):
                    self._onDeliveries(event)
                elif isinstance(event, Pinged):
                    self.sendLater(self._conversation.pong(event.timestamp))
                else:
                    self._onEvent(event)
        except BrokerError as error:
            self._end(f"the received bytes are not FlexiMQ: {error}")
        except BaseException:
            self._end("reading was interrupted")
            raise
        if self._conversation.toSend:
            self._takeDue()

    # -- sending -----------------------------------------------------------------------------------

    def _sendAll(self, data: bytes | memoryview) -> None:
        view = memoryview(data)
        try:
            while view:
                with self.lock:
                    self._check()
                    sent = self._sendSome(view)
                view = view[sent:]
                if not sent:
                    self._waitToSend()
        except BaseException:
            with self.lock:
                self._end("sending was interrupted")
            raise

    def _sendSome(self, data: bytes | memoryview) -> int:
        assert self._socket is not None
        try:
            return self._socket.send(data[:_WRITE_BYTES])
        except _BLOCKED:
            return 0
        except OSError as error:
            while self._readAvailable():  # the last messages of the broker tell the reason
                continue
            self._endWith(asConnectionLost(error, "the connection ended"))
            return 0

    def _waitToSend(self) -> None:
        """Wait until more can be sent; read meanwhile, since the broker may wait as well."""
        with self.lock:
            reads = not self._reader
        if self._poll(self._sends, reads, True, _SEND_CHECK_MILLISECONDS):
            with self.lock:
                if not self._reader:
                    self._readAvailable()
                    self._changed.notify_all()

    def _poll(self, poll: "select.poll", reads: bool, sends: bool, milliseconds: int) -> bool:
        """Wait until bytes can be read or sent, as asked for; True if bytes can be read."""
        source, sink = self._descriptors
        toRead, toSend = reads and select.POLLIN, sends and select.POLLOUT
        if source == sink:
            poll.register(source, toRead | toSend)
        else:
            poll = select.poll()  # a pipe would be reported even without events to wait for
            for descriptor, events in ((source, toRead), (sink, toSend)):
                if events:
                    poll.register(descriptor, events)
        return any(found & ~select.POLLOUT for _, found in poll.poll(milliseconds))

    def writePending(self) -> None:
        """Send pending output without waiting, unless a sending thread will do it."""
        if not self._sending.acquire(blocking=False):
            return
        try:
            with self.lock:
                while self._pendingOutput and self.lost is None:
                    first = self._pendingOutput[0]
                    sent = self._sendSome(first)
                    if sent < len(first):
                        self._pendingOutput[0] = memoryview(first)[sent:]
                        return
                    self._pendingOutput.popleft()
        finally:
            self._sending.release()

    # -- the end -----------------------------------------------------------------------------------

    def _end(self, words: str) -> None:
        self._endWith(ConnectionLost(words))

    def _endWith(self, lost: ConnectionLost) -> None:
        if self.lost is not None:
            return
        self.lost = lost
        self._changed.notify_all()
        if self._socket is not None:
            with suppress(OSError):  # already shut down
                self._socket.shutdown(socket.SHUT_RDWR)
        event = WireEvent.LOST_FOR_NOW if self._onLost(lost) else WireEvent.LOST
        self._state = TRANSITIONS[self._state, event]

    def _check(self) -> None:
        if self.lost is not None:
            raise type(self.lost)(str(self.lost))
