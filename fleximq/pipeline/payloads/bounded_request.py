"""HTTP requests whose whole answer is bounded in bytes and in time; the timeout of a socket bounds only each read."""

from contextlib import suppress
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from io import BytesIO
from socket import SHUT_RDWR, socket
from threading import Timer
from types import TracebackType
from typing import Any
from urllib.error import HTTPError
from urllib.request import HTTPHandler, HTTPSHandler, Request, build_opener


def bodyOf(request: Request, seconds: float, most: int) -> bytes:
    """Return the body of an answer, up to one byte more than ``most``. Raises HTTPError for an error status, with the
    body in memory; OSError, HTTPException or ValueError if the answer is incomplete.
    """
    with _Deadline(seconds) as deadline:
        try:
            with build_opener(_Handler(deadline)).open(request, timeout=seconds) as answer:
                content: bytes = answer.read(most + 1)
        except HTTPError as error:
            with error:
                content = error.read(most + 1)
            raise HTTPError(error.url, error.code, error.msg, error.headers, BytesIO(content)) from None
        except (OSError, HTTPException, ValueError):
            deadline.check()
            raise
        # http.client reports no error if a body ends early.
        deadline.check()
    return content


class _Deadline:
    """Shuts down its connections when its seconds are over."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._sockets: list[socket] = []
        self._isOver = False
        self._timer = Timer(seconds, self._end)
        self._timer.daemon = True

    def __enter__(self) -> "_Deadline":
        self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._timer.cancel()

    def add(self, connected: socket) -> None:
        """Add a connection; it is shut down at once if the time is over."""
        self._sockets.append(connected)
        if self._isOver:
            self._end()

    def check(self) -> None:
        """Raise TimeoutError if the time is over."""
        if self._isOver:
            raise TimeoutError(f"its answer takes longer than {self._seconds:g} seconds")

    def _end(self) -> None:
        self._isOver = True
        for each in self._sockets:
            with suppress(OSError, ValueError):
                each.shutdown(SHUT_RDWR)


class _Plain(HTTPConnection):
    def __init__(self, deadline: _Deadline, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._deadline = deadline

    def connect(self) -> None:
        super().connect()
        self._deadline.add(self.sock)


class _Secure(_Plain, HTTPSConnection):
    """As :class:`_Plain`, with TLS."""


class _Handler(HTTPHandler, HTTPSHandler):
    """Opens connections with a deadline."""

    def __init__(self, deadline: _Deadline) -> None:
        super().__init__()
        self._deadline = deadline

    def http_open(self, request: Request) -> HTTPResponse:
        return self.do_open(partial(_Plain, self._deadline), request)

    def https_open(self, request: Request) -> HTTPResponse:
        return self.do_open(partial(_Secure, self._deadline), request)
