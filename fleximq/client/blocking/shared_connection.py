"""One connection shared by several threads: whole messages out, events in, whoever happens to wait.

There are two locks. ``_sending`` is held by who sends a message, from its first byte to its last; ``_changed`` guards
all else and is never held while anybody waits. Who holds the second never asks for the first.
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
from typing import TypeVar

from fleximq.client.errors import ConnectionLost
from fleximq.client.events import Delivery, Event, Pinged
from fleximq.client.protocol.conversation import Conversation
from fleximq.client.sockets import PipeSocket, asConnectionLost
from fleximq.errors import BrokerError
from fleximq.limits import KIBIBYTE, MEBIBYTE

_READ_BYTES = _WRITE_BYTES = 256 * KIBIBYTE
#: Who has sent so many bytes looks whether the broker has said something.
_READ_AFTER_BYTES = 256 * KIBIBYTE
#: Who waits to send looks so often whether he is the one who should read.
_SEND_CHECK_MILLISECONDS = 50
#: While it is isFull, who waits for more looks so often whether the connection is still there, in seconds.
_FULL_CHECK_SECONDS = 5.0
#: The longest that the system is asked to wait, in seconds: a signal that came just before, or that it gave to another
#: thread, does not end the wait, and Python hears of it behind that.
SIGNAL_SECONDS = 1.0
#: Answers that nobody waits for are left out while more than this waits to be sent.
_MAX_PENDING_BYTES = MEBIBYTE
_BLOCKED = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)

T = TypeVar("T")


class SharedConnection:
    """Sends for any thread, and reads when a thread waits for something.

    One of the waiting threads reads and hands on what came, the others sleep until it has. Who sends much reads now and
    then, and whenever the broker takes no more: two sides with isFull buffers do not wait for each other.

    ``lost`` is why the connection ended, None while it has not. ``onEvent``, ``onLost`` and ``ready`` are called under the
    ``lock``. While ``reconnects``, a lost connection is going to be replaced by :meth:`attach`, and who waits goes on.

    :param connected: a connected socket, which is this object's from now on; None if one is attached later.
    :param onEvent: called with each event but PINGs, which are answered here; it must not wait.
    :param isFull: tells that so much waits to be taken that nobody should read who does not need to.
    :param onLost: called with the reason when the connection has ended.
    :param onDeliveries: called with deliveries that came together, instead of ``onEvent`` with each.
    """

    def __init__(
        self,
        connected: socket.socket | PipeSocket | None,
        conversation: Conversation,
        onEvent: Callable[[Event], None],
        isFull: Callable[[], bool] = lambda: False,
        onLost: Callable[[ConnectionLost], None] = lambda lost: None,
        onDeliveries: Callable[[list[Delivery]], None] | None = None,
    ) -> None:
        self._socket: socket.socket | PipeSocket | None = None
        self._conversation = conversation
        self._onEvent = onEvent
        self._onLost = onLost
        self._onDeliveries = onDeliveries or self._oneByOne
        self._isFull = isFull
        self._sending = threading.Lock()
        self.lock = threading.RLock()
        self._changed = threading.Condition(self.lock)
        self._reading = False
        self._pendingOutput: deque[bytes | memoryview] = deque()
        self._sentSinceRead = 0
        self._endPending = False
        self._poll: _Polls | None = None
        self._closed = False
        self.reconnects = False
        self.lost: ConnectionLost | None = None
        if connected is None:
            self.lost = ConnectionLost("there is no connection yet")
        else:
            self._use(connected)

    def _oneByOne(self, run: list[Delivery]) -> None:
        for each in run:
            self._onEvent(each)

    def _use(self, connected: socket.socket | PipeSocket) -> None:
        connected.setblocking(False)
        self._socket = connected
        self._poll = _Polls(connected)
        self._pendingOutput.clear()
        self._pendingOutput.extend(self._takeDue())
        self._endPending = False
        self.lost = None

    def _takeDue(self) -> list[bytes]:
        due = list(self._conversation.due)
        self._conversation.due.clear()
        return due

    def attach(self, connected: socket.socket | PipeSocket, conversation: Conversation) -> None:
        """Go on with another connection after one that was lost; what was owed over that one is forgotten.

        :raises ConnectionLost: this was closed meanwhile; so is the connection.
        """
        with self._sending:
            with self._changed:
                while self._reading:
                    self._changed.wait()
                if self._closed:
                    connected.close()
                    self._check()
                if self._socket is not None:
                    self._socket.close()
                self._conversation = conversation
                self._use(connected)
                self._changed.notify_all()
        self.writePending()

    # -- for any thread ----------------------------------------------------------------------------

    def send(self, data: bytes, conversation: Conversation | None = None) -> bool:
        """Send whole messages; who is interrupted in it ends the connection, for half a message cannot be taken back.

        :param conversation: what they are part of; if that is over, nothing is sent, and False returned.
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
        """Send whole messages as soon as it is possible without waiting; called under the lock.

        :param always: however much waits to be sent already.
        """
        if always or sum(map(len, self._pendingOutput)) < _MAX_PENDING_BYTES:
            self._pendingOutput.append(self._conversation.framed(data))

    def poll(self) -> None:
        """Read what has come, if nobody else does, and send what is owed."""
        self._readIfIdle()
        self.writePending()

    def fail(self, lost: ConnectionLost) -> None:
        """End the connection for this reason."""
        with self._changed:
            self._endWith(lost)

    def waitFor(self, ready: Callable[[], T], timeout: float | None, needed: bool = True) -> T:
        """Wait until ``ready`` returns something true, and return it; it is called whenever something was onEvent.

        What is ready is returned even if the connection has ended.

        :param timeout: seconds after which whatever ``ready`` returned is returned; with 0, what has come already is
            read once.
        :param needed: read on although it is ``isFull``; otherwise that is left to the broker for a while.
        :raises ConnectionLost: the connection ended before.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        left, late, waitExpired = timeout, False, False
        while True:
            reads = False
            try:
                with self._changed:
                    found = ready()
                    if found:
                        return found
                    if not self.reconnects:
                        self._check()
                    if late:
                        return found
                    reads = self.lost is None and not self._reading and (needed or waitExpired or not self._isFull())
                    waitExpired = False
                    if reads:
                        self._reading = True
                    else:
                        waitExpired = not self._changed.wait(
                            _FULL_CHECK_SECONDS if left is None else min(left, _FULL_CHECK_SECONDS)
                        )
                if reads:
                    self._waitToRead(left)
            finally:
                if reads:
                    self._readOnce()
            if deadline is not None:
                left = deadline - time.monotonic()
                late = left <= 0

    def wake(self) -> None:
        """Let all who wait ask again whether they are ready; called under the lock."""
        self._changed.notify_all()

    def close(self) -> None:
        """End the connection for good; whoever waits is onLost."""
        with self._changed:
            self._closed = True
            self.reconnects = False
            self._end("the client was closed")
            while self._reading:  # a descriptor that was closed may be somebody else's already
                self._changed.wait()
        with self._sending, self._changed:
            if self._socket is not None:
                self._socket.close()
                self._socket = None

    def abandon(self, lost: ConnectionLost) -> None:
        """Let go of the connection in a process that was just forked, without a word to the broker."""
        self._sending = threading.Lock()
        self._closed, self.reconnects, self._reading = True, False, False
        self.lost = lost
        self._pendingOutput.clear()
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    # -- reading -----------------------------------------------------------------------------------

    def _waitToRead(self, timeout: float | None) -> None:
        # While somebody sends, he pays what is owed.
        pays = self._pendingOutput and not self._sending.locked()
        assert self._poll is not None
        self._poll.toRead(
            bool(pays), math.ceil(max(0.0, SIGNAL_SECONDS if timeout is None else min(timeout, SIGNAL_SECONDS)) * 1000)
        )

    def _readOnce(self) -> None:
        with self._changed:
            self._reading = False
            try:
                self._readAvailable()
            finally:
                self._changed.notify_all()
        if self._pendingOutput:
            self.writePending()

    def _readIfIdle(self) -> None:
        """Take what there is, if nobody else does."""
        with self._changed:
            if not self._reading and not self._isFull():
                self._readAvailable()
                self._changed.notify_all()

    def _readAvailable(self) -> bool:
        """Read what there is without waiting, and hand it on; False if there is nothing, or never will be."""
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
        if self._endPending:
            self._endPending = False
            return self._readAvailable()
        return True

    def _receive(self) -> bytes:
        assert self._socket is not None
        data = self._socket.recv(_READ_BYTES)
        if not data or not isinstance(self._socket, ssl.SSLSocket):
            return data
        # TLS comes in small chunks, and nobody is onLost of those that were decrypted and not taken.
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
        # The end has been read as well, which no poll tells: the next read shows it again, and has to come by itself.
        self._endPending = not data
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
            self._end(f"what came is not FlexiMQ: {error}")
        except BaseException:
            self._end("reading was interrupted")
            raise
        if self._conversation.due:
            self._pendingOutput.extend(self._takeDue())

    # -- sending -----------------------------------------------------------------------------------

    def _sendAll(self, data: bytes | memoryview) -> None:
        view = memoryview(data)
        try:
            while view:
                with self._changed:
                    self._check()
                    sent = self._sendSome(view)
                view = view[sent:]
                if not sent:
                    self._waitToSend()
        except BaseException:
            with self._changed:
                self._end("sending was interrupted")
            raise

    def _sendSome(self, data: bytes | memoryview) -> int:
        assert self._socket is not None
        try:
            return self._socket.send(data[:_WRITE_BYTES])
        except _BLOCKED:
            return 0
        except OSError as error:
            while self._readAvailable():  # what the broker said before it closed tells why
                continue
            self._endWith(asConnectionLost(error, "the connection ended"))
            return 0

    def _waitToSend(self) -> None:
        """Wait until more can be sent; what comes meanwhile is read, for the broker may be waiting as well."""
        with self._changed:
            reads = not self._reading
        assert self._poll is not None
        if self._poll.toSend(reads, _SEND_CHECK_MILLISECONDS):
            with self._changed:
                if not self._reading:
                    self._readAvailable()
                    self._changed.notify_all()

    def writePending(self) -> None:
        """Send what is owed as far as it goes, unless somebody is sending: he will do it."""
        if not self._sending.acquire(blocking=False):
            return
        try:
            with self._changed:
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
        try:
            if self._socket is not None:
                self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # it is down already
        self._onLost(lost)

    def _check(self) -> None:
        if self.lost is not None:
            raise type(self.lost)(str(self.lost))


class _Polls:
    """Waits for one connection; select() knows no descriptors over 1023.

    There is one object for who reads and one for who sends: they cannot be shared.
    """

    def __init__(self, connected: socket.socket | PipeSocket) -> None:
        self._in = connected.fileno()
        self._out = connected.writeFileno() if isinstance(connected, PipeSocket) else self._in
        self._reads, self._sends = select.poll(), select.poll()

    def toRead(self, orSend: bool, milliseconds: int) -> None:
        """Wait until something can be read, or else sent."""
        self._watch(self._reads, True, orSend)
        self._reads.poll(milliseconds)

    def toSend(self, orRead: bool, milliseconds: int) -> bool:
        """Wait until something can be sent; True if something can be read."""
        self._watch(self._sends, orRead, True)
        return any(found & ~select.POLLOUT for _, found in self._sends.poll(milliseconds))

    def _watch(self, poll: "select.poll", reads: bool, sends: bool) -> None:
        kinds = {self._in: 0, self._out: 0}
        if reads:
            kinds[self._in] |= select.POLLIN
        if sends:
            kinds[self._out] |= select.POLLOUT
        for descriptor, kind in kinds.items():
            if kind:
                poll.register(descriptor, kind)
            else:
                with suppress(KeyError):
                    poll.unregister(descriptor)
