"""The listener of a node for other nodes, which forward their clients to it while it is the owner.

A standby first sends a line of JSON, the :class:`Preface`, and the client's bytes after the answer :data:`ACCEPTED`.
The secret is in the keys of the nodes, so only nodes know it. A forwarded client is never local: an address of the
standby's machine is replaced by the standby's name.

A node of a mesh may instead name one of its own clients, a *delegate*, which it has admitted and which needs the
journal: its connection speaks FlexiMQ after the JOIN.

For TLS each start of a node makes a certificate, which the other nodes read from its key, beside its secret. So there
is none to issue or renew, and no name or clock to agree on.
"""

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from hmac import compare_digest
from types import MappingProxyType
from typing import Any, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from OpenSSL.crypto import X509, PKey
from twisted.internet.abstract import FileDescriptor
from twisted.internet.address import IPv4Address
from twisted.internet.interfaces import IAddress, IHalfCloseableProtocol, IProtocol, IProtocolFactory
from twisted.internet.protocol import Factory, connectionDone
from twisted.internet.ssl import Certificate, CertificateOptions, optionsForClientTLS, trustRootFromCertificates
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import alsoProvides

from fleximq.config.settings import DEFAULT_CIPHERS
from fleximq.dialects.connection.handover import Handover
from fleximq.endpoints.tls_context import suitesOf
from fleximq.security.anonymous_access import isLocal
from fleximq.security.peer_address import peerAddress
from fleximq.values.log_limit import LogLimit

_log = Logger()

#: The answer to a preface when the node is the owner.
ACCEPTED = b"+"
#: The longest preface in bytes, and the seconds in which it has to arrive.
PREFACE_BYTES, DEADLINE = 1 << 14, 5.0
#: The position of the listener in the preface of a delegate.
DELEGATE = -1
#: Connections without a preface; one more ends the oldest of them.
MOST_SILENT = 1000
#: Returns the protocol of a delegate, for its description and address.
BuildDelegate = Callable[[Mapping[str, Any], IAddress], IProtocol]
#: The name in all certificates.
_NAME = "fleximq-node"


class Preface(NamedTuple):
    """The secret of the owner, the position of the client's listener, and the client's node and address.

    ``delegate`` describes a client that its node has admitted; empty for others, whose JOIN follows.
    """

    secret: str
    number: int
    node: str
    host: str
    port: int
    delegate: Mapping[str, Any] = MappingProxyType({})

    def encode(self) -> bytes:
        """Return the line; without a delegate as nodes of earlier versions read it."""
        return json.dumps(self if self.delegate else self[:-1]).encode() + b"\n"

    @classmethod
    def decode(cls, line: bytes) -> "Preface":
        """Return a preface; raises ValueError for any other line."""
        try:
            found = cls(*json.loads(line))
        except (TypeError, RecursionError) as error:
            raise ValueError(str(error)) from error
        isRight = [type(each) for each in found[:-1]] == [str, int, str, str, int]
        if not isRight or not isinstance(found.delegate, Mapping):
            raise ValueError("a value of another type")
        return found

    @property
    def address(self) -> IPv4Address:
        """The client's address, which is never local."""
        address = IPv4Address("TCP", self.host, self.port)
        if self.host and not isLocal(address):
            return address
        return IPv4Address("TCP", f"node {self.node}", self.port)


class NodeListener(Factory["Arrival"]):
    """The connections of other nodes; ``served`` are the factories of this node's listeners by position."""

    noisy = False

    def __init__(self, clock: Any, secret: str, served: Mapping[int, IProtocolFactory], tls: Any = None) -> None:
        self.clock, self.secret, self.served, self.tls = clock, secret, served, tls
        #: None without a mesh.
        self.delegates: BuildDelegate | None = None
        self.isServing = False
        self.silent: dict[Arrival, None] = {}
        self.introduced: dict[Arrival, None] = {}
        self.logLimit = LogLimit()

    def buildProtocol(self, addr: Any) -> "Arrival":
        protocol = Arrival()
        protocol.factory = self
        return protocol

    def serve(self) -> None:
        """Hand the clients that wait, and all later ones, over to the broker."""
        self.isServing = True
        for arrival in list(self.introduced):
            arrival.serve()


class Arrival(Handover):
    """A connection of another node, or of a stranger."""

    factory: NodeListener
    transport: Any
    _received = b""
    _preface: Preface | None = None

    def connectionMade(self) -> None:
        if self.factory.tls is not None:
            startTls(self, self.factory.tls)
        silent = self.factory.silent
        silent[self] = None
        self._timer = self.factory.clock.callLater(DEADLINE, self._refuse, "it sent nothing")
        if len(silent) > MOST_SILENT:
            next(iter(silent))._refuse("too many connections wait")

    def dataReceived(self, data: bytes) -> None:
        """Read the preface, which nothing follows before the answer."""
        self._received += data
        line, end, rest = self._received.partition(b"\n")
        if len(self._received) > PREFACE_BYTES or rest or self._preface is not None:
            self._refuse("it sent too much")
        elif end:
            self._introduce(line)

    def _introduce(self, line: bytes) -> None:
        factory = self.factory
        try:
            preface = Preface.decode(line)
            isNode = compare_digest(preface.secret.encode(), factory.secret.encode())
        except ValueError:
            self._refuse("it sent something else")
            return
        if not isNode:
            self._refuse("its secret is wrong")
        elif preface.number == DELEGATE and factory.delegates is None:
            self._refuse("it is a delegate, but this node is in no mesh")
        elif preface.number != DELEGATE and preface.number not in factory.served:
            self._refuse(f"there is no listener {preface.number}")
        else:
            self._forget()
            self._preface = preface
            factory.introduced[self] = None
            if factory.isServing:
                self.serve()

    def serve(self) -> None:
        """Hand the client over to the factory of its listener."""
        factory, preface = self.factory, self._preface
        assert preface is not None
        address = preface.address
        self._forget()
        self.transport.getPeer = lambda: address
        self.transport.write(ACCEPTED)
        if preface.number == DELEGATE and factory.delegates is not None:
            self.handOver(factory.delegates(preface.delegate, address), b"")
        else:
            self.handOver(factory.served[preface.number].buildProtocol(address), b"")

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self._forget()

    def _forget(self) -> None:
        self._stopClock()
        self.factory.silent.pop(self, None)
        self.factory.introduced.pop(self, None)

    def _refuse(self, why: str) -> None:
        self._forget()
        more = self.factory.logLimit.ending(self.factory.clock.seconds())
        if more is not None:
            peer = peerAddress(self.transport.getPeer())
            _log.warn("the connection from {peer} is not that of a node: {why}{more}", peer=peer, why=why, more=more)
        self.transport.abortConnection()


def makeContext() -> tuple[CertificateOptions, str]:
    """Return the context of a node's listener, and its new certificate in PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, _NAME)])
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(datetime(2000, 1, 1, tzinfo=UTC))
        .not_valid_after(datetime(9999, 12, 31, tzinfo=UTC))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(_NAME)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    own = PKey.from_cryptography_key(key), X509.from_cryptography(certificate)
    context = CertificateOptions(*own, acceptableCiphers=suitesOf(DEFAULT_CIPHERS))
    return context, certificate.public_bytes(Encoding.PEM).decode()


def contextFor(certificate: str) -> Any:
    """Return the context of connections to the node that has this certificate."""
    return optionsForClientTLS(_NAME, trustRootFromCertificates([Certificate.loadPEM(certificate.encode())]))


def startTls(protocol: Any, context: Any) -> None:
    """Encrypt the TCP connection of a protocol; as before, each side can end its output alone."""
    transport = protocol.transport
    transport.startTLS(context)
    tls = transport.protocol

    def readConnectionLost() -> None:
        transport.loseConnection = partial(FileDescriptor.loseConnection, transport)  # the peer ends TLS no more
        protocol.readConnectionLost()

    tls.readConnectionLost = readConnectionLost
    tls.writeConnectionLost = lambda: protocol.writeConnectionLost()
    alsoProvides(tls, IHalfCloseableProtocol)
