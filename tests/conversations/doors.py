"""A whole broker in memory that asks for credentials, and a caller at each of its doors.

Every caller says what it is told to and returns what it hears, in words that are short enough for a table:
``REP 403``, ``NACK 401 not permitted``, ``ERROR:403:not permitted``, ``MSG``, ``HTTP 401``.
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import msgpack
from cryptography.x509 import load_pem_x509_certificate
from twisted.internet.address import IPv4Address
from twisted.internet.testing import MemoryReactorClock

from fleximq.cli.credential_files import setSecret
from fleximq.config.settings import Settings
from fleximq.services.compose import compose
from fleximq.services.reload import Reload
from tests.certificates import makeCertificate
from tests.conversations.clients import counted
from tests.dialects.conversations import Peer
from tests.dialects.websocket_peer import BINARY, WebSocketPeer, decode, masked, text
from tests.wire.flexi_frames import cut, frame

#: What a caller can show.
NONE, WRONG, RIGHT = "none", "wrong", "right"
#: The name behind the right credentials, and another one's.
ALICE, BOB = "alice", "bob"

Tables = Mapping[str, Mapping[str, Any]]


class Doors:
    """A broker with ``--auth`` for keys, tokens and certificates, and permissions that can be changed.

    :param folder: for the files of secrets; it must exist.
    :param principals: the tables of permissions.
    :param settings: further settings, by the names of their options.
    """

    def __init__(self, folder: Path, principals: Tables, **settings: Any) -> None:
        self.reactor: Any = MemoryReactorClock()
        self.folder = folder
        self.keys = {name: f"{name}-has-a-key-that-is-long-enough" for name in (ALICE, BOB)}
        for scheme in ("apikeys", "tokens"):
            for name, secret in self.keys.items():
                setSecret(str(folder / scheme), name, secret)
        self._settings = {
            "listen": ["tcp:1"],
            "auth": [f"apikeys:{folder / 'apikeys'}", f"tokens:{folder / 'tokens'}", "certificate:"],
            **settings,
        }
        self._principals = principals
        self._callers = 0
        self._reload = Reload(self._read(), self._read)
        self._whole = compose(self.reactor, self._reload.settings, reload=self._reload, environment={})
        self._whole.privilegedStartService()
        self._whole.startService()
        self.factory = self.reactor.tcpServers[0][1]

    def _read(self) -> Settings:
        return Settings.of({**self._settings, "principals": self._principals})

    def change(self, principals: Tables) -> None:
        """Let other permissions hold, as a reload does."""
        self._principals = principals
        self._reload.reload()
        self.settle()

    def settle(self) -> None:
        """Let everything happen that is due, the answers to wrong credentials included."""
        self.reactor.pump([0, 0, 0.2, 0, 0])

    def stop(self) -> None:
        """Stop the broker."""
        self._whole.stopService()

    def address(self) -> IPv4Address:
        """Return an address that nobody had, so that nobody is slowed for somebody else's attempts."""
        self._callers += 1
        return IPv4Address("TCP", f"192.0.{self._callers >> 8}.{self._callers & 255}", 50000)

    def certificate(self, name: str) -> Any:
        """Return a certificate for a name."""
        path = self.folder / f"{name}.crt"
        if not path.exists():
            makeCertificate(self.folder, name)
        return load_pem_x509_certificate(path.read_bytes())


class Caller:
    """Somebody at a door.

    :param shows: what it shows: :data:`NONE`, :data:`WRONG`, or :data:`RIGHT`.
    :param name: whose credentials are the right ones.
    """

    #: What is heard on the way in, for each thing that may be shown.
    wayIn: ClassVar[Mapping[str, Sequence[str]]]
    #: Whether who is refused may try again.
    mayTryAgain: ClassVar[bool] = False

    def __init__(self, doors: Doors, shows: str, name: str = ALICE) -> None:
        self.doors = doors
        self.shows = shows
        self.name = name
        self.secret = {NONE: "", WRONG: "no such key", RIGHT: doors.keys[name]}[shows]
        self.raw = b""

    def comeIn(self) -> list[str]:
        """Do the handshake, and return what is heard."""
        raise NotImplementedError

    def heard(self) -> list[str]:
        """Return what was heard since the last time; all bytes of it are in ``raw``."""
        raise NotImplementedError

    def say(self, data: bytes) -> list[str]:
        """Say something if the connection is still open, and return what is heard."""
        if not self.peer.closed:
            self.peer.say(data)
        self.doors.settle()
        return self.heard()

    def connected(self, kind: type[Peer] = Peer) -> Any:
        """Return a new connection."""
        return kind(self.doors.factory, self.doors.address())

    def listen(self, peer: Peer) -> bytes:
        """Return what came over a connection."""
        came = peer.heard()
        self.raw += came
        return came

    peer: Any = None


class FlexiCaller(Caller):
    """FlexiMQ over TCP, with a key in its JOIN."""

    wayIn: ClassVar[Mapping[str, Sequence[str]]] = {NONE: ["REP 401"], WRONG: ["REP 401"], RIGHT: ["REP 200"]}
    id = 0

    def comeIn(self) -> list[str]:
        """JOIN."""
        self.peer = self.connected()
        return self.join(None if self.shows == NONE else {"auth": {"type": "api_key", "api_key": self.secret}})

    def join(self, header: Any) -> list[str]:
        """JOIN with this header."""
        return self.send("JOIN", header)

    def send(self, kind: str, header: Any = None, *value: Any) -> list[str]:
        """Send a message."""
        return self.say(self.framed(frame(kind, self.id, header, *map(msgpack.packb, value))))

    def request(self, path: str, *arguments: Any, target: int | None = None) -> list[str]:
        """Ask the broker, or a client."""
        entry = {"client_id": target or 1, "path": path}
        return self.send("REQ", {"routing": [entry], "reqrep": {"type": "request", "id": "q"}}, *arguments)

    def heard(self) -> list[str]:
        """Return kinds, and statuses where there are any."""
        found = []
        for each in cut(self.unframed(self.listen(self.peer))):
            if each.kind == "REP" and not self.id:
                self.id = each.sender
            found.append(each.kind if each.status is None else f"{each.kind} {each.status}")
        return found

    def framed(self, data: bytes) -> bytes:
        """Return bytes as they travel."""
        return data

    def unframed(self, data: bytes) -> bytes:
        """Return them as they were sent."""
        return data


class FlexiWebCaller(FlexiCaller):
    """FlexiMQ over WebSocket, with a key in its JOIN."""

    shownInRequest = False
    _rest = b""

    def comeIn(self) -> list[str]:
        """Upgrade and JOIN."""
        self.peer = self.connected(WebSocketPeer)
        path = f"/ws?api_key={self.secret.replace(' ', '+')}" if self.shownInRequest and self.secret else "/ws"
        self.peer.upgrade(path=path)
        self.doors.settle()
        if not self.peer.head.startswith(b"HTTP/1.1 101 "):
            head = self.peer.head or self.peer.heard()
            self.raw += head
            return [f"HTTP {head[9:12].decode()}"]
        if self.shownInRequest:
            return self.join(None)
        return self.join(None if self.shows == NONE else {"auth": {"type": "token", "token": self.secret}})

    def framed(self, data: bytes) -> bytes:
        """Put it into a binary message."""
        return masked(BINARY, data)

    def unframed(self, data: bytes) -> bytes:
        """Take it out of binary messages; close frames say nothing more."""
        frames, self._rest = decode(self._rest + data)
        return b"".join(each.payload for each in frames if each.opcode == BINARY)


class FlexiUpgradeCaller(FlexiWebCaller):
    """FlexiMQ over WebSocket, with a key in the address, and none in its JOIN."""

    shownInRequest = True
    wayIn: ClassVar[Mapping[str, Sequence[str]]] = {NONE: ["REP 401"], WRONG: ["HTTP 401"], RIGHT: ["REP 200"]}


class BlipCaller(Caller):
    """BlipMQ, with a key; an empty one is none."""

    HELLO, AUTH, PUBLISH, SUBSCRIBE, ACK, NACK, PING, PONG, POLL = range(1, 10)
    wayIn: ClassVar[Mapping[str, Sequence[str]]] = {
        NONE: ["ACK", "NACK 401 invalid API key"],
        WRONG: ["ACK", "NACK 401 invalid API key"],
        RIGHT: ["ACK", "ACK"],
    }
    mayTryAgain = True
    subscription = tag = 0

    def comeIn(self) -> list[str]:
        """HELLO and AUTH."""
        self.peer = self.connected()
        return self.send(self.HELLO, b"\0\1") + self.send(self.AUTH, counted(self.secret))

    def send(self, kind: int, payload: bytes = b"", correlation: int = 7) -> list[str]:
        """Send a frame."""
        return self.say(struct.pack(">IBQ", 9 + len(payload), kind, correlation) + payload)

    def heard(self) -> list[str]:
        """Return kinds of frames, with code and words of NACKs; ids and tags are noted."""
        data, found = self.listen(self.peer), []
        while data:
            length, kind, correlation = struct.unpack_from(">IBQ", data)
            payload, data = data[13 : 4 + length], data[4 + length :]
            if kind == self.ACK:
                self.subscription = int.from_bytes(payload, "big")
                found.append("ACK")
            elif kind == self.NACK:
                code, size = struct.unpack_from(">HH", payload)
                found.append(f"NACK {code} {payload[4 : 4 + size].decode()}")
            elif kind == self.PUBLISH:
                self.tag = correlation
                found.append("PUBLISH")
            else:
                found.append("PONG")
        return found

    def publish(self, topic: str, message: bytes = b"x", qos: int = 1) -> list[str]:
        """Publish."""
        return self.send(self.PUBLISH, bytes([qos]) + counted(topic) + message)

    def subscribe(self, topic: str) -> list[str]:
        """Subscribe."""
        return self.send(self.SUBSCRIBE, counted(topic) + b"\1")

    def poll(self, subscription: int | None = None) -> list[str]:
        """Poll the latest subscription, or another."""
        return self.send(self.POLL, struct.pack(">Q", self.subscription if subscription is None else subscription))

    def ack(self) -> list[str]:
        """Acknowledge the latest delivery."""
        return self.send(self.ACK, struct.pack(">Q", self.subscription), self.tag)


class MiniCaller(Caller):
    """MiniMQ over TLS, with a certificate; a wrong one names somebody whom nobody can be."""

    wayIn: ClassVar[Mapping[str, Sequence[str]]] = {
        NONE: ["ERROR:401:credentials are required here"],
        WRONG: ["ERROR:401:these credentials are not valid here"],
        RIGHT: ["PONG:"],
    }

    def comeIn(self) -> list[str]:
        """PING."""
        self.peer = self.connected()
        name = {NONE: "", WRONG: "anonymous", RIGHT: self.name}[self.shows]
        if name:
            certificate = self.doors.certificate(name)
            self.peer.transport.getPeerCertificate = lambda: _Shown(certificate)
        return self.line("PING:")

    def line(self, *lines: str) -> list[str]:
        """Send lines."""
        return self.say("".join(f"{each}\n" for each in lines).encode())

    def heard(self) -> list[str]:
        """Return lines."""
        return self.listen(self.peer).decode().splitlines()


class _Shown:
    """A certificate as a transport shows it."""

    def __init__(self, certificate: Any) -> None:
        self._certificate = certificate

    def to_cryptography(self) -> Any:
        """Return it as the broker reads it."""
        return self._certificate


class IdentityCaller(Caller):
    """Identity, with a token in the address, as a page in a browser shows it."""

    wayIn: ClassVar[Mapping[str, Sequence[str]]] = {NONE: ["HTTP 401"], WRONG: ["HTTP 401"], RIGHT: []}
    _rest = b""

    def comeIn(self) -> list[str]:
        """Upgrade, and leave the greeting out."""
        self.peer = self.connected(WebSocketPeer)
        self.upgrade()
        self.doors.settle()
        head = self.peer.head or self.peer.heard()
        self.raw += head
        if not head.startswith(b"HTTP/1.1 101 "):
            return [f"HTTP {head[9:12].decode()}"]
        self.raw += self.peer._received
        self.greeting = [each.payload.decode() for each in decode(self.peer._received)[0]]
        return self.greeting[2:]

    def upgrade(self) -> None:
        """Ask for a WebSocket."""
        self.peer.upgrade(path=f"/?token={self.secret.replace(' ', '%20')}" if self.secret else "/")

    def text(self, *texts: str) -> list[str]:
        """Send texts."""
        return self.say(b"".join(map(text, texts)))

    def heard(self) -> list[str]:
        """Return texts."""
        frames, self._rest = decode(self._rest + self.listen(self.peer))
        return [each.payload.decode() for each in frames if each.opcode == 1]


class IdentityHeaderCaller(IdentityCaller):
    """Identity, with a token in its request's header, as a program shows it."""

    def upgrade(self) -> None:
        """Ask for a WebSocket."""
        self.peer.upgrade(**{"Authorization": f"Bearer {self.secret}"} if self.secret else {})


class HttpCaller(Caller):
    """HTTP, with a token in the header of every request."""

    wayIn: ClassVar[Mapping[str, Sequence[str]]] = {NONE: ["HTTP 200"], WRONG: ["HTTP 401"], RIGHT: ["HTTP 200"]}
    mayTryAgain = True

    def comeIn(self) -> list[str]:
        """Ask for the page that everybody may see, unless with wrong credentials."""
        return self.get("/")

    def get(self, path: str) -> list[str]:
        """GET."""
        return self._ask(f"GET {path} HTTP/1.1\r\n", "")

    def post(self, path: str, body: str = "{}") -> list[str]:
        """POST, as a program does."""
        return self._ask(f"POST {path} HTTP/1.1\r\nContent-Type: application/json\r\n", body)

    def _ask(self, head: str, body: str) -> list[str]:
        self.peer = self.connected()
        shown = f"Authorization: Bearer {self.secret}\r\n" if self.secret else ""
        return self.say(f"{head}Host: 127.0.0.1\r\n{shown}Content-Length: {len(body)}\r\n\r\n{body}".encode())

    def heard(self) -> list[str]:
        """Return the status."""
        answer = self.listen(self.peer)
        return [f"HTTP {answer[9:12].decode()}"] if answer else []


class PlainCaller(HttpCaller):
    """Plain HTTP, with a token in the header of every request, on one connection while that is open."""

    wayIn: ClassVar[Mapping[str, Sequence[str]]] = {NONE: ["HTTP 204"], WRONG: ["HTTP 401"], RIGHT: ["HTTP 204"]}

    def comeIn(self) -> list[str]:
        """Ask what everybody may ask, unless with wrong credentials."""
        return self._ask("OPTIONS /topics/m.a HTTP/1.1\r\n", "")

    def connected(self, kind: type[Peer] = Peer) -> Any:
        """Return the connection, or a new one."""
        return super().connected() if self.peer is None or self.peer.closed else self.peer


#: Who can come, by the door's name in the tables.
CALLERS: Mapping[str, Callable[..., Caller]] = {
    "fleximq": FlexiCaller,
    "fleximqWs": FlexiWebCaller,
    "fleximqUpgrade": FlexiUpgradeCaller,
    "blipmq": BlipCaller,
    "minimq": MiniCaller,
    "identity": IdentityCaller,
    "identityHeader": IdentityHeaderCaller,
    "http": HttpCaller,
    "plainHttp": PlainCaller,
}
