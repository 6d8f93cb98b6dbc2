"""The loop of kills with taskiq: ``python -m tests.integrations.taskiq_loop --kills 50``."""

import asyncio
import sys
import threading
from collections.abc import Sequence
from os import environ

from taskiq.kicker import AsyncKicker

from fleximq.client.backoff import Backoff
from fleximq.integrations.taskiq import FleximqBroker
from tests.integrations import kill_loop

#: The variable with the URL of the broker.
_URL = "FLEXIMQ_LOOP_URL"

broker = FleximqBroker(environ.get(_URL, "tcp://localhost:7890"), "loop", max_unsettled=8)
_loop = asyncio.new_event_loop()
#: It ends some seconds after the loop of kills.
_RECONNECT = Backoff(first=0.1, most=1.0, attempts=20)
_publishers: dict[int, FleximqBroker] = {}


@broker.task(task_name="run")
def run(number: int) -> None:
    """Run a task of the loop, in a thread."""
    kill_loop.record(number)


def command(port: int) -> Sequence[str]:
    """Return the command of a worker."""
    module = "tests.integrations.taskiq_loop:broker"
    url = f"{_URL}=tcp://127.0.0.1:{port}"
    return ["env", url, sys.executable, "-m", "taskiq", "worker", module, "--workers", "1"]


async def _publish(port: int, number: int, delay: float) -> None:
    if port not in _publishers:
        publisher = FleximqBroker(f"tcp://127.0.0.1:{port}", "loop", reconnect=_RECONNECT)
        await publisher.startup()
        _publishers[port] = publisher
    labels = {"delay": delay} if delay else {}
    await AsyncKicker("run", _publishers[port], labels).kiq(number)


def publish(port: int, number: int, delay: float) -> None:
    """Publish a task, in the thread of an event loop that goes on after this."""
    if not _loop.is_running():
        threading.Thread(target=_loop.run_forever, daemon=True).start()
    asyncio.run_coroutine_threadsafe(_publish(port, number, delay), _loop).result()


if __name__ == "__main__":
    sys.exit(kill_loop.main(__doc__, command, publish))
