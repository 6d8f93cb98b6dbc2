"""Chords of Celery in FlexiMQ: which tasks of a header have finished, and who calls the body.

The broker has these values of a chord, with the key of its group as prefix: ``size``, how many tasks its header has;
``more/TASK`` for each task that was added to it; ``part/INDEX/TASK``, the result of a finished task; and ``caller``,
the task that calls the body. A part is stored once, however often its task runs or its request is repeated. If there
are as many parts as tasks, one task calls the body. If that task is run again, because its worker died, it calls the
body again.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from celery import states
from celery.canvas import maybe_signature
from celery.exceptions import ChordError
from celery.result import GroupResult, allow_join_result
from celery.utils.log import get_logger

from fleximq.client.blocking.client import Client
from fleximq.client.errors import RequestFailed
from fleximq.client.payloads import Packed
from fleximq.status import Status

_log = get_logger(__name__)
#: The levels of the parts, and of the tasks that were added.
_PARTS, _MORE = "part/", "more/"


def _count(prefix: str, client: Client) -> int:
    return client.count_values(prefix)


class ChordBackend(Protocol):
    """The methods of the result backend that chords use: Celery's own, and ``call``, which runs a function with the
    client of the broker.
    """

    app: Any
    encode: Callable[[Any], Any]
    decode: Callable[[Any], Any]
    encode_result: Callable[[Any, str], Any]
    exception_to_python: Callable[[Any], Any]
    chord_error_from_stack: Callable[..., Any]
    get_key_for_group: Callable[..., str]

    @property
    def chord_expires(self) -> int | None:
        """The seconds for which the values of a chord live."""

    def call(self, work: Callable[[Client], Any]) -> Any:
        """Do something with the client, again after a loss of the connection."""

    def publish(self, work: Callable[[], Any]) -> None:
        """Call ``work``, which publishes; call it again if the connection was lost."""


class Chords:
    """All chords of a backend."""

    def __init__(self, backend: ChordBackend) -> None:
        self._backend = backend
        self._app = backend.app
        self._call = backend.call

    def apply(self, header: Any) -> None:
        """Store the structure of a header that contains groups; other headers have their parts alone."""
        group, results, *_ = header
        if isinstance(results, list | tuple) and any(isinstance(each, GroupResult) for each in results):
            saved = self._backend.encode({"result": self._app.GroupResult(*header).as_tuple()})
            self._put(self._backend.get_key_for_group(group), saved)

    def setSize(self, group: str, size: int) -> None:
        """Store how many tasks the header of a chord has, before the last one of them is published.

        A chord that is called again has the same group; its former parts were deleted when its body was called.
        """
        self._call(lambda client: client.delete_value(self._key(group, "caller")))
        self._put(self._key(group, "size"), self._backend.encode(size))

    def add(self, group: str, task: str) -> None:
        """Count a task that a task of the header has added to it."""
        self._put(self._key(group, f"{_MORE}{task}"), b"")

    def returned(self, request: Any, state: str, result: Any) -> None:
        """Store the result of a task of a header, and call the body if it is the last one."""
        task, group = request.id, request.group
        if not task or not group:
            return
        self._store(group, task, request.group_index, state, result)
        if not self._isComplete(group) or not self._claims(group, task):
            return
        body = maybe_signature(request.chord, app=self._app)
        step = "Join"
        try:
            results = self._results(group)
            step = "Callback"
            self._backend.publish(partial(self._app.amqp._retry_publish, body.delay, results))
        except Exception as error:  # the errors of tasks, and any error of the application's serializers
            _log.exception("Chord %r raised: %r", group, error)
            failure = error if isinstance(error, ChordError) else ChordError(f"{step} error: {error!r}")
            self._backend.chord_error_from_stack(body, failure)
        self._forget(group)

    def _store(self, group: str, task: str, index: int | None, state: str, result: Any) -> None:
        """Store a part, unless it is stored already."""
        place = "last" if index is None else f"{index:08d}"
        part = self._backend.encode([task, state, self._backend.encode_result(result, state)])
        self._put(self._key(group, f"{_PARTS}{place}/{task}"), part, if_revision=0)

    def _isComplete(self, group: str) -> bool:
        """Return whether all tasks of a header have finished; not if their number is not known yet, or not any more."""
        size = self._call(lambda client: client.get_value(self._key(group, "size")))
        if size is None:
            return False
        finished, added = (self._call(partial(_count, self._key(group, name))) for name in (_PARTS, _MORE))
        return bool(finished >= self._backend.decode(size.payload) + added)

    def _claims(self, group: str, task: str) -> bool:
        """Return whether this task calls the body: no other one has begun to."""
        key = self._key(group, "caller")
        if self._put(key, task.encode(), if_revision=0):
            return True
        found = self._call(lambda client: client.get_value(key))
        return found is not None and bool(found.payload == task.encode())

    def _results(self, group: str) -> list[Any]:
        """Return the results of a header in their order; raises ChordError if a task has failed."""
        header = GroupResult.restore(group, backend=self._backend)
        if header is not None:  # it contains groups
            header.on_ready()
            with allow_join_result():
                joined: list[Any] = header.join_native(timeout=self._app.conf.result_chord_join_timeout, propagate=True)
            return joined
        parts = self._keys(group, _PARTS)
        found = self._call(lambda client: client.get_values(parts))
        return [self._resultOf(found[part].payload) for part in parts]

    def _resultOf(self, part: bytes) -> Any:
        task, state, result = self._backend.decode(part)
        if state in states.EXCEPTION_STATES:
            result = self._backend.exception_to_python(result)
        if state in states.PROPAGATE_STATES:
            raise ChordError(f"Dependency {task} raised {result!r}") from result
        return result

    def _forget(self, group: str) -> None:
        """Delete the values of a chord, its size first: a copy of a task that ends later stores its part again, which
        expires, and does nothing else.
        """
        names = [self._key(group, name) for name in ("size", "caller")]
        keys = [*names, *self._keys(group, _PARTS), *self._keys(group, _MORE), self._backend.get_key_for_group(group)]
        self._call(lambda client: client.delete_values(keys))

    def _keys(self, group: str, level: str) -> list[str]:
        prefix = self._key(group, level)
        return [row["key"] for row in self._call(lambda client: client.values(prefix=prefix))]

    def _key(self, group: str, name: str) -> str:
        return f"{self._backend.get_key_for_group(group)}/{name}"

    def _put(self, key: str, content: str | bytes, **condition: int) -> bool:
        """Store a value as long as those of chords live; return whether the condition holds."""
        packed = Packed(content.encode() if isinstance(content, str) else content)
        try:
            self._call(lambda client: client.put_value(key, packed, expires=self._lifetime, **condition))
        except RequestFailed as error:
            if error.status != Status.CONFLICT:
                raise
            return False
        return True

    @property
    def _lifetime(self) -> int | None:
        """The seconds for which the values of a chord live, None: for good."""
        return self._backend.chord_expires or None
