"""Brokers inside TLS, each with a certificate that is made when it starts."""

import os
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from benchmarks.peers.fleximq import FlexiMQ
from benchmarks.peers.line import Line
from benchmarks.peers.nats import Nats
from benchmarks.peers.peer import Peer
from benchmarks.pump import Load
from tests.certificates import makeCertificate

T = TypeVar("T")
#: What a record of TLS 1.3 has besides its content: the length is at the end of its head; a type and a tag follow.
_HEAD, _TAIL = 5, 17
_CONTEXT = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
_CONTEXT.minimum_version = ssl.TLSVersion.TLSv1_3
_CONTEXT.check_hostname, _CONTEXT.verify_mode = False, ssl.CERT_NONE


class TlsSocket(socket.socket):
    """A client inside TLS, which is not to be a limit to what is measured.

    What the pump sends was encrypted before. What it receives it counts by the lengths of the records, of which some
    brokers have very many, and it is decrypted when the next conversation begins.
    """

    def __init__(self, plain: socket.socket) -> None:
        super().__init__(fileno=os.dup(plain.fileno()))
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = _CONTEXT.wrap_bio(self._incoming, self._outgoing)
        self._head, self._size, self._end = b"", 0, 0
        self._reads: list[bytes] = []
        self._counted = 0
        self._obtain(self._tls.do_handshake)
        super().sendall(self._outgoing.read())

    def encrypted(self, data: bytes) -> bytes:
        """Return what has to be sent instead."""
        view = memoryview(data)
        while view:
            view = view[self._tls.write(view) :]
        return self._outgoing.read()

    def sendall(self, data: Any, flags: int = 0) -> None:
        super().sendall(self.encrypted(data), flags)

    def recv(self, bufsize: int, flags: int = 0) -> bytes:
        while self._counted:
            self._incoming.write(b"".join(self._reads))
            self._reads.clear()
            self._counted -= len(self._obtain(lambda: self._tls.read(self._counted)))
        return self._obtain(lambda: self._tls.read(bufsize))

    def recv_into(self, buffer: Any, nbytes: int = 0, flags: int = 0) -> int:
        """Return how many bytes the complete records have; the buffer gets no content."""
        got = super().recv_into(buffer, nbytes, flags)
        self._reads.append(bytes(buffer[:got]))
        said, end, content = self._head + self._reads[-1], self._end, 0
        while end <= len(said):
            content, self._size, self._head = content + self._size, 0, said[end : end + _HEAD]
            if len(self._head) < _HEAD:
                break
            length = said[end + 3] << 8 | said[end + 4]
            self._size, self._head, end = length - _TAIL, b"", end + _HEAD + length
        self._end = 0 if self._head else end - len(said)
        if got and not content:
            raise BlockingIOError("there is no complete record yet")
        self._counted += content
        return content

    def _obtain(self, step: Callable[[], T]) -> T:
        while True:
            try:
                return step()
            except ssl.SSLWantReadError:
                super().sendall(self._outgoing.read())
                said = super().recv(1 << 16)
                if said:
                    self._incoming.write(said)
                else:
                    self._incoming.write_eof()


class TlsLine(Line):
    """A connection inside TLS."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self._plain = self.socket
        self.socket: TlsSocket = TlsSocket(self._plain)

    def __exit__(self, *exception: object) -> None:
        self._plain.close()
        super().__exit__(*exception)

    def load(self, block: bytes, times: int) -> Load:
        return Load(self._plain, self.socket.encrypted(block * times))


class Secured(Peer):
    """Adds the certificate, and connections inside TLS."""

    line: ClassVar[type[Line]] = TlsLine

    def certificate(self) -> Path:
        """Make certificate and key, and return their file."""
        return makeCertificate(self.folder).both


class SecuredFlexiMQ(Secured, FlexiMQ):
    """Our broker inside TLS."""

    def endpoint(self) -> str:
        return f"fleximqtls:cert={self.certificate()}:inner=" + super().endpoint().replace(":", r"\:")


class SecuredNats(Secured, Nats):
    """nats-server inside TLS, from the first byte on."""

    def configuration(self) -> str:
        path = self.certificate()
        return f'{super().configuration()}tls {{ cert_file: "{path}", key_file: "{path}", handshake_first: true }}\n'
