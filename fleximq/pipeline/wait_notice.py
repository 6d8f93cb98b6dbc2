"""Says what a command or a reader waits for, once the wait is no longer short."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Timer

#: Seconds of silence.
SILENCE = 3.0


@contextmanager
def waitNotice(sentence: Callable[[], str], say: Callable[[str], None]) -> Iterator[None]:
    """Call ``say`` with a sentence, on another thread, if the block takes longer than :data:`SILENCE`; costs 0.1 ms."""
    timer = Timer(SILENCE, lambda: say(sentence()))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
