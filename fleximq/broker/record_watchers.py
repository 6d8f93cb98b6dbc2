"""Those who look on while publications go through the journal: extensions that measure how long that takes.

Where there are none, a run costs one look at an empty list. A broken one hurts nobody: what it raises is given to
``onError``.
"""

from collections.abc import Callable
from typing import Any

from fleximq.interfaces import IRecordWatcher


class RecordWatchers:
    """All of a broker; false while there are none.

    :param onError: is given what a watcher raised.
    """

    def __init__(self, onError: Callable[[Exception], None]) -> None:
        self._watchers: list[IRecordWatcher] = []
        self._onError = onError

    def __bool__(self) -> bool:
        return bool(self._watchers)

    def add(self, watcher: IRecordWatcher) -> None:
        """Tell this one from now on."""
        self._watchers.append(watcher)

    def remove(self, watcher: IRecordWatcher) -> None:
        """Tell it no more.

        :raises ValueError: it was not there.
        """
        self._watchers.remove(watcher)

    def appended(self, envelope: Any, body: Any, count: int) -> None:
        """Tell all of a run that is about to be given to the journal."""
        self._tell("appended", envelope, body, count)

    def decided(self, envelope: Any, body: Any, count: int, reason: str | None) -> None:
        """Tell all what became of it."""
        self._tell("decided", envelope, body, count, reason)

    def _tell(self, event: str, *arguments: Any) -> None:
        for watcher in tuple(self._watchers):
            try:
                getattr(watcher, event)(*arguments)
            except Exception as error:
                self._onError(error)
