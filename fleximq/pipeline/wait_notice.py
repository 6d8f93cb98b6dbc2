"""Says what a command or a reader waits for, once the wait is no longer short."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Timer

#: Seconds after which a wait is reported, unless a caller says otherwise.
SILENCE = 3.0


@contextmanager
def waitNotice(sentence: Callable[[], str], say: Callable[[str], None], silence: float | None = None) -> Iterator[None]:
    """Call ``say`` with a sentence, on another thread, after ``silence`` seconds in the block (:data:`SILENCE`); costs
    0.1 ms.
    """
    timer = Timer(SILENCE if silence is None else silence, lambda: say(sentence()))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
