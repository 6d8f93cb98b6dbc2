"""Changes of values: those of one key are made one after the other, each when the one before it is on disk.

Additions to a number that wait together are stored together if their clients have the same principal, so a counter is
not limited to one addition for each commit.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgpack

from fleximq.broker.envelope import ConnectedClient
from fleximq.broker.key_values.key_values import KeyValues, OnPut, Value
from fleximq.errors import BrokerError, Conflict, NoCapacity

#: The least and the largest number to which clients can add: those of 64 bits with a sign.
LEAST, MOST = -(1 << 63), (1 << 63) - 1
#: Maximum bytes of a whole number in MessagePack; longer values are not decoded.
_NUMBER_BYTES = 9
#: Approximate bytes of a change besides the content of a value.
_CHANGE_BYTES = 500
#: Maximum bytes of all changes that wait until an earlier change of their key is stored.
MOST_WAITING = 64 << 20

#: Receives True if there was a value, which is removed, or why it is not removed.
OnDeleted = Callable[[bool | BrokerError], None]


class Changes:
    """Changes the values of a broker. The callbacks are called once, perhaps before a method returns.

    :param onError: receives unexpected errors, of callbacks too; later changes of the key go on.
    """

    def __init__(self, values: KeyValues, onError: Callable[[Exception], None]) -> None:
        self._values = values
        self._onError = onError
        #: The changes that wait for one of their key that is being stored.
        self._following: dict[str, deque[_Change]] = {}
        self._bytes = 0

    def put(
        self, client: ConnectedClient, key: str, content: bytes, expires: int, revision: int | None, done: OnPut
    ) -> None:
        """Store a value in place of any other of its key.

        :param expires: milliseconds since 1970, 0: never.
        :param revision: change only a value that has this revision; 0: only if there is none.
        :param done: called with the new revision, or with Conflict, or an error of :meth:`KeyValues.store`.
        :raises NoCapacity: too many changes wait for others of their keys, as the other methods too.
        """
        self._make(_Put(key, client, revision, done, content, expires))

    def add(self, client: ConnectedClient, key: str, number: int, expires: int | None, done: OnPut) -> None:
        """Add to a number in MessagePack; without a value it is 0.

        :param expires: as of :meth:`put`; None: as it is, and never for a new value.
        :param done: called with the sum; or with Conflict if the value is no number or the sum has more than 64 bits,
            or with an error of :meth:`KeyValues.store`.
        """
        self._make(_Add(key, client, expires, [(number, done)]))

    def delete(self, key: str, revision: int | None, done: OnDeleted) -> None:
        """Remove a value, or only one that has this revision; ``done`` is called with True if there was one, or with
        Conflict.
        """
        self._make(_Delete(key, revision, done))

    def _make(self, change: "_Change") -> None:
        following = self._following.get(change.key)
        if following is None:
            self._bytes += change.size
            self._following[change.key] = deque([change])
            self._continue(change.key)
            return
        if self._bytes + change.size > MOST_WAITING:
            raise NoCapacity(f"changes of values that wait for earlier ones may have {MOST_WAITING} bytes")
        self._bytes += change.size
        if not (following and following[-1].merge(change)):
            following.append(change)

    def _continue(self, key: str) -> None:
        """Make the waiting changes of a key one after the other; this goes on when one that takes time has ended. There
        is an empty deque while the only change of a key is being made.
        """
        following = self._following[key]
        while following:
            step = _Step(partial(self._continue, key))
            change = following.popleft()
            self._bytes -= change.size
            try:
                change.make(self._values, step.end)
            except Exception as error:
                self._onError(error)
                step.end()
            if step.takesTime():
                return
        del self._following[key]


class _Step:
    """One change that is being made. If it takes time, ``go`` is called at its end; one that ends at once must not call
    it, since the loop that makes the changes would call itself.
    """

    def __init__(self, go: Callable[[], None]) -> None:
        self._go = go
        self._hasEnded = False
        self._isAwaited = False

    def end(self) -> None:
        """The change is made or refused."""
        self._hasEnded = True
        if self._isAwaited:
            self._go()

    def takesTime(self) -> bool:
        """Return whether it has not ended yet."""
        self._isAwaited = not self._hasEnded
        return self._isAwaited


@dataclass(eq=False, slots=True)
class _Change(ABC):
    """A change of the value of one key."""

    key: str

    @property
    def size(self) -> int:
        """Approximate bytes of memory while it waits."""
        return _CHANGE_BYTES

    @abstractmethod
    def make(self, values: KeyValues, end: Callable[[], None]) -> None:
        """Make it; ``end`` is called when it is made or refused."""

    def merge(self, change: "_Change") -> bool:
        """Take over a later change, if both can be made together, and return whether they can."""
        return False


@dataclass(eq=False, slots=True)
class _Put(_Change):
    client: ConnectedClient
    revision: int | None
    done: OnPut
    content: bytes
    expires: int

    @property
    def size(self) -> int:
        """With its content."""
        return _CHANGE_BYTES + len(self.content)

    def make(self, values: KeyValues, end: Callable[[], None]) -> None:
        def stored(result: int | BrokerError) -> None:
            try:
                self.done(result)
            finally:
                end()

        try:
            values.check(self.key, self.revision)
            values.store(self.client, self.key, self.content, self.expires, stored)
        except BrokerError as error:
            stored(error)


@dataclass(eq=False, slots=True)
class _Delete(_Change):
    revision: int | None
    done: OnDeleted

    def make(self, values: KeyValues, end: Callable[[], None]) -> None:
        try:
            exists = values.check(self.key, self.revision) is not None
        except BrokerError as error:
            self.done(error)
        else:
            if exists:
                values.remove(self.key)
            self.done(exists)
        end()


@dataclass(eq=False, slots=True)
class _Add(_Change):
    client: ConnectedClient
    expires: int | None
    numbers: list[tuple[int, OnPut]]

    @property
    def size(self) -> int:
        """Of all that were merged."""
        return _CHANGE_BYTES * len(self.numbers)

    def merge(self, change: _Change) -> bool:
        if not isinstance(change, _Add) or change.expires != self.expires:
            return False
        if change.client.principal != self.client.principal:  # one of them would own the value of both
            return False
        self.numbers += change.numbers
        return True

    def make(self, values: KeyValues, end: Callable[[], None]) -> None:
        held = values.held(self.key)
        expires = self.expires if self.expires is not None else held.expires if held is not None else 0

        def found(read: Mapping[str, Value], rest: Sequence[str]) -> None:
            try:
                if self.key not in read and values.held(self.key) is not None:
                    raise Conflict(f"the value of {self.key!r} cannot be read: its record in the journal is damaged")
                present = _number(self.key, read)
            except Conflict as error:
                self._tell([error] * len(self.numbers), end)
                return
            self._store(values, present, expires, end)

        values.read([self.key], 0, found)

    def _store(self, values: KeyValues, present: int, expires: int, end: Callable[[], None]) -> None:
        results: list[int | BrokerError] = []
        for number, _ in self.numbers:
            if LEAST <= present + number <= MOST:
                present += number
                results.append(present)
            else:
                results.append(Conflict(f"the number {self.key!r} would have more than 64 bits"))

        def stored(result: int | BrokerError) -> None:
            refused = isinstance(result, BrokerError)
            self._tell([result] * len(results) if refused else results, end)

        if all(isinstance(each, BrokerError) for each in results):
            self._tell(results, end)
            return
        try:
            values.store(self.client, self.key, msgpack.packb(present), expires, stored)
        except BrokerError as error:
            stored(error)

    def _tell(self, results: Sequence[int | BrokerError], end: Callable[[], None]) -> None:
        try:
            for (_, done), result in zip(self.numbers, results, strict=True):
                done(result)
        finally:
            end()


def _number(key: str, values: Mapping[str, Value]) -> int:
    """Return the number that a value is, 0 without a value; raises Conflict."""
    if key not in values:
        return 0
    content = values[key].content
    try:
        found: Any = msgpack.unpackb(content) if len(content) <= _NUMBER_BYTES else None
    except ValueError:
        found = None
    if not isinstance(found, int) or isinstance(found, bool):
        raise Conflict(f"the value of {key!r} is no whole number")
    return found
