"""Brokers that take publications by plain HTTP: ours, and nginx with the module nchan."""

from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path

from benchmarks.peers.fleximq import FlexiMQBroker
from benchmarks.peers.line import Line
from benchmarks.peers.peer import Peer, Who
from benchmarks.peers.program import ask, find

_CONFIGURATION = """\
load_module {module};
daemon off;
worker_processes 1;
pid nginx.pid;
error_log error.log;
events {{ worker_connections 16384; }}
http {{
  access_log off;
  keepalive_requests 1000000000;
  client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi;
  scgi_temp_path scgi;
  server {{
    listen 127.0.0.1:{port};
    location = / {{ return 200 "ok"; }}
    location ~ ^/topics/(.+)$ {{
      nchan_publisher;
      nchan_channel_id $1;
      nchan_message_buffer_length 1;
    }}
  }}
}}
"""


def request(method: str, path: bytes, body: bytes = b"") -> bytes:
    """Return a request on a connection that stays open."""
    head = b"%b %b HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n"
    return head % (method.encode(), path, len(body)) + body


class HttpPeer(Peer):
    """What such a broker is told: a POST for each message."""

    @property
    @abstractmethod
    def greeting(self) -> bytes:
        """A request that changes nothing."""

    def hello(self) -> bytes:
        return self.greeting

    def welcome(self, said: bytes) -> Who:
        if not isWhole(said):
            raise ValueError("not answered yet")
        return None

    def barrier(self, line: Line) -> None:
        line.send(self.greeting)
        self.settle(line)

    def publication(self, who: Who, topic: bytes, payload: bytes) -> bytes:
        return request("POST", b"/topics/%b" % topic, payload)

    def subscribe(self, line: Line, topics: Sequence[bytes]) -> None:
        raise NotImplementedError("publishing only")

    def delivery(self, who: Who, topic: bytes, payload: bytes, place: int = 0) -> bytes:
        raise NotImplementedError("publishing only")


def isWhole(said: bytes) -> bool:
    """Return whether this is one complete response of success, which says the length of its body."""
    head, end, body = said.partition(b"\r\n\r\n")
    if not end or not head.startswith(b"HTTP/1.1 2"):
        return False
    place = head.lower().find(b"content-length:")
    size = int(head[place + 15 :].split(b"\r\n", 1)[0]) if place >= 0 else 0
    return len(body) == size


class HttpFlexiMQ(HttpPeer, FlexiMQBroker):
    """Our broker, spoken to by plain HTTP."""

    @property
    def greeting(self) -> bytes:
        return request("OPTIONS", b"/topics/x")


class Nchan(HttpPeer):
    """nginx with nchan, one worker; it stores the last message of each channel in memory."""

    broker = "nchan"

    @classmethod
    def missing(cls) -> str | None:
        found = _module()
        return None if found else "nchan: apt-get install nginx-light libnginx-mod-nchan"

    @classmethod
    def version(cls) -> str:
        return f"nchan on {ask(find('nginx') or 'nginx', '-v').removeprefix('nginx version: ')}"

    @property
    def greeting(self) -> bytes:
        return request("GET", b"/")

    def command(self) -> Sequence[str]:
        (self.folder / "nginx.conf").write_text(_CONFIGURATION.format(module=_module(), port=self.port))
        return [find("nginx") or "nginx", "-p", f"{self.folder}/", "-c", "nginx.conf", "-e", "error.log"]


def _module() -> Path | None:
    nginx = find("nginx")
    if nginx is None:
        return None
    found = Path(nginx).parents[1] / "lib" / "nginx" / "modules" / "ngx_nchan_module.so"
    return found if found.exists() else None
