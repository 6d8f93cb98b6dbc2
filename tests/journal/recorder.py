"""A disk in memory that knows which of its bytes and names a power loss would leave, and rebuilds what it could leave.

It has the operations of :class:`fleximq.journal.files.file_system.Files`, and keeps a list of those that change
something. For
every prefix of this list :func:`crashes` gives disks as they may look when the power comes back: what was synced is
there; of what was written since, any 512 bytes are there or not, in any order; names that were made, changed or taken
away since their folder was synced have, or have not, become what they were to be.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, cast

from fleximq.journal.files.file_system import Files

#: What a disk writes whole, or not at all.
SECTOR = 512
#: The number of the folder itself among all files; a name for it is a name in the folder above.
_FOLDER = -1


class _Memory(bytearray):
    """Bytes that pass for a mapped file."""

    def close(self) -> None:
        """Nothing is open."""


@dataclass
class Change:
    """One operation: what was done, to which file (a number that it keeps under all its names) or names.

    ``site`` is the code that asked for it, for syncs.
    """

    what: str
    file: int = 0
    position: int = 0
    bytes: bytes = b""
    name: str = ""
    other: str = ""
    site: str = ""


@dataclass
class State:
    """Files by number, and their numbers by name; what is there after a power loss, or could be seen before it."""

    files: dict[int, bytes] = field(default_factory=dict)
    names: dict[str, int] = field(default_factory=dict)

    def copy(self) -> "State":
        """Return another one with the same files and names."""
        return State(dict(self.files), dict(self.names))


class Recorder(Files):
    """The disk; ``changes`` is what was done to it since it was made.

    ``failing``, if it is ``write`` or ``sync``, lets the next of these fail: half of what should be written is, or
    what should be synced never is by any later sync.

    :param state: what is on it at the beginning, all of it synced.
    :param broken: sites whose syncs do nothing.
    """

    def __init__(self, state: State | None = None, broken: frozenset[str] = frozenset()) -> None:
        self.begun = (state or State()).copy()
        self.changes: list[Change] = []
        self.sites: set[str] = set()
        self._broken = broken
        self.failing = ""
        self._files = {number: bytearray(content) for number, content in self.begun.files.items()}
        self._names = dict(self.begun.names)
        self._next = max(self._files, default=0) + 1
        self._open: dict[int, int] = {}
        self._descriptor = 100

    def now(self) -> State:
        """Return what can be seen: what a process leaves that is killed."""
        return State({number: bytes(content) for number, content in self._files.items()}, dict(self._names))

    def _opened(self, number: int) -> int:
        self._descriptor += 1
        self._open[self._descriptor] = number
        return self._descriptor

    def _known(self, path: str) -> int:
        if path not in self._names:
            raise FileNotFoundError(2, "No such file or directory", path)
        return self._names[path]

    def _make(self, path: str) -> int:
        number, self._next = self._next, self._next + 1
        self._files[number] = bytearray()
        self._names[path] = number
        self.changes.append(Change("name", number, name=path))
        return number

    # -- descriptors -------------------------------------------------------------------------------

    def create(self, path: str) -> int:
        """Make a file."""
        if path in self._names:
            raise FileExistsError(17, "File exists", path)
        return self._opened(self._make(path))

    def open(self, path: str, write: bool = False) -> int:
        """Open a file."""
        return self._opened(self._known(path))

    def openLock(self, path: str) -> int:
        """Open a file, or make it."""
        return self._opened(self._names[path] if path in self._names else self._make(path))

    def close(self, descriptor: int) -> None:
        """Close a file."""
        del self._open[descriptor]

    def write(self, descriptor: int, buffers: Sequence[bytes | bytearray | memoryview], position: int) -> int:
        """Write all."""
        content = b"".join(buffers)
        number = self._open[descriptor]
        failed = self._fails("write")
        if failed:
            content = content[: len(content) // 2]
        _put(self._files[number], position, content)
        self.changes.append(Change("write", number, position, content))
        if failed:
            raise OSError(28, "No space left on device")
        return len(content)

    def beginSync(self, descriptor: int, start: int, size: int) -> None:
        """What is written may be on the disk at any time."""

    def _fails(self, what: str) -> bool:
        if self.failing != what:
            return False
        self.failing = ""
        return True

    def read(self, descriptor: int, size: int, position: int) -> bytes:
        """Read what was written."""
        return bytes(self._files[self._open[descriptor]][position : position + size])

    def sync(self, descriptor: int) -> None:
        """Let a file's content outlive a power loss."""
        if self._fails("sync"):
            self.changes.append(Change("failed", self._open[descriptor]))
            raise OSError(5, "Input/output error")
        self._sync(Change("sync", self._open[descriptor]))

    def truncate(self, descriptor: int, size: int) -> None:
        """Cut or lengthen a file."""
        number = self._open[descriptor]
        _cut(self._files[number], size)
        self.changes.append(Change("truncate", number, size))

    def size(self, descriptor: int) -> int:
        """Return the length of a file."""
        return len(self._files[self._open[descriptor]])

    def isGone(self, descriptor: int) -> bool:
        """Tell whether no name leads to it."""
        return self._open[descriptor] not in self._names.values()

    def lock(self, descriptor: int) -> bool:
        """Nobody else is there."""
        return True

    def map(self, descriptor: int, size: int) -> Any:
        """Return memory that is never written back."""
        return _Memory(size)

    # -- names -------------------------------------------------------------------------------------

    def exists(self, path: str) -> bool:
        """Tell whether there is something of this name."""
        return path in self._names

    def isFolder(self, path: str) -> bool:
        """Tell whether there is a folder of this name."""
        return self._names.get(path) == _FOLDER

    def makeFolder(self, path: str) -> None:
        """Make a folder."""
        self._names[path] = _FOLDER
        self.changes.append(Change("name", _FOLDER, name=path))

    def names(self, path: str) -> list[str]:
        """Return the names in a folder."""
        return sorted(name[len(path) + 1 :] for name in self._names if name.startswith(f"{path}/"))

    def rename(self, old: str, new: str) -> None:
        """Give a file another name."""
        number = self._names[new] = self._known(old)
        del self._names[old]
        self.changes.append(Change("rename", number, name=old, other=new))

    def remove(self, path: str) -> None:
        """Take a name away."""
        self._known(path)
        del self._names[path]
        self.changes.append(Change("remove", name=path))

    def syncFolder(self, path: str) -> None:
        """Let the names in a folder outlive a power loss."""
        self._sync(Change("syncFolder", name=path))

    def _sync(self, change: Change) -> None:
        change.site = f"{change.what} in {_site()}"
        self.sites.add(change.site)
        if change.site not in self._broken:
            self.changes.append(change)


def _site() -> str:
    """Return which code asked for a sync: the function, and the one that called it."""
    frame = sys._getframe(3)
    caller = cast(Any, frame.f_back)
    return f"{frame.f_code.co_qualname} for {caller.f_code.co_qualname}"


class Crash:
    """What a power loss leaves behind a prefix of a recorder's changes; :meth:`step` goes on by one."""

    def __init__(self, recorder: Recorder) -> None:
        self._changes = recorder.changes
        self.done = 0
        self._safe = recorder.begun.copy()
        # What happened to a file since all of it was safe: True: it is on disk; False: nobody will ever know, for a
        # sync failed; None: the next sync brings it there.
        self._written: dict[int, list[tuple[Change, bool | None]]] = {}
        self._named: list[Change] = []

    def step(self) -> None:
        """Let one more change have happened."""
        change = self._changes[self.done]
        self.done += 1
        if change.what in ("write", "truncate"):
            self._written.setdefault(change.file, []).append((change, None))
        elif change.what in ("sync", "failed"):
            self._syncIfDue(change.file, change.what == "sync")
        elif change.what == "syncFolder":
            self._syncFolder(change.name)
        else:
            self._named.append(change)

    def _syncIfDue(self, number: int, synced: bool) -> None:
        written: list[tuple[Change, bool | None]] = [
            (change, synced if safe is None else safe) for change, safe in self._written.pop(number, ())
        ]
        if not all(safe for _, safe in written):
            self._written[number] = written
            return
        content = bytearray(self._safe.files.get(number, b""))
        for change, _ in written:
            _apply(content, change)
        self._safe.files[number] = bytes(content)

    def _syncFolder(self, folder: str) -> None:
        left = []
        for change in self._named:
            if change.name.rpartition("/")[0] == folder:
                _name(self._safe.names, change)
            else:
                left.append(change)
        self._named = left

    def left(self, random: Random, how: str) -> State:
        """Return what could be there.

        :param how: ``dropped``: only what was synced; ``kept``: all; ``names``: all names, but only what was synced of
            the contents; ``contents``: the other way round; ``torn``: anything between.
        """
        state = self._safe.copy()
        for change in self._named:
            if how in ("kept", "names") or (how == "torn" and random.random() < 0.6):
                _name(state.names, change)
        chance = random.choice((0.2, 0.5, 0.8, 0.97)) if how == "torn" else float(how in ("kept", "contents"))
        for number, written in self._written.items():
            content = bytearray(state.files.get(number, b""))
            for change, safe in written:
                _applyPart(content, change, random, 1.0 if safe else chance)
            state.files[number] = bytes(content)
        return _reachable(state)


def _reachable(state: State) -> State:
    """Return a state without the files that have no names and the names in folders that are not there."""
    folders = {name for name, number in state.names.items() if number == _FOLDER}
    names = {
        name: number for name, number in state.names.items() if number == _FOLDER or name.rpartition("/")[0] in folders
    }
    return State({number: state.files.get(number, b"") for number in names.values() if number != _FOLDER}, names)


def _name(names: dict[str, int], change: Change) -> None:
    if change.what == "name":
        names[change.name] = change.file
    elif change.what == "remove":
        names.pop(change.name, None)
    else:
        names.pop(change.name, None)
        names[change.other] = change.file


def _apply(content: bytearray, change: Change) -> None:
    if change.what == "truncate":
        _cut(content, change.position)
    else:
        _put(content, change.position, change.bytes)


def _applyPart(content: bytearray, change: Change, random: Random, chance: float) -> None:
    """Do what a write or a truncation did, or parts of it: each sector with this chance."""
    if change.what == "truncate":
        if random.random() < chance:
            _cut(content, change.position)
        return
    position, bytes = change.position, change.bytes
    if chance >= 1:
        _put(content, position, bytes)
        return
    end = position + len(bytes)
    if random.random() < chance / 2 and len(content) < end:
        # The length came to the disk, whatever else did.
        content.extend(bytearray(end - len(content)))
    for start in range(position - position % SECTOR, end, SECTOR):
        if random.random() < chance:
            low, high = max(start, position), min(start + SECTOR, end)
            _put(content, low, bytes[low - position : high - position])


def _put(content: bytearray, position: int, bytes: bytes) -> None:
    if len(content) < position:
        content.extend(bytearray(position - len(content)))
    content[position : position + len(bytes)] = bytes


def _cut(content: bytearray, size: int) -> None:
    if size < len(content):
        del content[size:]
    else:
        content.extend(bytearray(size - len(content)))


#: Every way in which :meth:`Crash.left` can be asked, and how often for each point.
WAYS: Mapping[str, int] = {"dropped": 1, "kept": 1, "names": 1, "contents": 1, "torn": 3}


def crashes(recorder: Recorder, random: Random, ways: Mapping[str, int] = WAYS) -> Iterator[tuple[int, str, State]]:
    """Yield, for every prefix of what was done to a disk, what a power loss may leave: the prefix's length, how the
    rest was treated, and the disk.

    What is the same as what was yielded just before is left out.
    """
    crash = Crash(recorder)
    while True:
        before: list[State] = []
        for how, times in ways.items():
            for _ in range(times):
                state = crash.left(random, how)
                if state not in before:
                    before.append(state)
                    yield crash.done, how, state
        if crash.done == len(recorder.changes):
            return
        crash.step()
