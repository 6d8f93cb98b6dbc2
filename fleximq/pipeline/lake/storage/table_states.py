"""The state of a table in an object store, and who may change it.

All small files of a table are one document. Each change of any of them is a new object,
``_fleximq/state/<number>.json``, with the next number, created only if there is none: of several writers that read one
document, one creates the next. The highest number is the state; the other writers are refused, without a change. So a
writer that was paused, or cut off, and wakes an hour later can neither commit nor overwrite.

- Numbers far below the highest are deleted. A writer that is so late that its next number was deleted could create that
  number again. So after each creation the highest number is looked up: if it is ``KEPT`` or more ahead, the creation
  was too late and is refused. Readers do not see it, as they take the highest.
- A creation without an answer may still be carried out later. Before the same process reads or changes the table again,
  it creates that number itself; so the late request is refused by the store, or was carried out before and is read.
- An ingest, a compactor and a backfill *hold* the table under a name of their own in the document. The next of its kind
  replaces the name, so the former is refused at its next change: no clock is involved. Each stages files in a folder of
  its own, which the next one deletes.
- The object ``_fleximq/lock`` makes processes that change a table at the same time wait for each other, so that they
  need not be refused. Its process renews it; one that stays unchanged is removed: safety does not depend on it. A
  change that is refused nevertheless, as after a pause, can be made again.
"""

import json
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from fleximq.errors import systemReason
from fleximq.pipeline.errors import LakeRefused, TableBusy
from fleximq.pipeline.lake.meanwhile import meanwhile
from fleximq.pipeline.lake.storage.own_folder import OWN

#: The number of documents that stay.
KEPT = 100
_FOLDER, _LOCK, _ENDING = "state", "lock", ".json"
#: Seconds after which an unchanged lock is removed, and between two looks at it.
LEASE, _LOOK = 10.0, 0.1
#: Seconds to wait for the lock.
TIMEOUT = 60.0


@dataclass(frozen=True, slots=True)
class _State:
    """A document: its number, who holds the table, by kind, and the content of each small file, by name."""

    number: int = 0
    holders: Mapping[str, str] = field(default_factory=dict)
    own: Mapping[str, Any] = field(default_factory=dict)


class _Objects(Protocol):
    """The operations that are needed of a store."""

    isAlone: ClassVar[bool]

    def create(self, path: str, content: bytes) -> bool: ...

    def get(self, path: str) -> bytes: ...

    def put(self, path: str, content: bytes) -> None: ...

    def names(self, folder: str) -> list[str]: ...

    def remove(self, path: str) -> None: ...


class TableStates:
    """The states of the tables of one store, as one process reads and changes them."""

    def __init__(self, store: "_Objects", now: Callable[[], float], sleep: Callable[[float], None]) -> None:
        self._store, self._clock, self._sleep = store, now, sleep
        self._held = threading.local()
        #: By table and kind: the name under which this process holds it, and the thread that does.
        self._holds: dict[tuple[str, str], tuple[str, int]] = {}
        self._unknown: dict[str, int] = {}
        self._known: dict[str, _State] = {}
        self._probed: set[str] = set()

    def content(self, table: str, name: str) -> bytes:
        """Return the content of a small file of a table; raises FileNotFoundError if there is none."""
        own = self._now(table).own
        if name not in own:
            raise FileNotFoundError(f"{table}/{OWN}/{name}")
        return json.dumps(own[name]).encode()

    def write(self, table: str, name: str, content: bytes | None) -> None:
        """Replace a small file of a table, or remove it for None; raises LakeRefused if another holds the table, or
        changed it since it was locked.
        """
        with self._locked(table):
            state = self._now(table)
            left = {each: value for each, value in state.own.items() if each != name}
            added = {} if content is None else {name: json.loads(content)}
            self._change(table, _State(state.number + 1, state.holders, {**left, **added}))

    def holder(self, table: str, kind: str) -> str:
        """Return the name of this process as holder of a table, or else of the present one."""
        if (own := self._holds.get((table, kind))) is not None:
            return own[0]
        return self._now(table).holders.get(kind, "none")

    @contextmanager
    def holding(self, table: str, kind: str) -> Iterator[None]:
        """Hold a table, instead of the former holder of this kind, for the length of a ``with`` block."""
        name = uuid.uuid4().hex[:12]
        with self._locked(table):
            state = self._now(table)
            self._change(table, _State(state.number + 1, {**state.holders, kind: name}, state.own))
        own = name, threading.get_ident()
        self._holds[table, kind] = own
        try:
            yield
        finally:
            if self._holds.get((table, kind)) == own:
                del self._holds[table, kind]

    @contextmanager
    def locked(self, table: str, timeout: float = TIMEOUT) -> Iterator[None]:
        """Make others wait with their changes of a table; if one changes it nevertheless, the next change in the block
        is refused. Raises LakeRefused if another holds the table, or the lock for too long.
        """
        self._probe(table)
        path, own = f"{table}/{OWN}/{_LOCK}", uuid.uuid4().hex.encode()
        self._waitFor(table, path, own, timeout)
        try:
            with self._renewed(path):
                self._held.state = {**self._states(), table: self._latest(table)}
                self._check(table, self._held.state[table])
                yield
        finally:
            self._held.state = {each: state for each, state in self._states().items() if each != table}
            with suppress(OSError):
                self._store.remove(path)

    def _waitFor(self, table: str, path: str, own: bytes, timeout: float) -> None:
        other, since = b"", 0.0
        deadline = self._clock() + timeout
        while not self._store.create(path, own):
            now = self._clock()
            try:
                found = self._store.get(path)
            except FileNotFoundError:
                continue
            if found != other:
                other, since = found, now
            elif now - since >= LEASE:
                with suppress(FileNotFoundError):
                    self._store.remove(path)
                continue
            if now >= deadline:
                raise TableBusy(f"the table {table} is in use: it has been locked for {timeout:g} seconds")
            self._sleep(_LOOK)

    @contextmanager
    def _renewed(self, path: str) -> Iterator[None]:
        """Change a lock at intervals, so that others see that its process lives, however slow the store is."""

        def renew(ending: threading.Event) -> None:
            while not ending.wait(LEASE / 3):
                with suppress(OSError):
                    self._store.put(path, uuid.uuid4().hex.encode())

        # The thread ends with the block: a renewal after the removal would be a lock of nobody.
        with meanwhile("lock of a table", renew):
            yield

    def _states(self) -> dict[str, _State]:
        """Return the states of the tables that this thread has locked."""
        found: dict[str, _State] = getattr(self._held, "state", {})
        return found

    def _now(self, table: str) -> _State:
        return self._states().get(table) or self._latest(table)

    def _check(self, table: str, state: _State) -> None:
        """Raise LakeRefused if another process has replaced this one as a holder. Only a writer is checked in all
        threads: an ingest continues if another process compacts in place of its own compacting thread.
        """
        for (held, kind), (own, thread) in list(self._holds.items()):
            if held != table or (kind != "writer" and thread != threading.get_ident()):
                continue
            if state.holders.get(kind) != own:
                words = {"writer": "feeds it", "backfill": "fills it"}.get(kind, "compacts or redecodes it")
                who = "ingest" if kind == "writer" else "run"
                raise LakeRefused(f"the table {table} is in use: another {who} {words}")

    def _locked(self, table: str) -> AbstractContextManager[None]:
        """Lock a table, unless this thread has done so."""
        return nullcontext() if table in self._states() else self.locked(table)

    def _change(self, table: str, after: _State) -> None:
        if not self._isCreated(table, after):
            raise TableBusy(f"the table {table} is in use: another process changed it in the meantime")
        self._held.state = {**self._states(), table: after}

    def _latest(self, table: str) -> _State:
        if (number := self._unknown.get(table)) is not None:
            self._settle(table, number)
        while True:
            number = max(self._numbers(table), default=0)
            known = self._known.get(table)
            if number == 0:
                return _State()
            if known is not None and known.number == number:
                return known
            with suppress(FileNotFoundError):  # others have deleted this number meanwhile: look again
                found = self._read(table, number)
                self._known[table] = found
                return found

    def _read(self, table: str, number: int) -> _State:
        path = self._path(table, number)
        try:
            found = json.loads(self._store.get(path))
            return _State(number, found["holders"], found["own"])
        except (ValueError, KeyError, TypeError) as error:
            raise LakeRefused(f"{path} is damaged: {error}") from error

    def _settle(self, table: str, number: int) -> None:
        """Create the number of a creation without an answer, so that the outcome of that request is known."""
        before = max((each for each in self._numbers(table) if each < number), default=0)
        state = self._read(table, before) if before else _State()
        self._isCreated(table, _State(number, state.holders, state.own))
        del self._unknown[table]

    def _isCreated(self, table: str, state: _State) -> bool:
        """Create the object of a state; raises OSError if the outcome is unknown."""
        found = {"id": uuid.uuid4().hex, "holders": dict(state.holders), "own": dict(state.own)}
        try:
            isDone = self._store.create(self._path(table, state.number), json.dumps(found).encode())
            numbers = self._numbers(table)
        except OSError:
            self._unknown[table] = state.number
            raise
        if isDone and max(numbers, default=state.number) >= state.number + KEPT:
            return False
        if isDone:
            self._known[table] = state
            for number in sorted(numbers):
                if number <= state.number - KEPT:
                    with suppress(OSError):
                        self._store.remove(self._path(table, number))
        return isDone

    def _numbers(self, table: str) -> list[int]:
        names = self._store.names(f"{table}/{OWN}/{_FOLDER}")
        found = [name.removesuffix(_ENDING) for name in names]
        return [int(name) for name in found if name.isdigit()]

    def _path(self, table: str, number: int) -> str:
        return f"{table}/{OWN}/{_FOLDER}/{number:020d}{_ENDING}"

    def _probe(self, table: str) -> None:
        """Raise LakeRefused if the store creates an object although there is one already, or does not list it."""
        lake = table.rpartition("/")[0]
        if lake in self._probed or self._store.isAlone:
            return
        path = f"{table}/{OWN}/probe-{uuid.uuid4().hex}"
        try:
            isSafe = (
                self._store.create(path, b"1") and not self._store.create(path, b"2") and self._store.get(path) == b"1"
            )
            isListed = path.rpartition("/")[2] in self._store.names(f"{table}/{OWN}")
            self._store.remove(path)
        except OSError as error:
            raise LakeRefused(f"the lake {lake} cannot be written: {systemReason(error)}") from error
        if not isSafe:
            raise LakeRefused(
                f"the store of the lake {lake} replaces objects that are to be created only if there are none, so it "
                "cannot keep two writers apart: use another one, or --single-writer if only one process ever writes "
                "this lake"
            )
        if not isListed:
            raise LakeRefused(
                f"the store of the lake {lake} does not list what was written there: give the lake a name with fewer "
                "special characters"
            )
        self._probed.add(lake)
