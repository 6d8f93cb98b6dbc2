"""mosquitto, in MQTT 3.1.1 at QoS 0; https://docs.oasis-open.org/mqtt/mqtt/v3.1.1/."""

import struct
from collections.abc import Sequence

from benchmarks.peers.line import Line
from benchmarks.peers.peer import Peer, Who
from benchmarks.peers.program import ask, find

#: No limits that would drop messages.
_CONFIGURATION = """
listener {port} 127.0.0.1
allow_anonymous true
max_queued_messages 0
max_inflight_messages 0
set_tcp_nodelay true
persistence false
log_type error
"""


class Mosquitto(Peer):
    """mosquitto without persistence, and without a limit on what a subscriber may be behind."""

    broker = "mosquitto"

    @classmethod
    def missing(cls) -> str | None:
        return None if find("mosquitto") else "mosquitto: apt-get install mosquitto"

    @classmethod
    def version(cls) -> str:
        return ask(find("mosquitto") or "mosquitto", "-h").replace(" version", "")

    def command(self) -> Sequence[str]:
        path = self.folder / "mosquitto.conf"
        path.write_text(_CONFIGURATION.format(port=self.port))
        return [find("mosquitto") or "mosquitto", "-c", str(path)]

    def hello(self) -> bytes:
        """CONNECT with a clean session, no keep-alive, and a client id that the server chooses."""
        return _packet(0x10, _text(b"MQTT") + b"\x04\x02\x00\x00" + _text(b""))

    def welcome(self, said: bytes) -> Who:
        if said != b"\x20\x02\x00\x00":
            raise ValueError("not acknowledged yet")
        return None

    def subscribe(self, line: Line, topics: Sequence[bytes]) -> None:
        line.send(_packet(0x82, b"\x00\x01" + b"".join(_text(topic) + b"\x00" for topic in topics)))
        line.readUntil(_packet(0x90, b"\x00\x01" + bytes(len(topics))))

    def barrier(self, line: Line) -> None:
        line.send(b"\xc0\x00")
        line.readUntil(b"\xd0\x00")

    def publication(self, who: Who, topic: bytes, payload: bytes) -> bytes:
        return _packet(0x30, _text(topic) + payload)

    def delivery(self, who: Who, topic: bytes, payload: bytes, place: int = 0) -> bytes:
        return self.publication(who, topic, payload)


def _text(text: bytes) -> bytes:
    return struct.pack(">H", len(text)) + text


def _packet(first: int, rest: bytes) -> bytes:
    """Return a control packet; its length is written in groups of 7 bits, the lowest first."""
    left, lengths = len(rest), []
    while left > 0x7F:
        lengths.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([first, *lengths, left]) + rest
