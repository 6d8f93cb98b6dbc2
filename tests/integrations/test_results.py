"""The result backends of dramatiq and taskiq, with a broker."""

import asyncio
import os
import threading
from datetime import timedelta
from importlib.util import find_spec
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from fleximq.client.blocking import connect
from fleximq.client.errors import ConnectionLost
from tests.broker_process import BrokerProcess

if find_spec("dramatiq"):
    from dramatiq import Message
    from dramatiq.results.errors import ResultFailure, ResultMissing, ResultTimeout

    from fleximq.integrations.dramatiq_results import FleximqBackend
if find_spec("taskiq"):
    from taskiq import TaskiqResult
    from taskiq.depends.progress_tracker import TaskProgress, TaskState
    from taskiq.exceptions import ResultGetError
    from taskiq.serializers import JSONSerializer

    from fleximq.integrations.taskiq_results import FleximqResultBackend


class ResultCase(SynchronousTestCase):
    """A broker."""

    def setUp(self) -> None:
        self.process = BrokerProcess("--journal", os.path.abspath(self.mktemp()))
        self.process.__enter__()
        self.addCleanup(self.process.stop)
        self.url = f"tcp://127.0.0.1:{self.process.port()}"

    def keys(self) -> dict[str, Any]:
        """Return the keys of the broker, and when they expire."""
        with connect(self.url) as client:
            return {row["key"]: row["expires"] for row in client.values()}


class DramatiqResultTests(ResultCase):
    """Results that actors leave."""

    if not find_spec("dramatiq"):
        skip = "needs the extra dramatiq"

    def setUp(self) -> None:
        super().setUp()
        self.backend = FleximqBackend(self.url)
        self.addCleanup(self.backend.close)
        self.message = Message("mails", "send", (), {}, {}, message_id="m")

    def test_results(self) -> None:
        """Under keys with levels, for a time."""
        self.assertRaises(ResultMissing, self.backend.get_result, self.message)
        self.backend.store_result(self.message, {"a": 1}, 60_000)
        self.assertEqual(self.backend.get_result(self.message), {"a": 1})
        [(key, expires)] = self.keys().items()
        self.assertEqual(key, "dramatiq-results/mails/send/m")
        self.assertIsInstance(expires, int)

    def test_errors(self) -> None:
        """Of actors are raised."""
        self.backend.store_exception(self.message, ValueError("bad"), 60_000)
        self.assertRaises(ResultFailure, self.backend.get_result, self.message)

    def test_waiting(self) -> None:
        """For one that is there soon, and in vain."""
        self.assertRaises(ResultTimeout, self.backend.get_result, self.message, block=True, timeout=10)
        thread = threading.Timer(0.05, self.backend.store_result, (self.message, 5, 60_000))
        thread.start()
        self.addCleanup(thread.join)
        self.assertEqual(self.backend.get_result(self.message, block=True, timeout=60_000), 5)


class TaskiqResultTests(ResultCase):
    """Results that tasks leave."""

    if not find_spec("taskiq"):
        skip = "needs the extra taskiq"

    async def leave(self, backend: Any, value: Any, **fields: Any) -> None:
        """Store a result of the task "t"."""
        result = TaskiqResult(is_err=False, return_value=value, execution_time=1.0, log="lines", **fields)
        await backend.set_result("t", result)

    def run_(self, scene: Any, **options: Any) -> None:
        """Run a scene with a backend."""

        async def whole() -> None:
            backend = FleximqResultBackend[Any](self.url, **options)
            await backend.startup()
            try:
                await scene(backend)
            finally:
                await backend.shutdown()

        asyncio.run(whole())

    def test_results(self) -> None:
        """With logs if they are wanted; a missing one is taskiq's error."""

        async def scene(backend: Any) -> None:
            self.assertFalse(await backend.is_result_ready("t"))
            with self.assertRaises(ResultGetError):
                await backend.get_result("t")
            await self.leave(backend, {"a": (1, b"x")}, labels={"l": 1})
            await backend.set_result("t2", TaskiqResult(is_err=False, return_value=1, execution_time=0))
            self.assertTrue(await backend.is_result_ready("t"))
            self.assertFalse(await backend.is_result_ready("t3"))
            found = await backend.get_result("t")
            self.assertEqual((found.return_value, found.log, found.labels), ({"a": (1, b"x")}, None, {"l": 1}))
            self.assertEqual((await backend.get_result("t", with_logs=True)).log, "lines")

        self.run_(scene)
        self.assertEqual(sorted(self.keys()), ["taskiq/result/t", "taskiq/result/t2"])
        self.assertNotIn(None, self.keys().values())

    def test_errors(self) -> None:
        """Are raised by who asks for the value, also with JSON."""

        async def scene(backend: Any) -> None:
            failed = TaskiqResult(is_err=True, return_value=None, execution_time=0, error=KeyError("k"))
            await backend.set_result("t", failed)
            found = await backend.get_result("t")
            self.assertIsInstance(found.error, KeyError)
            self.assertRaises(KeyError, found.raise_for_error)

        self.run_(scene)
        self.run_(scene, serializer=JSONSerializer())

    def test_resultsThatAreGotOnce(self) -> None:
        """Are deleted then; other serializers and times."""

        async def scene(backend: Any) -> None:
            await self.leave(backend, [1])
            self.assertEqual((await backend.get_result("t")).return_value, [1])
            self.assertFalse(await backend.is_result_ready("t"))
            await self.leave(backend, [2])

        self.run_(scene, keep_results=False, serializer=JSONSerializer(), result_ttl=None, prefix="shop")
        self.assertEqual(self.keys(), {"shop/result/t": None})

    def test_progress(self) -> None:
        """Of a task."""

        async def scene(backend: Any) -> None:
            self.assertIsNone(await backend.get_progress("t"))
            await backend.set_progress("t", TaskProgress(state=TaskState.STARTED, meta={"done": 5}))
            found = await backend.get_progress("t")
            self.assertEqual((found.state, found.meta), (TaskState.STARTED, {"done": 5}))

        self.run_(scene, result_ttl=timedelta(minutes=1))

    def test_beforeStartup(self) -> None:
        """One sentence says what is missing."""
        backend = FleximqResultBackend[Any](self.url)
        with self.assertRaises(ConnectionLost) as caught:
            asyncio.run(backend.is_result_ready("t"))
        self.assertIn("not started", str(caught.exception))
        asyncio.run(backend.shutdown())
