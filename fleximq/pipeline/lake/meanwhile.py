"""Runs a function in a thread for the length of a block, such as compaction during an ingest."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread

from fleximq.pipeline.errors import PipelineError


@contextmanager
def meanwhile(name: str, work: Callable[[Event], None]) -> Iterator[None]:
    """Run ``work`` in a thread of this name during a ``with`` block, whose end sets the event and joins it."""
    ending = Event()
    thread = Thread(target=work, args=(ending,), name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ending.set()
        # The work completes its present change; a kill would do no harm.
        thread.join()


def whyFailed(error: Exception) -> str:
    """Return the text of an error, with its class if it is not one of ours or of the system."""
    isOurs = isinstance(error, (PipelineError, OSError))
    return str(error) if isOurs else f"{type(error).__name__}: {error}"
