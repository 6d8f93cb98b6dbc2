"""redis-server's publish and subscribe, in RESP; https://redis.io/docs/latest/develop/reference/protocol-spec/."""

from collections.abc import Sequence

from benchmarks.peers.line import Line
from benchmarks.peers.peer import Peer, Who
from benchmarks.peers.program import ask, find


class Redis(Peer):
    """redis-server without persistence, and without a limit on what a subscriber may be behind."""

    broker = "redis"

    @classmethod
    def missing(cls) -> str | None:
        return None if find("redis-server") else "redis-server: apt-get install redis-server"

    @classmethod
    def version(cls) -> str:
        said = ask(find("redis-server") or "redis-server", "--version")
        return f"redis-server {said.partition('v=')[2].partition(' ')[0]}"

    def command(self) -> Sequence[str]:
        options = f"--bind 127.0.0.1 --port {self.port} --appendonly no --maxclients 15000 --protected-mode no"
        command = [find("redis-server") or "redis-server", *options.split(), "--logfile", "redis.log", "--save", ""]
        return [*command, "--client-output-buffer-limit", "pubsub 0 0 0"]

    def hello(self) -> bytes:
        return b"PING\r\n"

    def welcome(self, said: bytes) -> Who:
        if said != b"+PONG\r\n":
            raise ValueError("not answered yet")
        return None

    def subscribe(self, line: Line, topics: Sequence[bytes]) -> None:
        line.send(array(b"SUBSCRIBE", *topics))
        for place, topic in enumerate(topics, 1):
            line.readUntil(b"*3\r\n$9\r\nsubscribe\r\n$%d\r\n%s\r\n:%d\r\n" % (len(topic), topic, place))
        line.who = place

    def barrier(self, line: Line) -> None:
        """Ping; to one that has subscribed the answer looks otherwise."""
        line.send(array(b"PING", b"barrier"))
        line.readUntil(array(b"pong", b"barrier") if line.who else b"$7\r\nbarrier\r\n")

    def publication(self, who: Who, topic: bytes, payload: bytes) -> bytes:
        return array(b"PUBLISH", topic, payload)

    def delivery(self, who: Who, topic: bytes, payload: bytes, place: int = 0) -> bytes:
        return array(b"message", topic, payload)

    def reply(self, subscribers: int) -> bytes:
        return b":%d\r\n" % subscribers


def array(*words: bytes) -> bytes:
    """Return a command or an answer of bulk strings."""
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)
