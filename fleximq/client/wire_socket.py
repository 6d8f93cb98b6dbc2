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
from typing import TypeVar

from fleximq.client.conversation import Conversation
from fleximq.client.dial import lostBy
from fleximq.client.errors import ConnectionLost
from fleximq.client.events import Event, Pinged
from fleximq.errors import BrokerError
from fleximq.limits import KIBIBYTE, MEBIBYTE

_READ_BYTES = _WRITE_BYTES = 256 * KIBIBYTE
#: Who has sent so many bytes looks whether the broker has said something.
_GLANCE_BYTES = 256 * KIBIBYTE
#: Who waits to send looks so often whether he is the one who should read.
_GLANCE_MILLISECONDS = 50
#: While it is full, who waits for more looks so often whether the connection is still there, in seconds.
_PAUSE = 5.0
#: Answers that nobody waits for are left out while more than this waits to be sent.
_OWED_BYTES = MEBIBYTE
_BLOCKED = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)

T = TypeVar("T")


class WireSocket:
    """Sends for any thread, and reads when a thread waits for something.

    One of the waiting threads reads and hands on what came, the others sleep until it has. Who sends much reads now and
    then, and whenever the broker takes no more: two sides with full buffers do not wait for each other.

    ``lost`` is why the connection ended, None while it has not. ``heard`` and ``ready`` are called under the ``lock``.

    :param connected: a connected socket; it is this object's from now on.
    :param heard: called with each event but PINGs, which are answered here; it must not wait.
    :param full: tells that so much waits to be taken that nobody should read who does not need to.
    """

    def __init__(
        self,
        connected: socket.socket,
        conversation: Conversation,
        heard: Callable[[Event], None],
        full: Callable[[], bool] = lambda: False,
    ) -> None:
        connected.setblocking(False)
        self._socket = connected
        self._conversation = conversation
        self._heard = heard
        self._full = full
        self._sending = threading.Lock()
        self.lock = threading.RLock()
        self._changed = threading.Condition(self.lock)
        self._reading = False
        self._owed: deque[bytes] = deque()
        self._unseen = 0
        # select() knows no descriptors over 1023. One for who reads and one for who sends: they cannot be shared.
        self._reads, self._sends = select.poll(), select.poll()
        self._reads.register(connected, select.POLLIN)
        self._sends.register(connected, select.POLLIN | select.POLLOUT)
        self.lost: ConnectionLost | None = None

    # -- for any thread ----------------------------------------------------------------------------

    def send(self, data: bytes) -> None:
        """Send whole messages; who is interrupted in it ends the connection, for half a message cannot be taken back.

        :raises ConnectionLost: the connection ended.
        """
        with self._sending:
            while self._owed:
                self._sendAll(self._owed.popleft())
            self._sendAll(data)
            self._unseen += len(data)
            if self._unseen >= _GLANCE_BYTES:
                self._unseen = 0
                self._glance()
        if self._owed:
            self._pay()

    def owe(self, data: bytes) -> None:
        """Send whole messages as soon as it is possible without waiting; called under the lock."""
        if sum(map(len, self._owed)) < _OWED_BYTES:
            self._owed.append(data)

    def waitFor(self, ready: Callable[[], T], timeout: float | None, needed: bool = True) -> T:
        """Wait until ``ready`` returns something true, and return it; it is called whenever something was heard.

        What is ready is returned even if the connection has ended.

        :param timeout: seconds after which whatever ``ready`` returned is returned; with 0, what has come already is
            read once.
        :param needed: read on although it is ``full``; otherwise that is left to the broker for a while.
        :raises ConnectionLost: the connection ended before.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        left, late, tired = timeout, False, False
        while True:
            reads = False
            try:
                with self._changed:
                    found = ready()
                    if found:
                        return found
                    self._check()
                    if late:
                        return found
                    reads = not self._reading and (needed or tired or not self._full())
                    tired = False
                    if reads:
                        self._reading = True
                    else:
                        tired = not self._changed.wait(_PAUSE if left is None else min(left, _PAUSE))
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
        """End the connection; whoever waits is told."""
        with self._changed:
            self._end("the client was closed")
            while self._reading:  # a descriptor that was closed may be somebody else's already
                self._changed.wait()
        with self._sending, self._changed:
            self._socket.close()

    # -- reading -----------------------------------------------------------------------------------

    def _waitToRead(self, timeout: float | None) -> None:
        # While somebody sends, he pays what is owed.
        pays = self._owed and not self._sending.locked()
        self._reads.modify(self._socket, select.POLLIN | select.POLLOUT if pays else select.POLLIN)
        self._reads.poll(None if timeout is None else math.ceil(max(timeout, 0) * 1000))

    def _readOnce(self) -> None:
        with self._changed:
            self._reading = False
            try:
                self._take()
            finally:
                self._changed.notify_all()
        if self._owed:
            self._pay()

    def _glance(self) -> None:
        """Take what there is, if nobody else does."""
        with self._changed:
            if not self._reading and not self._full():
                self._take()
                self._changed.notify_all()

    def _take(self) -> bool:
        """Read what there is without waiting, and hand it on; False if there is nothing, or never will be."""
        if self.lost is not None:
            return False
        try:
            data = self._receive()
        except _BLOCKED:
            return False
        except OSError as error:
            self._endWith(lostBy(error, "the connection ended"))
            return False
        if not data:
            self._end("the broker closed the connection")
            return False
        self._handOn(data)
        return True

    def _receive(self) -> bytes:
        data = self._socket.recv(_READ_BYTES)
        if not data or not isinstance(self._socket, ssl.SSLSocket):
            return data
        # TLS comes in small pieces, and nobody is told of those that were decrypted and not taken.
        pieces, size = [data], len(data)
        try:
            while data and (size < _READ_BYTES or self._socket.pending()):
                data = self._socket.recv(_READ_BYTES)
                pieces.append(data)
                size += len(data)
        except OSError:
            pass  # what is wrong shows again with the next read
        return b"".join(pieces)

    def _handOn(self, data: bytes) -> None:
        try:
            for event in self._conversation.received(data):
                if isinstance(event, Pinged):
                    self.owe(self._conversation.pong(event.timestamp))
                else:
                    self._heard(event)
        except BrokerError as error:
            self._end(f"what came is not FlexiMQ: {error}")
        except BaseException:
            self._end("reading was interrupted")
            raise

    # -- sending -----------------------------------------------------------------------------------

    def _sendAll(self, data: bytes) -> None:
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
        try:
            return self._socket.send(data[:_WRITE_BYTES])
        except _BLOCKED:
            return 0
        except OSError as error:
            while self._take():  # what the broker said before it closed tells why
                continue
            self._endWith(lostBy(error, "the connection ended"))
            return 0

    def _waitToSend(self) -> None:
        """Wait until more can be sent; what comes meanwhile is read, for the broker may be waiting as well."""
        with self._changed:
            self._sends.modify(self._socket, select.POLLOUT if self._reading else select.POLLIN | select.POLLOUT)
        for _, found in self._sends.poll(_GLANCE_MILLISECONDS):
            if found & ~select.POLLOUT:
                with self._changed:
                    if not self._reading:
                        self._take()
                        self._changed.notify_all()

    def _pay(self) -> None:
        """Send what is owed as far as it goes, unless somebody is sending: he will do it."""
        if not self._sending.acquire(blocking=False):
            return
        try:
            with self._changed:
                while self._owed and self.lost is None:
                    first = self._owed[0]
                    sent = self._sendSome(first)
                    if sent < len(first):
                        self._owed[0] = first[sent:]
                        return
                    self._owed.popleft()
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
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # it is down already

    def _check(self) -> None:
        if self.lost is not None:
            raise type(self.lost)(str(self.lost))
