"""The progress of a replay: a small file, written before each transaction, which is repeated first after a crash."""

import fcntl
import json
import os
import uuid
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fleximq.errors import systemReason
from fleximq.journal.files.file_system import Files, replaceFile
from fleximq.pipeline.errors import OptionRefused, PipelineError


@dataclass(slots=True)
class ReplayProgress:
    """``id`` names the transactions of a replay. ``ends`` has the end offset of each journal, None until it is known,
    ``total`` the number of rows up to there. The rows of ``journal`` from ``start`` up to ``stop`` are in transaction
    ``batch``; ``rows`` are in it and earlier ones. ``over``: the replay is complete.
    """

    #: The arguments of the replay, which must be the same when it continues.
    what: dict[str, Any]
    id: str = field(default_factory=lambda: f"replay-{uuid.uuid4()}")
    ends: dict[str, int] | None = None
    total: int = 0
    batch: int = 0
    journal: str = ""
    start: int = 0
    stop: int = 0
    rows: int = 0
    over: bool = False

    @property
    def begun(self) -> bool:
        """Whether a transaction may or may not have been published."""
        return self.batch > 0


class ReplayState:
    """The file of one replay, locked in a ``with`` statement; raises OptionRefused if that is impossible."""

    def __init__(self, folder: str, name: str, what: dict[str, Any]) -> None:
        self._folder = Path(folder)
        self._name = name
        self._what = what
        self._lock = -1

    def __enter__(self) -> ReplayProgress:
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(self._folder / f"{self._name}.lock", os.O_RDWR | os.O_CREAT, 0o644)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            raise OptionRefused(f"the replay {self._name} is running already") from None
        except OSError as error:
            raise PipelineError(f"the state in {self._folder} cannot be stored: {systemReason(error)}") from error
        try:
            return self._read()
        except BaseException:
            os.close(self._lock)
            raise

    def __exit__(self, *raised: object) -> None:
        os.close(self._lock)

    def _read(self) -> ReplayProgress:
        path = self._folder / f"{self._name}.json"
        try:
            found = ReplayProgress(**json.loads(path.read_text()))
        except FileNotFoundError:
            return ReplayProgress(self._what)
        except (OSError, ValueError, TypeError) as error:
            raise OptionRefused(f"the state of the replay in {path} cannot be read: {error}") from error
        if found.what != self._what:
            raise OptionRefused(f"the replay {self._name} was begun with other options: choose another --name")
        return found

    def write(self, progress: ReplayProgress) -> None:
        """Write the progress durably; raises PipelineError if the file cannot be written."""
        try:
            replaceFile(Files(), str(self._folder), f"{self._name}.json", json.dumps(asdict(progress)).encode())
        except OSError as error:
            raise PipelineError(f"the state in {self._folder} cannot be stored: {systemReason(error)}") from error
