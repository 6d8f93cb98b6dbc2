"""The values of ``--listen``, ``[DIALECT+]ENDPOINT[:principal=NAME]``, and of ``--http``.

The endpoint is a URL (:mod:`fleximq.values.urls`) or a string for Twisted's ``serverFromString``. It is tried when the
value is made, without binding a port, so that a mistake is reported before the broker starts.
docs/reference/dialects.rst, "One port for all".
"""

import os
import re
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from twisted.internet.endpoints import TCP4ServerEndpoint, UNIXServerEndpoint, serverFromString
from twisted.internet.interfaces import IStreamServerEndpoint

from fleximq.config.settings import DEFAULT_CIPHERS, Settings
from fleximq.endpoints.endpoint_string import BACKLOG, FILES, PROXY, TLS, EndpointString, layersOf, withBacklog
from fleximq.endpoints.pipe_names import isWindowsPath, pipeName
from fleximq.endpoints.principal_argument import checkPrincipal, withoutPrincipal
from fleximq.endpoints.standard_streams import StandardStreamsEndpoint
from fleximq.endpoints.tls_context import TlsFiles
from fleximq.endpoints.tls_endpoint import RenewingCertificate, TlsEndpoint
from fleximq.errors import SettingError, systemReason
from fleximq.values.urls import Url, isUrl

#: The dialects without plug-ins.
DIALECTS = ("fleximq", "blipmq", "minimq", "identity", "http")
#: Dialects available over WebSocket.
ON_WEB_SOCKETS = frozenset({"fleximq", "identity"})

_HOST_AND_PORT = re.compile(r"(?:tcp:)?((?:\[[\dA-Fa-f:.]+\]|localhost|\d+(?:\.\d+){3}):\d+)")
_FORM = re.compile(r"(?:([^+:/=]*)\+)?(.*)", re.DOTALL)
#: Maximum size of a UNIX socket's path on Linux in bytes, without its final NUL.
LONGEST_PATH = 107
_STDIO, _SYSTEMD = "stdio", "systemd"


class ListenDefaults(NamedTuple):
    """Settings shared by listeners: the folder of relative ``ipc://`` paths, the PEM files for TLS, the dialects."""

    ipcDir: str = "/tmp"
    certificate: str | None = None
    key: str | None = None
    dialects: tuple[str, ...] = DIALECTS
    ciphers: str = DEFAULT_CIPHERS

    @classmethod
    def of(cls, settings: Settings, dialects: Iterable[str] = DIALECTS) -> "ListenDefaults":
        """Return the operator's settings with the installed dialects."""
        return cls(settings.ipcDir, settings.tlsCertificate, settings.tlsKey, tuple(dialects), settings.tlsCiphers)

    @property
    def tlsFiles(self) -> TlsFiles:
        """The files for ``tls://`` and ``wss://``."""
        return TlsFiles(self.certificate or "", self.key, ciphers=self.ciphers)


@dataclass(frozen=True, slots=True)
class Listen:
    """One listener. ``dialect`` is the only one it serves, None for all of them; ``principal`` are all its clients.

    :raises SettingError: for a dialect that does not exist or does not fit the endpoint, a URL that is wrong or lacks
        its certificate, an endpoint that Twisted does not accept, or a principal where there may be none.
    """

    dialect: str | None
    endpoint: str
    defaults: ListenDefaults = ListenDefaults()
    principal: str | None = None

    def __post_init__(self) -> None:
        if self.dialect is not None and self.dialect not in self.defaults.dialects:
            known = ", ".join(self.defaults.dialects)
            raise SettingError(f"listen names the dialect {self.dialect!r}, but must name one of {known}, or none")
        if not self.endpoint.strip():
            raise SettingError(f"listen is {str(self)!r}, but must name an endpoint, e.g. tcp:7890")
        # The parsers of endpoints are plug-ins that may raise any exception.
        try:
            self._check()
            self.open(None)
        except Exception as error:
            reason = str(error) if isinstance(error, SettingError) else _reason(self.kind, error)
            raise SettingError(f"listen is {str(self)!r}, but {' '.join(reason.split())}") from error

    @classmethod
    def parse(cls, text: str, defaults: ListenDefaults = ListenDefaults()) -> "Listen":  # noqa: B008  (a value)
        """Parse ``[DIALECT+]ENDPOINT``, or for TCP a port or ``HOST:PORT``; raises SettingError as the class does."""
        found = _FORM.fullmatch(text)
        dialect, endpoint = found.groups() if found else (None, text)
        if endpoint.isascii() and endpoint.isdecimal():
            endpoint = f"tcp:{endpoint}"
        elif place := _HOST_AND_PORT.fullmatch(endpoint):
            endpoint = f"tcp://{place[1]}"
        endpoint, principal = withoutPrincipal(endpoint)
        return cls(dialect, endpoint, defaults, principal)

    def _check(self) -> None:
        url = self.url
        if self.principal is not None:
            checkPrincipal(self.principal, self.dialect, self._layers[0])
        if self.socketPath == "":
            raise SettingError("must name the path of a socket, e.g. unix:/run/fleximq")
        if len(os.fsencode(self.socketPath or "")) > LONGEST_PATH:
            raise SettingError(f"the path of a socket may have {LONGEST_PATH} bytes")
        if self.onlyWebSockets and self.dialect in DIALECTS and self.dialect not in ON_WEB_SOCKETS:
            raise SettingError(f"{self.dialect} is not spoken over WebSocket")
        kinds = self._kinds
        if self.isStdio and (len(kinds) > 1 or self.dialect in ("identity", "http")):
            what = {PROXY: "a proxy", TLS: "TLS"}.get(kinds[0], "a WebSocket")
            raise SettingError(f"{what} cannot be behind stdio")
        if TLS in kinds[1:]:
            raise SettingError(f"{TLS} must come first: a proxy's line stands before TLS, inner={PROXY}\\:tcp\\:7890")
        made = self._layers[-1]
        folder = (*made.arguments, "")[0] if url is None and made.kind.lower() == "tls" else ""
        if folder and not os.path.isdir(folder):
            raise SettingError(f"{folder} is not a folder of certificates: tls://0.0.0.0:7891 uses --tls-certificate")
        if url is not None and url.scheme == "ipc" and isWindowsPath(url.path):
            raise SettingError(f"the pipe {pipeName(url.path)} can be served on Windows only")
        if url is not None and url.isSecure and self.defaults.certificate is None:
            raise SettingError(f"{url.scheme}:// needs --tls-certificate and --tls-key")

    def checkPassed(self) -> None:
        """Check, before it is opened, that a socket of systemd has the named domain; raises SettingError otherwise."""
        if self._kinds[-1] != _SYSTEMD:
            return
        passed: Any = serverFromString(None, self._layers[-1].text)
        with socket.socket(fileno=os.dup(passed.fileno)) as adopted:
            family = socket.AddressFamily(adopted.family)
        if family != passed.addressFamily:
            domain = family.name.removeprefix("AF_")
            words = f"listen is {str(self)!r}, but systemd passed a socket of another domain: write {domain}"
            raise SettingError(words)

    def __str__(self) -> str:
        named = "" if self.principal is None else f":principal={self.principal}"
        return ("" if self.dialect is None else f"{self.dialect}+") + self.endpoint + named

    def open(self, reactor: Any) -> IStreamServerEndpoint:
        """Return the endpoint, not bound yet. A reactor of None suffices to check it."""
        endpoint: IStreamServerEndpoint
        url = self.url
        if url is None and not (self.isStdio and reactor):
            endpoint = serverFromString(reactor, withBacklog(self.endpoint))
        elif url is None or url.scheme == _STDIO:
            endpoint = StandardStreamsEndpoint(reactor)
        elif url.scheme == "ipc":
            endpoint = UNIXServerEndpoint(reactor, url.socketPath(self.defaults.ipcDir), backlog=BACKLOG, wantPID=True)
        else:
            endpoint = TCP4ServerEndpoint(reactor, url.port, backlog=BACKLOG, interface=url.host)
            if url.isSecure:
                endpoint = TlsEndpoint(endpoint, RenewingCertificate(self.defaults.tlsFiles, reactor), reactor)
        return endpoint

    @property
    def url(self) -> Url | None:
        """The endpoint as a URL, None if it is none; raises SettingError if it is an invalid URL."""
        return Url.parse(self.endpoint) if isUrl(self.endpoint) else None

    @property
    def kind(self) -> str:
        """The kinds of all layers: ``tcp``, ``unix``, ``haproxy:tcp``, ``fleximqtls:tcp`` ..."""
        return ":".join(layer.kind for layer in self._layers)

    @property
    def served(self) -> str:
        """The dialects it serves, in words."""
        return self.dialect or ("WebSocket" if self.onlyWebSockets else "all dialects")

    @property
    def onlyWebSockets(self) -> bool:
        """Whether the URL restricts the listener to HTTP and WebSocket."""
        return isUrl(self.endpoint) and self.kind.lower() in ("ws", "wss")

    @property
    def isStdio(self) -> bool:
        """Whether its one client is the process's own standard input and output."""
        return self._kinds[-1] == _STDIO

    @property
    def isSocket(self) -> bool:
        """Whether it accepts connections on a TCP or UNIX socket."""
        return self.url is not None or self._kinds[-1] in ("tcp", "tcp6", "ssl", "unix", _SYSTEMD)

    @property
    def proxied(self) -> bool:
        """Whether the peers connect through a proxy, so that even a local one represents a remote peer."""
        return PROXY in self._kinds

    @property
    def socketPath(self) -> str | None:
        """The path of the UNIX socket to create, None without one."""
        if self.url is not None:
            return self.url.socketPath(self.defaults.ipcDir) if self.url.scheme == "ipc" else None
        made = self._layers[-1]
        return made.named.get("address", (*made.arguments, "")[0]) if made.kind == "unix" else None

    @property
    def _layers(self) -> list[EndpointString]:
        return list(layersOf(self.endpoint))

    @property
    def _kinds(self) -> list[str]:
        return [layer.kind.lower() for layer in self._layers]


def tlsFilesOf(text: str) -> dict[str, str]:
    """Return the paths in ``[DIALECT+]fleximqtls:...`` by the names of their arguments; none for other endpoints."""
    found = _FORM.fullmatch(text)
    layer = EndpointString.parse(found[2] if found else text)
    return {name: path for name, path in layer.named.items() if name in FILES} if layer.kind.lower() == TLS else {}


def isPassedBySystemd(text: str) -> bool:
    """Return whether systemd creates the socket of ``[DIALECT+]ENDPOINT`` and passes it to the broker."""
    found = _FORM.fullmatch(text)
    endpoint = found[2] if found else text
    return [layer.kind.lower() for layer in layersOf(endpoint)][-1] == _SYSTEMD


def _reason(kind: str, error: Exception) -> str:
    """Return the cause of an error of Twisted's endpoint parsers in words."""
    if isinstance(error, TypeError):
        return f"{kind} endpoints take other arguments"
    unknown = re.match(r"Unknown endpoint type: ('.*')", str(error), re.DOTALL)
    if unknown:
        return f"there is no kind of endpoint named {unknown[1]}: use tcp:7890, unix:PATH or tls://0.0.0.0:7891"
    if isinstance(error, IndexError | KeyError) and kind.endswith(_SYSTEMD):
        return "systemd passed no such socket; sockets need names too: systemd-socket-activate --fdname=NAME"
    number = re.match(r"invalid literal for int.*: (.*)", str(error))
    if number:
        return f"{number[1]} is not a number"
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename or kind} cannot be read: {systemReason(error)}"
    return f"it is not a server endpoint of Twisted: {str(error) or type(error).__name__}"


@dataclass(frozen=True, slots=True)
class WebListen(Listen):
    """A listener for HTTP only; raises SettingError as :class:`Listen`, and for a dialect or standard input."""

    def __post_init__(self) -> None:
        try:
            Listen.__post_init__(self)
            if self.dialect is not None:
                raise SettingError(f"listen is {str(self)!r}, but there are no dialects on it")
            if self.isStdio:
                raise SettingError(f"listen is {str(self)!r}, but HTTP is not spoken at standard input")
        except SettingError as error:
            raise SettingError(f"http {str(error).removeprefix('listen ')}") from error

    @property
    def served(self) -> str:
        return "HTTP"
