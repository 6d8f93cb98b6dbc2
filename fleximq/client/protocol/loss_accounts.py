"""Who has published what is not known to have arrived, so that everybody is told of his own loss, without any I/O.

A thread, a task of asyncio or a coroutine on Twisted has an :class:`Account` from its first publication on. What is
sent is numbered, and what a PONG confirms is everything up to a number. When a connection is lost, who has sent more
than was confirmed is told by his own next flush; besides, so is whoever flushes first of all others, for he may do it
for those that never will, or are gone.
"""

import threading
from collections import deque
from collections.abc import Callable
from contextvars import ContextVar
from typing import Protocol
from weakref import ReferenceType, ref

from fleximq.client.errors import ConnectionLost

#: When so many accounts were opened, it is looked how many of them are still there.
_MIN_CLEAN_UP = 64


class Loss:
    """Publications were under way when a connection was lost; ``unreported`` counts those who have to be told still."""

    __slots__ = ("error", "unreported")

    def __init__(self, error: ConnectionLost, unreported: int) -> None:
        self.error = error
        self.unreported = unreported


class Account:
    """What one who publishes has sent: up to ``number``, and ``waiting`` more that have none yet.

    ``loss`` is what his next flush tells, ``told`` what the last one told.

    :param owner: who that is, if that can be said; otherwise it is all that find the account where they look for it.
    """

    __slots__ = ("__weakref__", "_accounts", "_owner", "loss", "number", "reported", "waiting")

    def __init__(self, accounts: "Accounts", owner: object | None) -> None:
        self._accounts = accounts
        self._owner: ReferenceType[object] | None = None if owner is None else ref(owner)
        self.number = self.waiting = 0
        self.loss: Loss | None = None
        self.reported: Loss | None = None

    @property
    def isOpen(self) -> bool:
        """Whether anything of it is not known to have arrived, or is to be told still."""
        accounts = self._accounts
        return not accounts.isOver and (self.waiting > 0 or self.loss is not None or self.number > accounts.confirmed)

    def isOf(self, accounts: "Accounts") -> bool:
        """Tell whether it is one of these."""
        return self._accounts is accounts

    def isFor(self, owner: object | None) -> bool:
        """Tell whether it goes on for who publishes now; one without an owner does until all of it is settled."""
        return self.isOpen or not self.number if self._owner is None else self._owner() is owner

    def __del__(self) -> None:
        # Whoever published is gone. This may be called in the middle of anything, so it only leaves a note.
        if self.number > self._accounts.confirmed:
            self._accounts.orphaned.append(self.number)


class Holder(Protocol):
    """Where who runs now finds his account."""

    def get(self, accounts: "Accounts") -> Account | None:
        """Return the account that is found from here, which another one may have left."""

    def set(self, account: Account) -> None:
        """Let it be found from here on."""

    def owner(self) -> object | None:
        """Return who runs now, if that can be said."""


class ThreadAccounts(threading.local):
    """Every thread has an account of its own, which ends with it."""

    _account: Account | None = None

    def get(self, accounts: "Accounts") -> Account | None:
        """Return the thread's account."""
        return self._account

    def set(self, account: Account) -> None:
        """Let it be the thread's account."""
        self._account = account

    def owner(self) -> object | None:
        """Return None: no other thread finds it."""
        return None


class ContextAccounts:
    """An account is found in the context of :mod:`contextvars` that it was opened in, and in those made from it.

    So a flush that is wrapped into a task of its own is told what who wrapped it has lost.

    :param owner: returns who runs now, or None if that cannot be said.
    """

    def __init__(self, owner: Callable[[], object | None]) -> None:
        self.owner = owner

    def get(self, accounts: "Accounts") -> Account | None:
        """Return the account in this context."""
        for account in _accounts.get():
            if account.isOf(accounts):
                return account
        return None

    def set(self, account: Account) -> None:
        """Put it into this context, and drop those of other clients in which nothing is open."""
        others = (each for each in _accounts.get() if each.isOpen and not each.isOf(account._accounts))
        _accounts.set((account, *others))


#: The accounts of all clients that are found in a context.
_accounts: ContextVar[tuple[Account, ...]] = ContextVar("_accounts", default=())


class Accounts:
    """The accounts of one client; used by one thread at a time.

    ``sent`` numbers what was sent, ``confirmed`` says up to where it has arrived, ``flushed`` up to where a flush has
    told what was refused. ``left`` has the numbers of those who are gone. ``isOver`` says that nothing more is sent.
    """

    def __init__(self, holder: Holder) -> None:
        self.sent = self.confirmed = self.flushed = 0
        self.orphaned: deque[int] = deque()
        self.isOver = False
        self._holder = holder
        self._opened: list[ReferenceType[Account]] = []
        self._cleanUpAt = _MIN_CLEAN_UP
        self._waiting = 0
        self._shared: Loss | None = None

    @property
    def needsFlush(self) -> bool:
        """Whether a flush of who runs now has something to tell."""
        isUnflushed = self._waiting > 0 or self.sent > self.flushed
        return isUnflushed or self._lossOf(self._holder.get(self)) is not None

    def current(self) -> Account:
        """Return the account of who publishes now."""
        owner = self._holder.owner()
        found = self._holder.get(self)
        if found is not None and found.isFor(owner):
            return found
        account = Account(self, owner)
        if found is not None and owner is None:
            account.reported = found.reported
        self._holder.set(account)
        self._tidy()
        self._opened.append(ref(account))
        return account

    def _tidy(self) -> None:
        """Forget accounts that are gone, before there are many of them, and keep the last of their numbers."""
        if len(self._opened) >= self._cleanUpAt:
            self._opened = [each for each in self._opened if each() is not None]
            self._cleanUpAt = max(_MIN_CLEAN_UP, 2 * len(self._opened))
        while len(self.orphaned) > 1:
            self.orphaned.append(max(self.orphaned.popleft(), self.orphaned.popleft()))

    def beginSend(self, account: Account) -> None:
        """Something is going to be sent: if the connection is lost in the middle of it, that is lost, too."""
        account.waiting += 1
        self._waiting += 1

    def dropSend(self, account: Account) -> None:
        """What was begun is not sent."""
        account.waiting -= 1
        self._waiting -= 1

    def countSent(self, account: Account) -> None:
        """Something was sent; a PING that is made from now on is behind it."""
        self.sent += 1
        account.number = self.sent

    def lose(self, error: ConnectionLost) -> None:
        """A connection was lost, and with it whatever is not confirmed."""
        confirmed = self.confirmed
        alive = [account for each in self._opened if (account := each()) is not None]
        affected = [each for each in alive if each.waiting or each.number > confirmed]
        isLeft = any(number > confirmed for number in self.orphaned)
        self.orphaned.clear()
        self.confirmed = self.flushed = self.sent
        if affected or isLeft:
            # Those who are gone are never told themselves.
            self._shared = Loss(error, len(affected) + isLeft)
            for each in affected:
                each.loss = self._shared

    def loseLate(self, account: Account, error: ConnectionLost) -> None:
        """Something was sent on a connection that was lost before it had a number."""
        if account.loss is None:
            account.loss = self._shared = Loss(error, 1)

    def takeLoss(self) -> ConnectionLost | None:
        """Return what who flushes now has to be told, if anything; it counts as told."""
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
