"""Celery's result backend with a broker."""

import os
import pickle
import threading
from importlib.util import find_spec
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from fleximq.client.errors import ConnectionLost, RequestFailed
from fleximq.client.events import Value
from fleximq.client.settings import TIMEOUT
from tests.broker_process import BrokerProcess

_MISSING = "" if find_spec("celery") else "needs the extra celery"
if not _MISSING:
    from celery import Celery, states
    from celery.exceptions import ImproperlyConfigured
    from celery.exceptions import TimeoutError as ResultTimeout
    from celery.result import AsyncResult

    from fleximq.integrations import celery_backend
    from fleximq.integrations.celery_backend import ResultBackend, _addressOf


class BackendTests(SynchronousTestCase):
    """An application without tasks, whose results are stored as a worker does."""

    if _MISSING:
        skip = _MISSING

    def setUp(self) -> None:
        """Start a broker."""
        self.broker = BrokerProcess("--journal", os.path.abspath(self.mktemp()))
        self.broker.__enter__()
        self.addCleanup(self.broker.stop)
        self.backend = self.make()

    def make(self, **options: Any) -> "ResultBackend":
        """Return a backend."""
        app = Celery("test", set_as_current=False, **options)
        return ResultBackend(app=app, url=f"fleximq://127.0.0.1:{self.broker.port()}")

    def soon(self, work: Any, *arguments: Any) -> None:
        """Call in another thread, shortly."""
        thread = threading.Timer(0.05, work, arguments)
        thread.start()
        self.addCleanup(thread.join)

    def test_resultsAreStored(self) -> None:
        """And forgotten; a success is not overwritten."""
        result = AsyncResult("one", backend=self.backend)
        self.assertEqual(result.state, states.PENDING)
        self.backend.store_result("one", {"a": 1}, states.SUCCESS)
        self.backend.store_result("one", None, states.STARTED)
        self.assertEqual((result.state, result.get(timeout=TIMEOUT)), (states.SUCCESS, {"a": 1}))
        result.forget()
        self.assertEqual(AsyncResult("one", backend=self.backend).state, states.PENDING)

    def test_failures(self) -> None:
        """Are raised by who waits."""
        self.backend.store_result("bad", KeyError("k"), states.FAILURE)
        self.assertRaises(KeyError, AsyncResult("bad", backend=self.backend).get, timeout=TIMEOUT)

    def test_waitForAResult(self) -> None:
        """That comes after a state that is not ready."""
        self.backend.store_result("slow", None, states.STARTED)
        self.soon(self.backend.store_result, "slow", 42, states.SUCCESS)
        self.assertEqual(AsyncResult("slow", backend=self.backend).get(timeout=60), 42)

    def test_timeout(self) -> None:
        """Celery's own error; of one and of several results."""
        self.assertRaises(ResultTimeout, AsyncResult("none", backend=self.backend).get, timeout=0.01)
        self.backend.store_result("there", 1, states.SUCCESS)
        found = []
        with self.assertRaises(ResultTimeout):
            found.extend([task for task, _ in self.backend.get_many(["none", "there"], timeout=0.01)])
        self.assertRaises(ResultTimeout, next, self.backend.get_many(["none"], timeout=0))

    def test_manyResults(self) -> None:
        """As they become ready, also more than one request can have."""
        ids = [f"t{number}" for number in range(1100)]
        for each in ids[:-1]:
            self.backend.set(self.backend.get_key_for_task(each), self.backend.encode({"status": "SUCCESS"}))
        self.soon(self.backend.store_result, ids[-1], 1, states.SUCCESS)
        self.assertEqual(sorted(task for task, _ in self.backend.get_many(ids, timeout=60)), sorted(ids))

    def test_allAreReadAgain(self) -> None:
        """After 10 seconds without an answer, however short the intervals are: a newer state may have been missed."""
        asked: list[int] = []

        def newer(keys: Any, after: int, wait: float, client: Any) -> dict[str, Value]:
            asked.append(after)
            started = Value(5, self.backend.encode({"status": states.STARTED}).encode())
            return {} if after else dict.fromkeys(keys, started)

        self.patch(celery_backend, "_newer", newer)
        interval = dict.fromkeys(range(25)).popitem
        self.assertRaises(KeyError, self.backend.wait_for, "one", interval=0.5, on_interval=interval)
        self.assertEqual(asked[0], 0)
        self.assertEqual([place for place, after in enumerate(asked[1:]) if not after], [20])

    def test_onIntervalIsCalled(self) -> None:
        """While nothing is ready."""
        calls: list[int] = []

        def interval() -> None:
            calls.append(1)
            if len(calls) == 3:
                self.backend.store_result("late", 1, states.SUCCESS)

        self.assertEqual(self.backend.wait_for("late", 60, 0.01, on_interval=interval)["result"], 1)
        self.assertGreaterEqual(len(calls), 3)

    def test_maxIterations(self) -> None:
        """Bound how often it is asked."""
        self.assertEqual(list(self.backend.get_many(["none"], interval=0.01, max_iterations=2)), [])

    def test_expiry(self) -> None:
        """Results live as long as Celery's settings say, failures perhaps shorter."""
        backend = self.make(changes={"result_expires": 3600, "result_failure_expires": 60})
        backend.store_result("good", 1, states.SUCCESS)
        backend.store_result("bad", KeyError(), states.FAILURE)
        times = {row["key"]: row["expires"] for row in backend._client.get().values()}
        difference = times["celery/task/good"] - times["celery/task/bad"]
        self.assertLess(abs(difference - 3_540_000), 3_000_000)
        never = self.make(changes={"result_expires": 0})
        never.store_result("never", 1, states.SUCCESS)
        self.assertIn(None, [row["expires"] for row in never._client.get().values()])

    def test_prefix(self) -> None:
        """Of several applications."""
        backend = self.make(changes={"result_backend_transport_options": {"global_keyprefix": "shop."}})
        backend.store_result("a", 1, states.SUCCESS)
        self.assertEqual([row["key"] for row in backend._client.get().values()], ["shop.celery/task/a"])
        self.assertEqual(AsyncResult("a", backend=backend).get(timeout=TIMEOUT), 1)

    def test_aBrokerThatWasAway(self) -> None:
        """Requests are repeated as the policy says."""
        self.backend.store_result("a", 1, states.SUCCESS)
        self.broker.stop()
        backend = self.make(changes={"result_backend_transport_options": {"retry_policy": {"max_retries": 1}}})
        self.assertRaises(ConnectionLost, backend.get, "a")

    def test_wrongRights(self) -> None:
        """Are the broker's words, at once."""
        self.assertRaises(RequestFailed, self.backend.set, "$sys/a", b"")

    def test_copies(self) -> None:
        """A backend can be pickled, as applications are."""
        self.backend.app.set_current()
        self.assertEqual(pickle.loads(pickle.dumps(self.backend)).url, self.backend.url)  # noqa: S301

    def test_theSchemeIsKnownToCelery(self) -> None:
        """By the entry point."""
        app = Celery("test", set_as_current=False, backend=self.backend.url)
        try:
            self.assertIsInstance(app.backend, ResultBackend)
        except ImproperlyConfigured:
            self.skipTest("FlexiMQ is not installed")

    def test_addresses(self) -> None:
        """Of a URL with credentials, of a cluster, of other kinds of connections."""
        credentials = {"type": "basic", "username": "a@b", "password": "p/w"}
        self.assertEqual(
            _addressOf("fleximq://a%40b:p%2Fw@one:1,two:2/"), ("tcp://one:1,two:2", {"credentials": credentials})
        )
        self.assertEqual(_addressOf("tls://one:1"), ("tls://one:1", {}))
        self.assertEqual(_addressOf("ipc:///run/f.sock"), ("ipc:///run/f.sock", {}))
        self.assertEqual(_addressOf("fleximq://"), ("tcp://localhost:7890", {}))
