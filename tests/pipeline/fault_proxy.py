"""An HTTP proxy between clients and an object store that makes requests fail as networks and stores do.

::

    with FaultProxy(store.endpoint) as proxy:
        useStore(self, proxy.endpoint)
        proxy.fail(Fault(done=True), "PUT", "/_delta_log/")     # the next such PUT is done, and has no answer
        proxy.choose = lambda request: SLOW_DOWN if chance.random() < 0.1 else None
"""

import contextlib
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import NamedTuple
from urllib.parse import urlsplit

#: Headers that belong to one connection, and those that this proxy writes itself.
_OWN = {"connection", "keep-alive", "transfer-encoding", "expect", "content-length", "date", "server"}
#: Seconds that the store may take.
PATIENCE = 120.0


class Fault(NamedTuple):
    """What becomes of a request: after ``delay`` seconds it is handed to the store if ``done`` is set; then it is
    answered with ``status``, or, for None, the connection ends without an answer. If ``late`` is set, it is handed to
    the store by :meth:`FaultProxy.deliver`.
    """

    done: bool = False
    status: int | None = None
    delay: float = 0.0
    late: bool = False


#: The connection ends, and the store has seen nothing.
CUT = Fault()
#: The store has done what was asked; the client will never know.
SWALLOWED = Fault(done=True)
#: The client has no answer, and the store does it later.
LATE = Fault(late=True)
SERVER_ERROR = Fault(status=500)
SLOW_DOWN = Fault(status=503)


class Request(NamedTuple):
    """A request: its method, its path with the query, and the value of ``If-None-Match``, if any."""

    method: str
    path: str
    ifNoneMatch: str | None


class FaultProxy:
    """Listens on loopback and hands requests to a store; ``endpoint`` is the URL for clients.

    ``choose`` names the fault of a request, None for none. ``seen`` has each request with the status of its answer,
    0 for none. ``isDown`` is set while the proxy takes no requests at all.
    """

    def __init__(self, target: str) -> None:
        self.target = target
        self.seen: list[tuple[Request, int]] = []
        self.choose: Callable[[Request], Fault | None] = lambda request: None
        self.isDown = False
        self._planned: list[tuple[Fault, str, str]] = []
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._late: list[Callable[[HTTPConnection], tuple[int, dict[str, str], bytes]]] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handlerClass())
        self._server.daemon_threads = True

    @property
    def endpoint(self) -> str:
        """The URL for clients."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def answers(self) -> Counter[int]:
        """How many requests had each status."""
        return Counter(status for _, status in self.seen)

    def fail(self, fault: Fault, method: str, part: str, times: int = 1) -> None:
        """Let the next requests with this method, and with ``part`` in their path, have a fault."""
        with self._lock:
            self._planned += [(fault, method, part)] * times

    def deliver(self) -> list[int]:
        """Hand all late requests to the store, and return the statuses of its answers."""
        late, self._late = self._late, []
        with contextlib.closing(self._connected()) as connection:
            return [request(connection)[0] for request in late]

    def _connected(self) -> HTTPConnection:
        return HTTPConnection(urlsplit(self.target).netloc, timeout=PATIENCE)

    def cut(self) -> None:
        """End all connections that are open."""
        for stream in list(self._open):
            with contextlib.suppress(OSError):
                stream.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> "FaultProxy":
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self.cut()
        self._server.server_close()

    def _faultOf(self, request: Request) -> Fault | None:
        if self.isDown:
            return CUT
        with self._lock:
            for place, (fault, method, part) in enumerate(self._planned):
                if request.method == method and part in request.path:
                    del self._planned[place]
                    return fault
        return self.choose(request)

    def _handlerClass(proxy) -> type[BaseHTTPRequestHandler]:  # noqa: N805 the inner class has the other self
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            # An answer is two writes; the second would wait for the client's acknowledgement.
            disable_nagle_algorithm = True

            def setup(self) -> None:
                super().setup()
                proxy._open.add(self.connection)
                self._store: HTTPConnection | None = None

            def finish(self) -> None:
                proxy._open.discard(self.connection)
                if self._store is not None:
                    self._store.close()
                with contextlib.suppress(OSError):
                    super().finish()

            def handle(self) -> None:
                with contextlib.suppress(OSError):
                    super().handle()

            def log_message(self, format: str, *arguments: object) -> None:
                """Print nothing."""

            def _answer(self) -> None:
                request = Request(self.command, self.path, self.headers.get("If-None-Match"))
                body = self._body()
                fault = proxy._faultOf(request)
                status = 0
                try:
                    if fault is None:
                        status = self._reply(*self._handOn(body))
                        return
                    time.sleep(fault.delay)
                    if fault.done:
                        self._handOn(body)
                    if fault.late:
                        proxy._late.append(self._request(body))
                    if fault.status is None:
                        self.close_connection = True
                    else:
                        status = self._reply(fault.status, {}, b"")
                except (OSError, HTTPException):
                    # The store is gone, or the client.
                    self.close_connection = True
                finally:
                    proxy.seen.append((request, status))

            do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _answer

            def _body(self) -> bytes:
                if "chunked" not in self.headers.get("Transfer-Encoding", ""):
                    return self.rfile.read(int(self.headers.get("Content-Length", 0)))
                body = b""
                while size := int(self.rfile.readline().split(b";")[0], 16):
                    body += self.rfile.read(size)
                    self.rfile.readline()
                while self.rfile.readline().strip():
                    pass
                return body

            def _handOn(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
                """Hand a request to the store, and return the status, headers and body of its answer."""
                if self._store is None:
                    self._store = proxy._connected()
                return self._request(body)(self._store)

            def _request(self, body: bytes) -> Callable[[HTTPConnection], tuple[int, dict[str, str], bytes]]:
                """Return a request that can be handed to the store at any time."""
                method, path, headers = self.command, self.path, list(self.headers.items())

                def send(store: HTTPConnection) -> tuple[int, dict[str, str], bytes]:
                    # The signature covers the name of the host that the client knows.
                    store.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
                    for name, value in headers:
                        if name.lower() not in _OWN:
                            store.putheader(name, value)
                    store.putheader("Content-Length", str(len(body)))
                    store.endheaders(body)
                    answer = store.getresponse()
                    return answer.status, dict(answer.getheaders()), answer.read()

                return send

            def _reply(self, status: int, headers: dict[str, str], body: bytes) -> int:
                self.send_response(status)
                for name, value in headers.items():
                    if name.lower() not in _OWN:
                        self.send_header(name, value)
                length = str(len(body))
                if self.command == "HEAD":
                    length = {name.lower(): value for name, value in headers.items()}.get("content-length", "0")
                if status not in (204, 304):
                    self.send_header("Content-Length", length)
                self.end_headers()
                self.wfile.write(body)
                return status

        return Handler
