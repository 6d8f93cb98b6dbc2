"""Plain blocking sockets to the URLs of the FlexiMQ document, section 6.2.

Standard input and output as a connection, in a program that the broker has started (FlexiMQ document 6.4).
"""

import os
import socket
import ssl

from fleximq.client.errors import ConnectionLost, Untrusted
from fleximq.client.settings import ClientSettings
from fleximq.errors import SettingError
from fleximq.values.urls import Url

#: What the broker gives to the programs that it starts.
CLIENT_ID_VARIABLE = "FLEXIMQ_CLIENT_ID"
_taken = False


def takeStandardStreams() -> tuple[int, int]:
    """Return descriptors to read from and to write to, which belong to the caller.

    From then on the program's own standard input is empty, and what it prints goes to standard error, so that it cannot
    get between the messages.

    :raises SettingError: no broker has started this program, or somebody else has them already.
    """
    global _taken
    if CLIENT_ID_VARIABLE not in os.environ:
        raise SettingError(f"stdio:// is for programs that a broker has started, but {CLIENT_ID_VARIABLE} is not set")
    if _taken:
        raise SettingError("standard input and output are in use already: there is one connection over them")
    _taken = True
    reading, writing = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return reading, writing


class PipeSocket:
    """Two pipes, in the place of one socket that does not block."""

    def __init__(self, reading: int, writing: int) -> None:
        self._reading, self._writing = reading, writing

    def setblocking(self, blocks: bool) -> None:
        """Let reading and writing wait, or not."""
        os.set_blocking(self._reading, blocks)
        os.set_blocking(self._writing, blocks)

    def fileno(self) -> int:
        """Return the descriptor to read from."""
        return self._reading

    def writeFileno(self) -> int:
        """Return the descriptor to write to."""
        return self._writing

    def recv(self, size: int) -> bytes:
        """Read so many bytes, or fewer; none at the end."""
        return os.read(self._reading, size)

    def send(self, data: bytes | memoryview) -> int:
        """Write as much as goes, and return how much that was."""
        return os.write(self._writing, data)

    def shutdown(self, how: int) -> None:
        """Do nothing: pipes end when they are closed."""

    def close(self) -> None:
        """Close both."""
        os.close(self._reading)
        os.close(self._writing)


#: Where relative ``ipc://`` paths begin (FlexiMQ document 6.3.1).
IPC_FOLDER = "/tmp"
#: A network that died without a word is noticed by the system, after so many seconds of silence ..
_IDLE_SECONDS = 60
#: .. and so many questions, at such a distance in seconds, that nobody answers.
_PROBES, _PROBE_INTERVAL = 4, 15
#: Who does not trust a client's certificate, or gets none, ends the connection with one of these (RFC 8446, 6.2).
_ALERTS = ("ALERT_CERTIFICATE", "ALERT_BAD_CERTIFICATE", "ALERT_UNSUPPORTED_CERTIFICATE", "ALERT_UNKNOWN_CA",
           "ALERT_ACCESS_DENIED")  # fmt: skip
#: What is answered in plain bytes is this to TLS.
_NO_TLS = ("WRONG_VERSION_NUMBER", "UNEXPECTED_EOF_WHILE_READING")


def checkTls(url: Url, settings: ClientSettings) -> None:
    """See that TLS is asked for only where it is spoken, and its files can be used.

    :raises SettingError: otherwise.
    """
    if settings.tls is not None and not url.isSecure:
        raise SettingError(f"the URL is {url}, but only tls:// and wss:// are spoken inside TLS")


def dial(
    url: Url, timeout: float | None, tls: ssl.SSLContext | None = None, ipcFolder: str = IPC_FOLDER
) -> "socket.socket | PipeSocket":
    """Return a connected socket, whose calls wait no longer than ``timeout`` seconds.

    :param tls: how to speak TLS with ``tls://``; by default the system's authorities are trusted, and the certificate
        must be for the host of the URL.
    :raises ConnectionLost: nobody listens there.
    :raises Untrusted: one side does not trust the other's certificate.
    :raises SettingError: TLS is asked for where it is not spoken, or no broker has started this program.
    """
    if tls is not None and not url.isSecure:
        raise SettingError(f"the URL is {url}, but only tls:// and wss:// are spoken inside TLS")
    if url.scheme == "stdio":
        return PipeSocket(*takeStandardStreams())
    try:
        if url.scheme == "ipc":
            return _local(url.socketPath(ipcFolder), timeout)
        host = url.host or "localhost"
        plain = _remote(host, url.port, timeout)
        return plain if not url.isSecure else _secured(plain, host, tls)
    except (OSError, ValueError) as error:  # a name that cannot be one is a ValueError, e.g. in IDNA
        raise asConnectionLost(error, f"cannot connect to {url}") from error


def _local(path: str, timeout: float | None) -> socket.socket:
    local = socket.socket(socket.AF_UNIX)
    try:
        local.settimeout(timeout)
        local.connect(path)
    except BaseException:
        local.close()
        raise
    return local


def _remote(host: str, port: int, timeout: float | None) -> socket.socket:
    remote = socket.create_connection((host, port), timeout)
    enableKeepAlive(remote)
    return remote


def enableKeepAlive(remote: socket.socket) -> None:
    """Let a socket send at once, and find out about networks that died without a word."""
    remote.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    remote.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", _IDLE_SECONDS), ("TCP_KEEPINTVL", _PROBE_INTERVAL), ("TCP_KEEPCNT", _PROBES)):
        option = getattr(socket, name, None)
        if option is not None:
            remote.setsockopt(socket.IPPROTO_TCP, option, value)


def _secured(plain: socket.socket, host: str, tls: ssl.SSLContext | None) -> socket.socket:
    try:
        return (tls or ssl.create_default_context()).wrap_socket(plain, server_hostname=host)
    except BaseException:
        plain.close()
        raise


def asConnectionLost(error: BaseException, what: str) -> ConnectionLost:
    """Return the error that says what a socket's failure means, and why it failed."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return Untrusted(f"{what}: its certificate is not to be trusted ({error.verify_message})")
    if isinstance(error, ssl.SSLError) and any(word in (error.reason or "") for word in _ALERTS):
        said = str(error.reason).lower().replace("_", " ")
        return Untrusted(f"{what}: it does not trust this client's certificate, or wants one ({said})")
    return ConnectionLost(f"{what}: {_reason(error)}")


def _reason(error: BaseException) -> str:
    if isinstance(error, ssl.SSLEOFError) or (isinstance(error, ssl.SSLError) and error.reason in _NO_TLS):
        return "the other side speaks no TLS there, or broke it off"
    if isinstance(error, ConnectionRefusedError) and error.errno:  # asyncio has words of its own for it
        return os.strerror(error.errno)
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
