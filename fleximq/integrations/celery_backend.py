"""Results of Celery in FlexiMQ: ``result_backend = "fleximq://localhost:7890"``.

A result is a value of the broker with a time to live (``result_expires``). A program that waits for a result sends a
request that the broker answers when the result is there. See docs/guides/celery.rst.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any
from urllib.parse import unquote

try:
    from celery import states
    from celery.backends.base import KeyValueStoreBackend
    from celery.exceptions import TimeoutError as ResultTimeout
    from kombu.exceptions import OperationalError
    from kombu.utils.encoding import bytes_to_str
    from kombu.utils.functional import retry_over_time
except ImportError as error:
    raise ImportError('results of Celery need Celery: pip install "fleximq[celery]"') from error

from fleximq.client.blocking.client import Client, connect
from fleximq.client.events import Value
from fleximq.client.payloads import Packed
from fleximq.integrations.celery_chords import Chords
from fleximq.integrations.process_client import LOSSES, RECONNECT, ProcessClient

#: Results for which one request waits.
_MOST_KEYS = 500
#: Seconds for which one request waits for a result, if nobody asks for shorter intervals.
_WAIT = 10.0


class ResultBackend(KeyValueStoreBackend):
    """The result backend. Its URL is ``fleximq://[NAME:PASSWORD@]HOST:PORT[,HOST:PORT]``, or ``fleximq+`` and any URL
    of :func:`fleximq.client.blocking.client.connect`, such as ``fleximq+tls://HOST:PORT``.

    ``result_backend_transport_options`` are keyword arguments of that function, ``global_keyprefix``, and
    ``retry_policy`` as of Celery's backend for Redis.
    """

    key_t = staticmethod(bytes_to_str)
    task_keyprefix = "celery/task/"
    group_keyprefix = "celery/group/"
    chord_keyprefix = "celery/chord/"
    supports_autoexpire = True
    supports_native_join = True
    supports_failure_expires = True
    supports_result_compression = True
    persistent = True

    def __init__(self, url: str | None = None, **options: Any) -> None:
        super().__init__(expires_type=int, url=url, **options)
        conf = self.app.conf
        settings = dict(conf.get("result_backend_transport_options") or {})
        settings.pop("global_keyprefix", None)
        self._policy = {**self.retry_policy, **settings.pop("retry_policy", {})}
        failures = conf.get("result_failure_expires")
        self._failureExpires = self.expires if failures is None else self.prepare_expires(failures, type=int)
        self.thread_safe = True
        address, credentials = _addressOf(url or "")
        self._client = ProcessClient(partial(connect, address, **{"reconnect": RECONNECT, **credentials, **settings}))
        self._chords = Chords(self)

    # -- the connection --------------------------------------------------------------------------------

    def call(self, work: Callable[[Client], Any]) -> Any:
        """Do something with the client, again after a loss of the connection."""
        return retry_over_time(lambda: work(self._client.get()), LOSSES, **self._policy)

    def publish(self, work: Callable[[], Any]) -> None:
        """Publish a task, again while the broker of the tasks is away."""
        retry_over_time(work, (OperationalError,), **self._policy)

    def exception_safe_to_retry(self, exc: Exception) -> bool:
        """Return whether Celery may try again after this error (``result_backend_always_retry``)."""
        return isinstance(exc, LOSSES)

    def __reduce__(self, args: Any = (), kwargs: Any = None) -> Any:
        return super().__reduce__(args, {**(kwargs or {}), "url": self.url})

    # -- values ------------------------------------------------------------------------------------------

    def get(self, key: str) -> bytes | None:
        """Return a value; None if there is none."""
        return self.mget([key])[0]

    def mget(self, keys: Sequence[str]) -> list[bytes | None]:
        """Return the values of keys, None for those that have none."""
        found = self.call(lambda client: client.get_values(keys))
        return [found[key].payload if key in found else None for key in keys]

    def set(self, key: str, value: str | bytes, expires: int | None = None) -> None:
        """Store a value for so many seconds, 0: for good, by default for ``result_expires``."""
        packed = Packed(value.encode() if isinstance(value, str) else value)
        lifetime = self.expires if expires is None else expires
        self.call(lambda client: client.put_value(key, packed, expires=lifetime or None))

    def _set_with_state(self, key: str, value: str | bytes, state: str) -> None:
        self.set(key, value, self._failureExpires if state == states.FAILURE else None)

    def delete(self, key: str) -> None:
        """Remove a value, if there is one."""
        self.call(lambda client: client.delete_value(key))

    # -- chords ------------------------------------------------------------------------------------------

    def apply_chord(self, header_result_args: Any, body: Any, **options: Any) -> None:
        """See :meth:`Chords.apply`."""
        self._chords.apply(header_result_args)

    def set_chord_size(self, group_id: str, chord_size: int) -> None:
        """See :meth:`Chords.setSize`."""
        self._chords.setSize(group_id, chord_size)

    def add_to_chord(self, chord_id: str, result: Any) -> None:
        """See :meth:`Chords.add`."""
        self._chords.add(chord_id, result.id)

    def on_chord_part_return(self, request: Any, state: str, result: Any, **options: Any) -> None:
        """See :meth:`Chords.returned`."""
        self._chords.returned(request, state, result)

    # -- waiting for results -----------------------------------------------------------------------------

    def wait_for(
        self,
        task_id: str,
        timeout: float | None = None,
        interval: float = 0.5,
        no_ack: bool = True,
        on_interval: Callable[[], None] | None = None,
    ) -> Any:
        """Return the metadata of a task when it is ready; raises Celery's TimeoutError after ``timeout`` seconds."""
        self._ensure_not_eager()
        meta = self.get_task_meta(task_id)
        if meta["status"] not in states.READY_STATES:
            _, meta = next(self.get_many([task_id], timeout, interval, on_interval=on_interval))
        return meta

    def get_many(
        self,
        task_ids: Iterable[str],
        timeout: float | None = None,
        interval: float | None = 0.5,
        no_ack: bool = True,
        on_message: Callable[[Any], None] | None = None,
        on_interval: Callable[[], None] | None = None,
        max_iterations: int | None = None,
        READY_STATES: frozenset[str] = states.READY_STATES,
    ) -> Iterator[tuple[str, Any]]:
        """Yield the ids and the metadata of tasks when they are ready, of the first 500, then of the next ones. Raises
        Celery's TimeoutError after ``timeout`` seconds. ``on_interval`` is called every ``interval`` seconds.
        """
        end = None if timeout is None else time.monotonic() + timeout
        ids = list(dict.fromkeys(map(bytes_to_str, task_ids)))
        longest = _WAIT if on_interval is None and max_iterations is None else interval or 0.5
        for first in range(0, len(ids), _MOST_KEYS):
            keys = {self.get_key_for_task(each): each for each in ids[first : first + _MOST_KEYS]}
            iterations, after, wait, quiet = 0, 0, 0.0, 0.0
            while keys:
                found = self.call(partial(_newer, list(keys), after, wait))
                if wait and on_interval is not None:
                    on_interval()  # which raises the error of a parent, before that of the body of a chord
                # Now and then all are read again: an answer in parts may have an older state in its first part.
                quiet = 0.0 if found else quiet + wait
                after = max((after, *(each.revision for each in found.values())))
                if quiet >= _WAIT:
                    after = 0
                for key, value in found.items():
                    meta = self.decode_result(value.payload)
                    if meta["status"] in READY_STATES:
                        task = keys.pop(key)
                        self._cache[task] = meta
                        if on_message is not None:
                            on_message(meta)
                        yield task, meta
                iterations += 1
                if max_iterations and iterations > max_iterations:
                    return
                wait = longest if end is None else min(longest, end - time.monotonic())
                if keys and wait <= 0:
                    raise ResultTimeout("The operation timed out.")


def _newer(keys: Sequence[str], after: int, wait: float, client: Client) -> Mapping[str, Value]:
    return client.get_values(keys, after=after, wait=wait)


def _addressOf(url: str) -> tuple[str, dict[str, Any]]:
    """Return an address for :func:`connect`, and credentials as its keyword arguments."""
    scheme, _, rest = url.partition("://")
    user, at, place = rest.rpartition("@")
    name, _, password = user.partition(":")
    credentials = {"type": "basic", "username": unquote(name), "password": unquote(password)}
    if scheme == "fleximq":
        scheme, place = "tcp", place.rstrip("/") or "localhost:7890"
    return f"{scheme}://{place}", {"credentials": credentials} if at else {}
