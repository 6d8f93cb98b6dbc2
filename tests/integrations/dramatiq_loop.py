"""The loop of kills with dramatiq: ``python -m tests.integrations.dramatiq_loop --kills 50``."""

import sys
from collections.abc import Sequence
from os import environ

import dramatiq
from dramatiq.message import Message

from fleximq.integrations.dramatiq import FleximqBroker
from tests.integrations import kill_loop

#: The variable with the URL of the broker.
_URL = "FLEXIMQ_LOOP_URL"
_QUEUE = "loop"

broker = FleximqBroker(environ.get(_URL, "tcp://localhost:7890"))
dramatiq.set_broker(broker)
_publishers: dict[int, FleximqBroker] = {}


@dramatiq.actor(actor_name="run", queue_name=_QUEUE)
def run(number: int) -> None:
    """Run a task of the loop."""
    kill_loop.record(number)


def command(port: int) -> Sequence[str]:
    """Return the command of a worker."""
    module = "tests.integrations.dramatiq_loop"
    variables = (f"{_URL}=tcp://127.0.0.1:{port}", "dramatiq_restart_delay=100")
    return ["env", *variables, sys.executable, "-m", "dramatiq", module, "--processes", "1", "--threads", "4"]


def publish(port: int, number: int, delay: float) -> None:
    """Publish a task. One with a delay gets a new connection: if another was lost unnoticed, the task would be sent
    again and perhaps be there twice.
    """
    publisher = _publishers.setdefault(port, FleximqBroker(f"tcp://127.0.0.1:{port}"))
    if delay:
        publisher.close()
    message = Message(queue_name=_QUEUE, actor_name="run", args=(number,), kwargs={}, options={})
    publisher.enqueue(message, delay=int(delay * 1000) + 1 if delay else None)


if __name__ == "__main__":
    sys.exit(kill_loop.main(__doc__, command, publish))
