"""The JavaScript client in node, as a further form of the FlexiMQ client in the shared conversations.

A program in node, ``driver.mjs``, does what is asked at its standard input. Functions that the client calls run here.
"""

import dataclasses
import itertools
import logging
import re
import subprocess
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import msgpack

from fleximq.client import errors
from fleximq.client.backoff import Backoff
from fleximq.client.events import Delivery, Gap, Notification, Request
from fleximq.client.settings import State
from fleximq.client.times import Duration, milliseconds
from tests.client.forms import PATIENCE, Form, User
from tests.js.workshop import node, workshop

_log = logging.getLogger("fleximq.client")
_OPTIONS = {"prefetch": "unread"}
_LENGTH = 4


def camelCase(name: str) -> str:
    """Return the JavaScript client's spelling of a name."""
    return re.sub(r"_([a-z])", lambda found: found[1].upper(), name.rstrip("_"))


def _error(told: dict[str, Any]) -> Exception:
    kind = told["name"]
    if kind == "TimedOut":
        return TimeoutError(told["message"])
    if kind in ("TypeError", "RangeError"):
        return ValueError(told["message"])
    found = getattr(errors, kind, None)
    if found is None:
        return AssertionError(f"{kind}: {told['message']}")
    if issubclass(found, errors.Answered):
        error: Exception = found(told["status"], told["words"], told["path"])
        if isinstance(error, errors.PublishFailed):
            error.others = tuple(_error(each) for each in told["others"])  # type: ignore[misc]
        return error
    return found(told["message"])  # type: ignore[no-any-return]


def _message(told: dict[str, Any]) -> Any:
    header, payload, sender = told["header"], told["payload"], told["publisher"]
    if "reqrep" in header:
        return Request(header["reqrep"]["id"], told["path"], payload, sender, header)
    if told["gap"]:
        return Gap(told["topic"], b"", 1, {})
    if told.get("topic") is None:
        return Notification(told.get("path"), payload, sender, header)
    return Delivery(told["topic"], payload, sender, header)


class Remote:
    """A client, a subscription or the jobs of a queue in node."""

    def __init__(self, form: "OnNode", number: int, kind: str, topic: str = "") -> None:
        self._form, self._number, self._kind, self.topic = form, number, kind, topic

    def _do(self, method: str, *arguments: Any) -> Any:
        return self._form.ask(self._number, method, *arguments)

    def _get(self, name: str) -> Any:
        return self._form.ask(0, "get", self._number, name)

    def __iter__(self) -> "Remote":
        return self

    def __next__(self) -> Any:
        found = self._form.ask(0, "iterate", self._number)
        if found is None:
            raise StopIteration
        return found

    def next(self, timeout: float | None = None) -> Any:
        """Return the next message or job; see the Python client."""
        if self._kind == "jobs":
            return self._form.ask(0, "nextJob", self._number, timeout)
        return self.take(timeout)

    def take(self, timeout: float | None = None) -> Any:
        """Return the next message or job without acknowledging any."""
        return self._do("take", *([] if timeout is None else [timeout]))

    @property
    def waiting(self) -> int:
        """The number of unread items."""
        return self._get("waiting")  # type: ignore[no-any-return]

    def close(self, timeout: float | None = None) -> None:
        """Close it."""
        self._do("close", *([] if timeout is None else [{"timeout": timeout}]))


class RemoteClient(Remote):
    """A client in node, with the names of the Python client."""

    @property
    def id(self) -> int:
        """Its id."""
        return self._get("id")  # type: ignore[no-any-return]

    @property
    def state(self) -> State:
        """Its state."""
        return State(self._get("state"))

    def publish(self, topic: str, value: Any, **more: Any) -> None:
        """Publish."""
        self._do("publish", topic, value, *self._options(more))

    def publish_many(self, topic: str, values: Any, **more: Any) -> None:
        """Publish several values."""
        values = values if isinstance(values, str | bytes) else list(values)
        self._do("publishMany", topic, values, *self._options(more))

    def enqueue(self, queue: str, value: Any, **more: Any) -> None:
        """Put a value into a queue."""
        self._do("enqueue", queue, value, *self._options(more))

    def enqueue_many(self, queue: str, values: Any, **more: Any) -> None:
        """Put several values into a queue."""
        for value in values:
            self.enqueue(queue, value, **more)

    def notify(self, targets: Any, path: str, value: Any = None) -> None:
        """Notify."""
        self._do("notify", targets, path, value)

    def broadcast(self, value: Any = None) -> None:
        """Broadcast."""
        self._do("broadcast", value)

    def flush(self, timeout: float = PATIENCE) -> None:
        """Flush."""
        self._do("flush", {"timeout": timeout})

    def ping(self) -> float:
        """Return how long an answer of the broker takes."""
        begun = time.monotonic()
        self.ask("/broker/about")
        return time.monotonic() - begun

    def subscribe(self, topic: str, from_: Any = None, *, resume: bool = False, gaps: bool = False) -> Any:
        """Subscribe."""
        start = "next" if resume else from_
        return self._do("subscribe", topic, {"gaps": gaps} | ({} if start is None else {"from": start}))

    def notifications(self) -> Any:
        """Return notifications and broadcasts."""
        return self._do("notifications")

    def request(self, target: Any, path: str, value: Any = None, timeout: float = PATIENCE) -> Any:
        """Request."""
        return self._do("request", target, path, value, {"timeout": timeout})

    def ask(self, path: str, value: Any = None, timeout: float = PATIENCE) -> Any:
        """Request of the broker."""
        return self._do("ask", path, value, {"timeout": timeout})

    def serve(self, path: str, function: Callable[[Request], Any]) -> None:
        """Serve."""
        self._form.ask(0, "serve", self._number, path, self._form.function(function))

    def consume(self, queue: str, prefetch: int = 1, function: Callable[[Any], Any] | None = None) -> Any:
        """Consume."""
        called = 0 if function is None else self._form.function(function)
        return self._form.ask(0, "consume", self._number, queue, {"prefetch": prefetch}, called)

    def queues(self) -> list[dict[str, Any]]:
        """Return the queues."""
        return self.ask("/queue/list", {"limit": 1000})["queues"]  # type: ignore[no-any-return]

    def close(self, timeout: float | None = PATIENCE) -> None:
        """Close it."""
        super().close(timeout)

    def hang_up(self) -> None:
        """End the connection at once."""
        self._do("hangUp")

    def _options(self, more: dict[str, Any]) -> list[dict[str, Any]]:
        given = {camelCase(name): _plain(value) for name, value in more.items() if value is not None}
        return [given] if given else []


class RemoteJob:
    """A job in node."""

    def __init__(self, form: "OnNode", told: dict[str, Any]) -> None:
        self._form, self._number = form, told["job"]
        self.queue, self.tag, self.attempt = told["queue"], told["tag"], told["attempt"]
        self.delivery = _message(told["message"])
        self.value, self.topic = self.delivery.value, self.delivery.topic
        self.key = self.delivery.header.get("key")

    def ack(self) -> None:
        """Acknowledge it."""
        self._form.ask(self._number, "ack")

    def retry(self, delay: Duration | None = None) -> None:
        """Have it delivered again."""
        self._form.ask(self._number, "retry", *([] if delay is None else [_plain(delay)]))

    def reject(self, reason: str = "") -> None:
        """Reject it."""
        self._form.ask(self._number, "reject", reason)

    def extend(self, lease: Duration) -> None:
        """Extend it."""
        self._form.ask(self._number, "extend", _plain(lease))


def _plain(value: Any) -> Any:
    return milliseconds("a duration", value) / 1000 if hasattr(value, "total_seconds") else value


class OnNode(Form):
    """JavaScript, in node."""

    name = "javascript"

    def __init__(self, dialect: str = "") -> None:
        self._program = subprocess.Popen(
            [node(), workshop() / "tests" / "driver.mjs"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._numbers = itertools.count(1)
        self._waiting: dict[int, Future[Any]] = {}
        self._functions: dict[int, Callable[..., Any]] = {}
        self._watchers: dict[int, Callable[[State, Exception | None], None]] = {}
        self._writing = threading.Lock()
        self._pool = ThreadPoolExecutor(16)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def connect(self, url: str | list[str], **wishes: Any) -> Any:
        watcher = wishes.pop("on_state", None)
        options = {}
        for name, value in wishes.items():
            if isinstance(value, Backoff):
                value = {key: each for key, each in dataclasses.asdict(value).items() if each is not None}
            options[_OPTIONS.get(name, camelCase(name))] = False if name == "reconnect" and value is None else value
        urls = [each for part in ([url] if isinstance(url, str) else url) for each in _webSockets(part)]
        number = next(self._numbers) if watcher else 0
        if watcher:
            self._watchers[number] = watcher
        client = self.ask(0, "connect", urls, options, number)
        if watcher:
            watcher(State.JOINED, None)
        return client

    def function(self, call: Callable[..., Any]) -> int:
        """Return the number by which node calls a function."""
        number = next(self._numbers)
        self._functions[number] = call
        return number

    def ask(self, target: int, method: str, *arguments: Any) -> Any:
        """Have node do something, and return what it comes to."""
        number, future = next(self._numbers), Future[Any]()
        self._waiting[number] = future
        self._say([number, target, method, list(arguments)])
        return self._known(future.result(PATIENCE))

    def user(self) -> User:
        raise NotImplementedError("a program in JavaScript has one user")

    def end(self) -> None:
        assert self._program.stdin is not None
        self._program.stdin.close()
        self._program.wait(PATIENCE)
        self._reader.join(PATIENCE)
        self._pool.shutdown(wait=False)

    def _say(self, message: list[Any]) -> None:
        data = msgpack.packb(message)
        assert self._program.stdin is not None
        with self._writing:
            self._program.stdin.write(len(data).to_bytes(_LENGTH, "big") + data)
            self._program.stdin.flush()

    def _read(self) -> None:
        stdout = self._program.stdout
        assert stdout is not None
        while head := stdout.read(_LENGTH):
            message = msgpack.unpackb(stdout.read(int.from_bytes(head, "big")), strict_map_key=False, timestamp=3)
            if message[0] == "call":
                self._pool.submit(self._call, *message[1:])
            elif message[0] == "state":
                self._watchers[message[1]](State(message[2]), message[3] and _error(message[3]))
            elif message[0] == "warning":
                _log.warning("%s", message[1])
            else:
                number, failed, result = message
                future = self._waiting.pop(number)
                if failed == "ok":
                    future.set_result(result)
                else:
                    future.set_exception(_error(failed))
        for future in self._waiting.values():
            future.set_exception(AssertionError("node has ended"))
        stdout.close()

    def _call(self, own: int, number: int, told: dict[str, Any]) -> None:
        failed: Any = "ok"
        result = None
        try:
            result = self._functions[number](self._known(told))
        except errors.Answered as error:
            failed = {"status": error.status, "words": error.words}
        except Exception as error:
            failed = {"words": str(error)}
        self._say(["answer", own, failed, result])

    def _known(self, told: dict[str, Any] | None) -> Any:
        if told is None:
            return None
        if "job" in told:
            return RemoteJob(self, told)
        if "message" in told:
            return _message(told["message"])
        if "object" in told:
            kind = RemoteClient if told["kind"] == "client" else Remote
            return kind(self, told["object"], told["kind"], told.get("topic", ""))
        return told["value"]


def _webSockets(url: str) -> list[str]:
    """Return the addresses for WebSockets of an URL for TCP, which may have several."""
    if not url.startswith("tcp://"):
        return [url]
    return [f"ws://{place}/ws" for place in url.removeprefix("tcp://").split(",")]
