"""Connects to the URLs of the FlexiMQ document, section 6.2, by blocking sockets, or by pipes (document 6.4)."""

import os
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager

from fleximq.client.errors import ConnectionLost, Untrusted
from fleximq.errors import SettingError
from fleximq.values.urls import Url

#: Set by the broker for the programs that it starts.
CLIENT_ID_VARIABLE = "FLEXIMQ_CLIENT_ID"
_taken = False


def takeStandardStreams() -> tuple[int, int]:
    """Return descriptors for reading and writing, owned by the caller.

    Printed text is then written to standard error, so that it cannot corrupt messages; standard input is empty.

    :raises SettingError: the program was not started by a broker, or the streams are already in use.
    """
    global _taken
    if CLIENT_ID_VARIABLE not in os.environ:
        raise SettingError(f"stdio:// is for programs that a broker has started, but {CLIENT_ID_VARIABLE} is not set")
    if _taken:
        raise SettingError("standard input and output are already in use by another connection")
    _taken = True
    reading, writing = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return reading, writing


class PipeSocket:
    """Two pipes with the methods of a non-blocking socket."""

    def __init__(self, reading: int, writing: int) -> None:
        self._reading, self._writing = reading, writing

    def setblocking(self, blocks: bool) -> None:
        """Set whether reads and writes wait."""
        os.set_blocking(self._reading, blocks)
        os.set_blocking(self._writing, blocks)

    def fileno(self) -> int:
        """Return the descriptor to read from."""
        return self._reading

    def writeFileno(self) -> int:
        """Return the descriptor to write to."""
        return self._writing

    def recv(self, size: int) -> bytes:
        """Read up to ``size`` bytes; none at the end."""
        return os.read(self._reading, size)

    def send(self, data: bytes | memoryview) -> int:
        """Write as many bytes as possible, and return their number."""
        return os.write(self._writing, data)

    def shutdown(self, how: int) -> None:
        """A no-op: pipes end when they are closed."""

    def close(self) -> None:
        """Close both pipes."""
        os.close(self._reading)
        os.close(self._writing)


#: Folder of relative ``ipc://`` paths (FlexiMQ document 6.3.1).
IPC_FOLDER = "/tmp"
#: TCP keep-alive: a probe after 60 s of silence, then every 15 s; the connection is lost after 4 unanswered ones.
_KEEP_ALIVE = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4}
#: TLS alerts of a server that does not trust the client's certificate, or requires one (RFC 8446, 6.2).
_ALERTS = ("ALERT_CERTIFICATE", "ALERT_BAD_CERTIFICATE", "ALERT_UNSUPPORTED_CERTIFICATE", "ALERT_UNKNOWN_CA",
           "ALERT_ACCESS_DENIED")  # fmt: skip
#: TLS errors for an answer in plain bytes.
_NO_TLS = ("WRONG_VERSION_NUMBER", "UNEXPECTED_EOF_WHILE_READING")


def checkTls(url: Url, tls: object) -> None:
    """Raise SettingError if there are TLS settings for a URL without TLS."""
    if tls is not None and not url.isSecure:
        raise SettingError(f"the URL is {url}, but only tls:// and wss:// use TLS")


def dial(
    url: Url, timeout: float | None, tls: ssl.SSLContext | None = None, ipcFolder: str = IPC_FOLDER
) -> "socket.socket | PipeSocket":
    """Return a connected socket with this timeout in seconds.

    :param tls: context for TLS; by default the system's authorities are trusted, and the host name is checked.
    :raises ConnectionLost: no server accepted the connection.
    :raises Untrusted: one side does not trust the other's certificate.
    :raises SettingError: TLS settings for a URL without TLS, or ``stdio://`` in a program that no broker has started.
    """
    checkTls(url, tls)
    if url.scheme == "stdio":
        return PipeSocket(*takeStandardStreams())
    host = url.host or "localhost"
    try:
        if url.scheme == "ipc":
            opened = socket.socket(socket.AF_UNIX)
            with _closedOnError(opened):
                opened.settimeout(timeout)
                opened.connect(url.socketPath(ipcFolder))
            return opened
        opened = socket.create_connection((host, url.port), timeout)
        enableKeepAlive(opened)
        if not url.isSecure:
            return opened
        with _closedOnError(opened):
            return (tls or ssl.create_default_context()).wrap_socket(opened, server_hostname=host)
    except (OSError, ValueError) as error:  # ValueError: a name is invalid, e.g. in IDNA
        raise asConnectionLost(error, f"cannot connect to {url}") from None


@contextmanager
def _closedOnError(opened: socket.socket) -> Iterator[None]:
    try:
        yield
    except BaseException:
        opened.close()
        raise


def enableKeepAlive(remote: socket.socket) -> None:
    """Disable Nagle's algorithm, and enable TCP keep-alive to detect dead connections."""
    remote.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    remote.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEP_ALIVE.items():
        if hasattr(socket, name):
            remote.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def asConnectionLost(error: BaseException, what: str) -> ConnectionLost:
    """Return the client error for an error of a socket; ``what``, the failed operation, begins the message."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return Untrusted(f"{what}: its certificate is not trusted ({error.verify_message})")
    if isinstance(error, ssl.SSLError) and any(word in (error.reason or "") for word in _ALERTS):
        said = str(error.reason).lower().replace("_", " ")
        return Untrusted(f"{what}: it does not trust this client's certificate, or requires one ({said})")
    return ConnectionLost(f"{what}: {_reason(error)}")


def _reason(error: BaseException) -> str:
    if isinstance(error, ssl.SSLEOFError) or (isinstance(error, ssl.SSLError) and error.reason in _NO_TLS):
        return "the server does not use TLS, or broke off the handshake"
    if isinstance(error, ConnectionRefusedError) and error.errno:  # asyncio has its own text
        return os.strerror(error.errno)
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
