"""What a flush reports: the losses of each thread and task with unconfirmed messages, and refusals. Without I/O.

Each thread or task gets an :class:`Account` with its first publication. Sent messages are numbered; a PONG confirms all
up to a number. When a connection is lost, the next flush of each account with unconfirmed messages raises an error; so
does the first flush from any other account, since an account may never flush, or its thread may have ended.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from dataclasses import dataclass
from weakref import ReferenceType, WeakSet, ref

from fleximq.client.errors import ConnectionLost, PublishFailed
from fleximq.limits import MEBIBYTE

#: The first refusals are stored, since they say most; further ones are only counted.
MAX_REFUSALS = 1000
#: No more are stored above this size.
_MAX_REFUSAL_BYTES = MEBIBYTE


@dataclass(eq=False, slots=True)
class Loss:
    """A lost connection with unconfirmed messages; ``unreported`` counts the accounts that have not been notified."""

    error: ConnectionLost
    unreported: int


class Account:
    """The messages of one thread or task: numbered up to ``number``, and ``waiting`` more without a number yet.

    ``loss`` is reported by its next flush; ``reported`` is the last one that was. Without an ``owner``, a thread or
    task, it belongs to the context in which it is found.
    """

    __slots__ = ("__weakref__", "_owner", "accounts", "loss", "number", "reported", "waiting")

    def __init__(self, accounts: "Accounts", owner: object | None) -> None:
        self.accounts = accounts
        self._owner: ReferenceType[object] | None = None if owner is None else ref(owner)
        self.number = self.waiting = 0
        self.loss: Loss | None = None
        self.reported: Loss | None = None

    @property
    def isOpen(self) -> bool:
        """Whether a message is unconfirmed or a loss is unreported."""
        accounts = self.accounts
        return not accounts.isOver and (self.waiting > 0 or self.loss is not None or self.number > accounts.confirmed)

    def isFor(self, owner: object | None) -> bool:
        """Return whether it can be used by this owner; without an owner, until all its messages are confirmed."""
        if self._owner is not None:
            return self._owner() is owner
        return self.isOpen or not self.number

    def __del__(self) -> None:
        # The thread or task has ended. The garbage collector may call this at any point, so it only appends.
        if self.number > self.accounts.confirmed:
            self.accounts.orphaned.append(self.number)


class ThreadAccounts(threading.local):
    """One account for each thread; it ends with the thread, and other threads cannot find it."""

    _account: Account | None = None

    def get(self, accounts: "Accounts") -> Account | None:
        return self._account

    def set(self, account: Account) -> None:
        self._account = account

    def owner(self) -> object | None:
        return None


class ContextAccounts:
    """Accounts in :mod:`contextvars`; ``owner`` returns the running task, or None if unknown.

    A copy of a context shares its account, so a flush in a task of its own reports the losses of the code that started
    the task.
    """

    def __init__(self, owner: Callable[[], object | None]) -> None:
        self.owner = owner

    def get(self, accounts: "Accounts") -> Account | None:
        """Return the account in this context, which may be of another owner."""
        for account in _accounts.get():
            if account.accounts is accounts:
                return account
        return None

    def set(self, account: Account) -> None:
        """Store the account in this context, and remove closed accounts of other clients."""
        others = (each for each in _accounts.get() if each.isOpen and each.accounts is not account.accounts)
        _accounts.set((account, *others))


#: The accounts of all clients in a context.
_accounts: ContextVar[tuple[Account, ...]] = ContextVar("_accounts", default=())


class Accounts:
    """The accounts of one client; used by one thread at a time.

    ``sent``, ``confirmed`` and ``flushed`` are the numbers of the last message sent, confirmed, and flushed with its
    refusals reported. ``orphaned`` has the last numbers of ended threads. With ``isOver`` nothing more is sent.
    """

    def __init__(self, holder: ThreadAccounts | ContextAccounts) -> None:
        self.sent = self.confirmed = self.flushed = 0
        self.orphaned: deque[int] = deque()
        self.isOver = False
        self._holder = holder
        self._opened: WeakSet[Account] = WeakSet()
        self._waiting = 0
        self._shared: Loss | None = None

    @property
    def needsFlush(self) -> bool:
        """Whether a flush of the running thread or task has messages to confirm, or a loss to report."""
        isUnflushed = self._waiting > 0 or self.sent > self.flushed
        return isUnflushed or self._lossOf(self._holder.get(self)) is not None

    def current(self) -> Account:
        """Return the account of the running thread or task."""
        owner = self._holder.owner()
        found = self._holder.get(self)
        if found is not None and found.isFor(owner):
            return found
        account = Account(self, owner)
        if found is not None and owner is None:
            account.reported = found.reported
        self._holder.set(account)
        self._opened.add(account)
        while len(self.orphaned) > 1:
            self.orphaned.append(max(self.orphaned.popleft(), self.orphaned.popleft()))
        return account

    def beginSend(self, account: Account) -> None:
        """Count a message that is about to be sent; it is lost if the connection ends meanwhile."""
        account.waiting += 1
        self._waiting += 1

    def dropSend(self, account: Account) -> None:
        """Undo :meth:`beginSend`."""
        account.waiting -= 1
        self._waiting -= 1

    def countSent(self, account: Account) -> None:
        """Number a sent message; PINGs created from now on confirm it."""
        self.sent += 1
        account.number = self.sent

    def leave(self) -> None:
        """Forget all messages: in a forked child they are the parent's."""
        for each in self._opened:
            each.number, each.waiting, each.loss = 0, 0, None
        self.orphaned.clear()
        self.confirmed = self.flushed = self.sent
        self._waiting, self._shared = 0, None

    def lose(self, error: ConnectionLost) -> bool:
        """Record the loss of all unconfirmed messages; return whether there are any."""
        confirmed = self.confirmed
        affected = [each for each in self._opened if each.waiting or each.number > confirmed]
        isLeft = any(number > confirmed for number in self.orphaned)
        self.orphaned.clear()
        self.confirmed = self.flushed = self.sent
        if affected or isLeft:
            # Ended threads cannot be notified, so the first other flush is.
            self._shared = Loss(error, len(affected) + isLeft)
            for each in affected:
                each.loss = self._shared
        return bool(affected) or isLeft

    def loseLate(self, account: Account, error: ConnectionLost) -> None:
        """Record the loss of a message without a number."""
        if account.loss is None:
            account.loss = self._shared = Loss(error, 1)

    def takeLoss(self) -> ConnectionLost | None:
        """Return the loss that this flush must report, or None; it counts as reported."""
        account = self._holder.get(self)
        loss = self._lossOf(account)
        if loss is None:
            return None
        if account is not None and account.loss is loss:
            account.loss, account.reported = None, loss
            loss.unreported -= 1
        if loss is self._shared and (account is None or account.reported is not loss or not loss.unreported):
            self._shared = None
        return loss.error

    def _lossOf(self, account: Account | None) -> Loss | None:
        if account is None:
            return self._shared
        return account.loss or (None if account.reported is self._shared else self._shared)


class Refusals:
    """Refusals by the broker that no flush has reported yet; ``count`` includes those beyond the limit."""

    def __init__(self, earlier: "Iterable[Refusals]" = ()) -> None:
        self.count = self._size = 0
        self._refusals: list[PublishFailed] = []
        for each in earlier:
            for refusal in each._refusals:
                self.add(refusal)
            self.count += each.count - len(each._refusals)

    def add(self, refusal: PublishFailed) -> None:
        """Add a refusal."""
        self.count += 1
        if len(self._refusals) < MAX_REFUSALS and self._size < _MAX_REFUSAL_BYTES:
            self._refusals.append(refusal)
            self._size += len(refusal.path) + len(refusal.words) + len(refusal.payload)

    def popNameless(self) -> PublishFailed | None:
        """Remove and return the first refusal without a path or topic."""
        for place, refusal in enumerate(self._refusals):
            if not refusal.path:
                self.count -= 1
                return self._refusals.pop(place)
        return None

    @property
    def all(self) -> tuple[PublishFailed, ...]:
        """All stored refusals."""
        return tuple(self._refusals)

    @property
    def last(self) -> PublishFailed | None:
        """The last stored refusal."""
        return self._refusals[-1] if self._refusals else None

    def check(self) -> None:
        """Raise PublishFailed, the first refusal with the others, if there are any."""
        if self._refusals:
            first, *others = self._refusals
            first.others, first.count = tuple(others), self.count
            raise first
