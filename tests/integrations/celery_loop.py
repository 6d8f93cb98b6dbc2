"""The loop of kills with Celery: ``python -m tests.integrations.celery_loop --kills 50``."""

import sys
from collections.abc import Sequence
from os import environ
from typing import Any

from celery import Celery

import fleximq.integrations.kombu  # noqa: F401  # registers the scheme
from tests.integrations import kill_loop

#: The variable with the URL of the broker.
_URL = "FLEXIMQ_LOOP_URL"

app = Celery("loop", broker=environ.get(_URL, "fleximq://localhost"), backend=environ.get(_URL), set_as_current=False)
app.conf.update(task_acks_late=True, task_reject_on_worker_lost=True, broker_connection_max_retries=None)
_publishers: dict[int, Any] = {}


@app.task(name="loop.run", shared=False)
def run(number: int) -> int:
    """Run a task of the loop."""
    kill_loop.record(number)
    return number


def command(port: int) -> Sequence[str]:
    """Return the command of a worker."""
    module = "tests.integrations.celery_loop"
    options = ("--concurrency", "2", "--loglevel", "warning", "--without-gossip", "--without-mingle")
    url = f"{_URL}=fleximq://127.0.0.1:{port}"
    return ["env", url, sys.executable, "-m", "celery", "-A", module, "worker", *options]


def publish(port: int, number: int, delay: float) -> None:
    """Publish a task."""
    if port not in _publishers:
        _publishers[port] = Celery("loop", broker=f"fleximq://127.0.0.1:{port}", set_as_current=False)
    options = {"countdown": delay} if delay else {}
    _publishers[port].send_task("loop.run", (number,), retry=False, **options)


if __name__ == "__main__":
    sys.exit(kill_loop.main(__doc__, command, publish))
