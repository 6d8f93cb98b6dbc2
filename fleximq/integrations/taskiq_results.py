"""Results of taskiq in FlexiMQ: ``broker.with_result_backend(FleximqResultBackend("tcp://localhost:7890"))``.

A result is a value of the broker with a time to live; so is the progress of a task.
"""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from ssl import SSLContext
from typing import Any, TypeVar, Unpack

try:
    from taskiq import AsyncResultBackend, TaskiqResult
    from taskiq.abc.serializer import TaskiqSerializer
    from taskiq.depends.progress_tracker import TaskProgress
    from taskiq.exceptions import ResultGetError, ResultSetError
    from taskiq.serializers import PickleSerializer
except ImportError as error:
    raise ImportError('results of taskiq need taskiq: pip install "fleximq[taskiq]"') from error

from fleximq.client.asyncio import Client, connect
from fleximq.client.errors import ConnectionLost
from fleximq.client.keywords import ConnectOptions
from fleximq.client.payloads import Packed
from fleximq.client.settings import Tls
from fleximq.integrations.process_client import LOSSES, PAUSE, RECONNECT, TRIES

_R = TypeVar("_R")


class FleximqResultBackend(AsyncResultBackend[_R]):
    """A result backend of taskiq.

    :param url: and ``options``: as :func:`fleximq.client.asyncio.connect` has them.
    :param result_ttl: seconds for which results live; None: for good.
    :param keep_results: whether a result stays after it was got.
    :param prefix: the first levels of the keys.
    :param serializer: of results, pickle by default, as in ``taskiq-redis``. Pickle runs code of whoever may write
        results.
    """

    def __init__(
        self,
        url: str | Sequence[str] = "tcp://localhost:7890",
        *,
        result_ttl: float | timedelta | None = timedelta(days=1),
        keep_results: bool = True,
        prefix: str = "taskiq",
        serializer: TaskiqSerializer | None = None,
        **options: Unpack[ConnectOptions[Tls | SSLContext]],
    ) -> None:
        self._url = url
        options.setdefault("reconnect", RECONNECT)
        self._options = options
        self._lifetime = result_ttl
        self._keepsResults = keep_results
        self._prefix = prefix
        self._serializer = serializer or PickleSerializer()
        self._client: Client | None = None

    async def startup(self) -> None:
        """Connect; errors as of :func:`connect`."""
        self._client = await connect(self._url, **self._options)

    async def shutdown(self) -> None:
        """Close the connection."""
        if self._client is not None:
            await self._client.close()
            self._client = None

    @property
    def _connected(self) -> Client:
        if self._client is None:
            raise ConnectionLost("the result backend is not started: await broker.startup()")
        return self._client

    async def set_result(self, task_id: str, result: TaskiqResult[_R]) -> None:
        """Store a result; raises ResultSetError if the broker is away for longer than 20 seconds."""
        packed = Packed(self._serializer.dumpb(result.model_dump()))
        for _ in range(TRIES):  # taskiq acknowledges the task even if its result is not stored
            try:
                await self._connected.put_value(self._key("result", task_id), packed, expires=self._lifetime)
            except LOSSES:
                await asyncio.sleep(PAUSE)
            else:
                return
        raise ResultSetError

    async def is_result_ready(self, task_id: str) -> bool:
        """Return whether there is a result of a task."""
        key = self._key("result", task_id)
        # The first key with this prefix: the result itself is not read.
        found = await self._connected.ask("/value/list", {"prefix": key, "limit": 1})
        return [row["key"] for row in found["values"]] == [key]

    async def get_result(self, task_id: str, with_logs: bool = False) -> TaskiqResult[_R]:
        """Return the result of a task; raises ResultGetError if there is none."""
        key = self._key("result", task_id)
        found = await self._connected.get_value(key)
        if found is None:
            raise ResultGetError
        result: TaskiqResult[_R] = TaskiqResult.model_validate(self._serializer.loadb(found.payload))
        if not self._keepsResults:
            await self._connected.delete_value(key)
        if not with_logs:
            result.log = None
        return result

    async def set_progress(self, task_id: str, progress: TaskProgress[Any]) -> None:
        """Store how far a task is."""
        packed = Packed(self._serializer.dumpb(progress.model_dump()))
        await self._connected.put_value(self._key("progress", task_id), packed, expires=self._lifetime)

    async def get_progress(self, task_id: str) -> TaskProgress[Any] | None:
        """Return how far a task is, None if that is not known."""
        found = await self._connected.get_value(self._key("progress", task_id))
        return None if found is None else TaskProgress.model_validate(self._serializer.loadb(found.payload))

    def _key(self, kind: str, task: str) -> str:
        return f"{self._prefix}/{kind}/{task}"
