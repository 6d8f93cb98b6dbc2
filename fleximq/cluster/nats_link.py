"""The few words of core NATS that nodes need to exchange volatile messages, spoken on the reactor's thread.

A node has this connection in addition to that of nats-py: if a server ends it because the node reads too slowly, the
node's journal and its ownership are not affected. Messages are delivered at most once.

nats-py cannot serve the mesh too: it runs on the event loop of another thread, and each packet would change threads
twice at both nodes. This client cannot serve the journal: streams, keys and consumers are most of what nats-py has. TLS
is that of the ``ssl`` module, since both clients verify servers by the same context, see ``connectOptions``.
"""

import json
import ssl
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from twisted.internet.interfaces import IDelayedCall
from twisted.internet.protocol import ClientFactory, Protocol, connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from fleximq import __version__
from fleximq.cluster.interfaces import IMeshLink

_log = Logger()

#: Part of all subjects: nodes of another version do not receive packets that they cannot read.
VERSION = "v2"
PORT = 4222
#: Seconds for a connection, until the next attempt, and between two PINGs.
CONNECT, RETRY, PING = 5.0, 1.0, 5.0
#: A longer line is not of this protocol.
MAX_LINE = 1 << 20
#: Messages are dropped while more bytes wait for the server.
MAX_WAITING = 64 << 20
READ_BYTES = 1 << 18


class NatsProtocol(Protocol):
    """One connection.

    :param link: gets the messages, and learns of the beginning and the end.
    :param host: the name that the server's certificate must have.
    :param options: credentials and TLS context, named as the arguments of ``nats.connect``.
    """

    transport: Any

    def __init__(self, link: "NatsLink", host: str, options: Mapping[str, Any], subjects: Sequence[str]) -> None:
        self.maxPayload = 0
        self._link = link
        self._host = host
        self._options = options
        self._hello: bytes = b""
        self._tls: ssl.SSLObject | None = None
        self._encrypted, self._toServer = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._subjects = subjects
        self._parts: list[bytes] = []
        self._size = self._needed = 0
        self._waiting: int | None = None
        self._isAnswered = True
        self._timer: IDelayedCall | None = None

    def connectionMade(self) -> None:
        self.transport.setTcpNoDelay(True)
        self.transport.bufferSize = READ_BYTES
        self.transport.registerProducer(self, True)
        self._ping()

    def dataReceived(self, data: bytes) -> None:
        """Read all complete messages; an incomplete one waits, and is joined once."""
        self._isAnswered = True
        if self._tls is not None:
            data = self._decrypted(self._tls, data)
        self._parts.append(data)
        self._size += len(data)
        if self._size < self._needed:
            return
        data = data if len(self._parts) == 1 else b"".join(self._parts)
        start = 0
        while True:
            end = data.find(b"\r\n", start)
            if end < 0:
                self._needed = 0
                if len(data) - start > MAX_LINE:
                    self.transport.abortConnection()
                break
            word, _, rest = data[start:end].partition(b" ")
            if word == b"MSG":
                begin = end + 2
                end = begin + int(rest.rpartition(b" ")[2])
                if len(data) < end + 2:
                    self._needed = end + 2 - start
                    break
                self._link.received(data[begin:end])
            else:
                self._line(word, rest)
            start = end + 2
        self._parts = [data[start:]] if start < len(data) else []
        self._size = len(data) - start

    def _line(self, word: bytes, rest: bytes) -> None:
        if word == b"INFO":
            self._informed(json.loads(rest))
        elif word == b"PING":
            self._write(b"PONG\r\n")
        elif word == b"PONG" and self._link.protocol is not self:
            self._link.opened(self)
        elif word == b"-ERR":
            _log.warn("the server of the mesh says {error}", error=rest.decode(errors="replace"))

    def _informed(self, info: Mapping[str, Any]) -> None:
        """Connect with the first INFO; later ones only name other servers."""
        if self.maxPayload:
            return
        self.maxPayload = info["max_payload"]
        options = self._options
        words: dict[str, Any] = {"verbose": False, "pedantic": False, "echo": False, "lang": "python"}
        words |= {"version": __version__, "name": "fleximq mesh", "protocol": 1}
        for ours, theirs in (("user", "user"), ("password", "pass"), ("token", "auth_token")):
            if ours in options:
                words[theirs] = options[ours]
        if "user_jwt_cb" in options:
            words["jwt"] = options["user_jwt_cb"]().decode()
            words["sig"] = options["signature_cb"](info.get("nonce", "")).decode()
        subscriptions = [f"SUB {subject} {number}" for number, subject in enumerate(self._subjects, 1)]
        lines = [f"CONNECT {json.dumps(words)}", *subscriptions, "PING", ""]
        self._hello = "\r\n".join(lines).encode()
        context = options.get("tls")
        if info.get("tls_required"):
            context = context or ssl.create_default_context()
            self._tls = context.wrap_bio(self._encrypted, self._toServer, server_hostname=self._host)
            self._decrypted(self._tls, b"")
        elif context is None:
            self._greet()
        else:
            self._fail("it does not use TLS")

    def _greet(self) -> None:
        hello, self._hello = self._hello, b""
        self._write(hello)

    def _fail(self, reason: str) -> None:
        _log.warn("the mesh cannot use the server at {host}: {reason}", host=self._host, reason=reason)
        self.transport.abortConnection()

    def _decrypted(self, tls: ssl.SSLObject, data: bytes) -> bytes:
        """Return the decrypted bytes of the server; begin with the handshake."""
        self._encrypted.write(data)
        found: list[bytes] = []
        try:
            if self._hello:
                tls.do_handshake()
                self._greet()
            while part := tls.read(READ_BYTES):
                found.append(part)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            self._fail(str(error))
        self.transport.write(self._toServer.read())
        return b"".join(found)

    def _write(self, *parts: bytes) -> None:
        if self._tls is None:
            self.transport.writeSequence(parts)
        else:
            self._tls.write(b"".join(parts))
            self.transport.write(self._toServer.read())

    def publish(self, subject: str, data: bytes) -> None:
        """Send a message, unless too many bytes wait."""
        if self._waiting is not None:
            self._waiting += len(data)
            if self._waiting > MAX_WAITING:
                return
        self._write(b"PUB %b %d\r\n" % (subject.encode(), len(data)), data, b"\r\n")
        if self._waiting is None and not self.transport.disconnecting:
            self.transport.doWrite()  # now, not after the next wait of the reactor; it repeats what fails

    def pauseProducing(self) -> None:
        """See :class:`IPushProducer`: count the bytes that wait."""
        self._waiting = 0

    def resumeProducing(self) -> None:
        self._waiting = None

    def stopProducing(self) -> None:
        """See :class:`IPushProducer`."""

    def _ping(self) -> None:
        if not self._isAnswered:
            self.transport.abortConnection()
            return
        self._isAnswered = False
        self._timer = self._link.reactor.callLater(PING, self._ping)
        if self.maxPayload and not self._hello:
            self._write(b"PING\r\n")

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._link.lost()


@implementer(IMeshLink)
class NatsLink(ClientFactory):
    """A connection to one of several servers; connects again, to the next one, for as long as it takes.

    :param urls: the servers; one without a port has 4222.
    :param name: the name of the cluster, ``node`` that of this node.
    :param options: see :class:`NatsProtocol`.
    """

    noisy = False
    maxPayload = 1 << 20

    def __init__(self, reactor: Any, urls: Sequence[str], name: str, node: str, options: Mapping[str, Any]) -> None:
        self.reactor = reactor
        self.protocol: Any = None
        self._places = [urlsplit(url) for url in urls]
        self._name = name
        self._node = node
        self._options = options
        self._again: IDelayedCall | None = None
        self._connector: Any = None
        self._isStopped = False

    def start(self, received: Callable[[bytes], None], connected: Callable[[], None]) -> None:
        """See :class:`IMeshLink`; so with all below."""
        self.received = received
        self._connected = connected
        self._connect()

    def send(self, node: str, data: bytes) -> None:
        if self.protocol is not None:
            self.protocol.publish(self._subject(node), data)

    def stop(self) -> None:
        self._isStopped = True
        if self._again is not None and self._again.active():
            self._again.cancel()
        if self._connector is not None:
            self._connector.disconnect()

    def _subject(self, node: str) -> str:
        return f"{self._name}.mesh.{VERSION}.{f'node.{node}' if node else 'all'}"

    def _connect(self) -> None:
        place = self._places[0]
        self._places = [*self._places[1:], place]
        self._connector = self.reactor.connectTCP(place.hostname, place.port or PORT, self, CONNECT)

    def buildProtocol(self, addr: Any) -> NatsProtocol:
        host = self._places[-1].hostname or ""  # that of the last attempt
        return NatsProtocol(self, host, self._options, [self._subject(""), self._subject(self._node)])

    def opened(self, protocol: NatsProtocol) -> None:
        """Learn that the server has accepted the subscriptions."""
        _log.info("the mesh is connected to {peer}", peer=protocol.transport.getPeer().host)
        self.protocol, self.maxPayload = protocol, protocol.maxPayload
        self._connected()

    def lost(self) -> None:
        self.protocol = None
        if not self._isStopped:
            self._again = self.reactor.callLater(RETRY, self._connect)

    def clientConnectionFailed(self, connector: Any, reason: Failure) -> None:
        self.lost()
