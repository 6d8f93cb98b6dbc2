"""Values of a broker by their keys: clients put, get, delete and count them.

A value is any bytes. Each change of any value gives it a revision, a larger number than all before: a client may ask
that a value is changed only if it still has a revision, or does not exist. All values are durable if the broker has a
journal on disk; the memory then has only their keys, about 400 bytes for each.

Readers see what is stored: a change that waits for the disk is not seen. A value expires by the system clock.
"""

from array import array
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, TypeVar

from fleximq.broker.deadlines import Deadline, Deadlines
from fleximq.broker.envelope import ConnectedClient
from fleximq.broker.key_values.value_stores import ValueRecord, ValueStore
from fleximq.broker.owners import Owners
from fleximq.broker.timetable import Timetable
from fleximq.errors import BrokerError, Conflict, NotKept, TooManyRequests
from fleximq.values.sorted_names import SortedNames

#: Seconds between two looks at the system clock while values expire.
LOOK = 1.0
#: Maximum number of keys for whose values one client waits, 150 bytes of memory each.
MOST_WAITED = 10_000
#: Maximum number of reads of one client that are asked of the store at once, 8 MiB or one value each.
MOST_READS = 4
#: Maximum number of values that are removed in one turn of the reactor.
BATCH = 1000
#: A text that is greater than the rest of any key after a prefix.
_LAST = "\U0010ffff"


class Held(NamedTuple):
    """A value without its content. ``expires``: milliseconds since 1970, 0: never. ``owner``: the index of the
    principal that has put it.
    """

    revision: int
    expires: int
    owner: int


class Value(NamedTuple):
    """A value as a reader gets it."""

    revision: int
    content: bytes


#: Receives the new revision, or why the value is not changed.
OnPut = Callable[[int | BrokerError], None]
#: Receives the values that exist by their keys, and the keys that were not looked at.
OnValues = Callable[[Mapping[str, Value], Sequence[str]], None]


@dataclass(eq=False, slots=True)
class _Waiting:
    """A reader that waits until one of these keys has a value with a larger revision than ``after``."""

    client: ConnectedClient
    keys: Sequence[str]
    after: int
    found: OnValues
    deadline: Deadline | None = None


@dataclass(eq=False, slots=True)
class _Reads:
    """The reads of one client: how many are asked of the store, and keys, ``after`` and callback of the later ones."""

    inStore: int = 0
    isBeginning: bool = False
    later: deque[tuple[Sequence[str], int, OnValues]] = field(default_factory=deque)


class KeyValues:
    """All values of a broker.

    :param owners: counts the values of each principal.
    :param milliseconds: returns the milliseconds since 1970, rounded down.
    :param isOpen: whether changes can be stored already, without :meth:`begin`.
    """

    def __init__(
        self, store: ValueStore, owners: Owners, deadlines: Deadlines, milliseconds: Callable[[], int], isOpen: bool
    ) -> None:
        self.owners = owners
        self._store = store
        self._deadlines = deadlines
        self._now = milliseconds
        self._held: dict[str, Held] = {}
        self._keys: dict[int, str] = {}
        self._names = SortedNames()
        self._expiries = Timetable()
        self._look: Deadline | None = None
        self._isOpen = isOpen
        #: Those who wait for a value, by its key and by client.
        self._readers: dict[str, dict[_Waiting, None]] = {}
        self._waiting: dict[ConnectedClient, dict[_Waiting, None]] = {}
        #: For each client that reads: the number of its reads in the store, and the ones after them.
        self._reads: dict[ConnectedClient, _Reads] = {}

    def __len__(self) -> int:
        """Return the number of values, including expired ones that are not removed yet."""
        return len(self._held)

    def page(self, prefix: str, limit: int, start: str) -> list[str]:
        """Return the first keys with this prefix from ``start`` on, at most ``limit``."""
        return self._names.page(limit, max(start, prefix), prefix and prefix + _LAST)

    def count(self, prefix: str) -> int:
        """Return the number of keys with this prefix, including expired ones that are not removed yet."""
        return self._names.count(prefix, prefix + _LAST)

    def held(self, key: str) -> Held | None:
        """Return revision, time and owner of a value, None if it does not exist or has expired."""
        found = self._held.get(key)
        return None if found is None or 0 < found.expires <= self._now() else found

    # -- reading ---------------------------------------------------------------------------------------

    def get(self, client: ConnectedClient, keys: Sequence[str], after: int, found: OnValues) -> None:
        """Read the values with a larger revision than ``after``, about 8 MiB of them at once; ``found`` is called,
        perhaps before this returns, and perhaps never after :meth:`leave`.
        """
        reads = self._reads.setdefault(client, _Reads())
        reads.later.append((keys, after, found))
        self._readOn(client, reads)

    def _readOn(self, client: ConnectedClient, reads: "_Reads") -> None:
        """Begin the next reads of a client; also called by each that ends, perhaps at once."""
        if reads.isBeginning:
            return
        reads.isBeginning = True
        while reads.later and reads.inStore < MOST_READS:
            keys, after, found = reads.later.popleft()
            reads.inStore += 1
            self.read(keys, after, partial(self._hasRead, client, reads, found))
        reads.isBeginning = False
        if not reads.inStore and self._reads.get(client) is reads:
            del self._reads[client]

    def _hasRead(
        self,
        client: ConnectedClient,
        reads: "_Reads",
        found: OnValues,
        values: Mapping[str, Value],
        rest: Sequence[str],
    ) -> None:
        reads.inStore -= 1
        found(values, rest)
        self._readOn(client, reads)

    def read(self, keys: Sequence[str], after: int, found: OnValues) -> None:
        """Read values as :meth:`get` does, for the broker itself: ``found`` is called in any case."""
        there = {held.revision: key for key in keys if (held := self._newer(key, after)) is not None}

        def read(contents: Mapping[int, bytes], unread: Sequence[int]) -> None:
            values = {there[revision]: Value(revision, content) for revision, content in contents.items()}
            later = frozenset(unread)
            # One that was read and is missing was replaced since, or its record is damaged.
            missing = (each for each in there if each not in contents and (each in later or each not in self._keys))
            found(values, [there[each] for each in missing if self.held(there[each]) is not None])

        if there:
            self._store.read(list(there), read)
        else:
            found({}, ())

    def _newer(self, key: str, after: int) -> Held | None:
        held = self.held(key)
        return None if held is None or held.revision <= after else held

    def wait(self, client: ConnectedClient, keys: Sequence[str], after: int, seconds: float, found: OnValues) -> None:
        """Read values as :meth:`get` does, as soon as there is one, after so many seconds at the latest. ``found`` is
        not called after :meth:`leave`. Raises TooManyRequests if the client waits for :data:`MOST_WAITED` keys already.
        """
        if any(self._newer(key, after) is not None for key in keys):
            self.get(client, keys, after, found)
            return
        waiting = _Waiting(client, tuple(dict.fromkeys(keys)), after, found)
        if len(waiting.keys) + sum(len(each.keys) for each in self._waiting.get(client, ())) > MOST_WAITED:
            raise TooManyRequests(f"a client waits for at most {MOST_WAITED} values at once")
        waiting.deadline = self._deadlines.callLater(seconds, partial(self._give, waiting))
        for key in waiting.keys:
            self._readers.setdefault(key, {})[waiting] = None
        self._waiting.setdefault(client, {})[waiting] = None

    def leave(self, client: ConnectedClient) -> None:
        """Let a client wait no more, and read no more."""
        reads = self._reads.pop(client, None)
        if reads is not None:
            reads.later.clear()
        for waiting in list(self._waiting.get(client, ())):
            self._forget(waiting)

    def _give(self, waiting: _Waiting) -> None:
        self._forget(waiting)
        self.get(waiting.client, waiting.keys, waiting.after, waiting.found)

    def _forget(self, waiting: _Waiting) -> None:
        if waiting.deadline is not None:
            waiting.deadline.cancel()
        for key in waiting.keys:
            _discard(self._readers, key, waiting)
        _discard(self._waiting, waiting.client, waiting)

    # -- changes, one at a time for each key: :mod:`fleximq.broker.key_values.changes` ----------------

    def check(self, key: str, revision: int | None) -> Held | None:
        """Return revision, time and owner of a value; raises Conflict if it has not this revision."""
        held = self.held(key)
        present = 0 if held is None else held.revision
        if revision is None or revision == present:
            return held
        if held is None:
            raise Conflict(f"there is no value of {key!r}")
        raise Conflict(f"the value of {key!r} has the revision {present}")

    def store(self, client: ConnectedClient, key: str, content: bytes, expires: int, stored: OnPut) -> None:
        """Store a value in place of any other of its key.

        :param expires: milliseconds since 1970, 0: never.
        :param stored: called with the revision, or with NotKept if the journal cannot store it; perhaps before this
            returns.
        :raises TooManyRequests: and NoCapacity, see :meth:`Owners.claim`; NotKept: the journal stores nothing at
            present, or the memory for values is full.
        """
        principal, present = client.principal, self._held.get(key)
        isMine = present is not None and self.owners.name(present.owner) == principal
        # A value that replaces one of the same principal is within the limits.
        owner = self.owners.add(principal, 1) if isMine else self.owners.claim(principal, 1)

        def decided(revision: int, reason: str | None) -> None:
            if reason is not None:
                self.owners.release(owner)
                stored(NotKept(reason))
                return
            self._hold(key, Held(revision, expires, owner))
            # Before a later change of the key, which may remove the value.
            if key in self._readers and self.held(key) is not None:
                for waiting in [each for each in self._readers[key] if each.after < revision]:
                    self._give(waiting)
            stored(revision)

        try:
            self._store.write(client, key, content, expires, decided)
        except BrokerError:
            self.owners.release(owner)
            raise

    def remove(self, key: str) -> None:
        """Remove a value that exists."""
        self._store.remove([self._drop(key)])

    def _hold(self, key: str, held: Held) -> None:
        """Add a value to the tables, in place of any other of its key."""
        if key in self._held:
            self._store.replaced(self._drop(key))
        self._names.add(key)
        self._held[key] = held
        self._keys[held.revision] = key
        if held.expires:
            self._expiries.add(held.expires, held.revision, held.owner)
            self._arm()

    def _drop(self, key: str) -> int:
        """Forget a value, and return its revision."""
        held = self._held.pop(key)
        del self._keys[held.revision]
        self._names.remove(key)
        if held.expires:
            self._expiries.remove(held.expires, held.revision)
        self.owners.release(held.owner)
        return held.revision

    # -- time ------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Begin to remove expired values: the journal stores changes now."""
        self._isOpen = True
        self._arm()

    def _arm(self) -> None:
        if self._isOpen and self._look is None and len(self._expiries):
            self._look = self._deadlines.callLater(LOOK, self._expire)

    def _expire(self) -> None:
        """Remove values that have expired."""
        self._look = None
        taken = self._expiries.takeDue(self._now(), BATCH)
        for revision in taken.numbers:
            self._drop(self._keys[revision])
        if taken.size:
            self._store.remove(taken.numbers)
        if taken.size == BATCH:
            self._look = self._deadlines.callLater(0, self._expire)
        else:
            self._arm()

    # -- restarts --------------------------------------------------------------------------------------

    def needed(self) -> "array[int]":
        """Return the offsets of the records that are needed, in any order."""
        return array("Q", self._keys)

    def snapshot(self) -> dict[str, Any]:
        """Return all values for a restart, without their contents, as MessagePack values."""
        rows = self._held.values()
        columns = [[getattr(each, name) for each in rows] for name in Held._fields]
        return {"keys": list(self._held), "columns": columns, "owners": list(self.owners.names)}

    def restore(self, snapshot: Mapping[str, Any] | None) -> None:
        """Continue with the values of a :meth:`snapshot`; None: that of a broker without values."""
        if snapshot is None:
            return
        rows = [Held(*row) for row in zip(*snapshot["columns"], strict=True)]
        self.owners.load(snapshot["owners"], Counter([each.owner for each in rows]))
        for key, held in zip(snapshot["keys"], rows, strict=True):
            self._hold(key, held)

    def learn(self, records: Iterable[ValueRecord]) -> None:
        """Learn values that were stored after the snapshot, in the order of the journal."""
        for revision, key, expires, principal in records:
            self._hold(key, Held(revision, expires, self.owners.add(principal, 1)))

    def unlearn(self, revisions: Iterable[int]) -> None:
        """Forget values that were removed after the snapshot."""
        for revision in revisions:
            if revision in self._keys:
                self._drop(self._keys[revision])


_K = TypeVar("_K")


def _discard(table: dict[_K, dict[_Waiting, None]], key: _K, waiting: _Waiting) -> None:
    readers = table[key]
    del readers[waiting]
    if not readers:
        del table[key]
