"""Who is told of what was lost or refused, without any connection."""

import contextvars
import gc
from collections.abc import Callable
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from fleximq.client.errors import ConnectionLost, PublishFailed
from fleximq.client.protocol.unconfirmed import (
    MAX_REFUSALS,
    Account,
    Accounts,
    ContextAccounts,
    Refusals,
    ThreadAccounts,
)
from tests.client.scripted import InThread

LOST, AGAIN = ConnectionLost("gone"), ConnectionLost("gone again")


class Owner:
    """Somebody who publishes."""


class AccountsCase(SynchronousTestCase):
    """Accounts that are found in contexts, and owners who are there or not."""

    def setUp(self) -> None:
        """Have accounts."""
        self.now: Owner | None = None
        self.accounts = Accounts(ContextAccounts(lambda: self.now))

    def by(self, owner: Owner | None) -> "Callable[..., Any]":
        """Return what lets somebody do something, in a context of his own."""
        context = contextvars.copy_context()

        def do(call: Callable[..., Any], *arguments: Any) -> Any:
            self.now = owner
            return context.run(call, *arguments)

        return do

    def publish(self) -> Account:
        """Publish something."""
        account = self.accounts.current()
        self.accounts.countSent(account)
        return account

    def confirm(self) -> None:
        """Confirm all that was sent."""
        self.accounts.confirmed = self.accounts.sent


class LossTests(AccountsCase):
    """A loss of what was under way."""

    def test_nothing(self) -> None:
        """Where nothing is under way nothing is lost."""
        self.accounts.lose(LOST)
        self.publish()
        self.confirm()
        self.accounts.lose(LOST)
        self.assertIsNone(self.accounts.takeLoss())

    def test_latest(self) -> None:
        """Of several losses the last one is told, once."""
        self.publish()
        self.accounts.lose(LOST)
        self.publish()
        self.accounts.lose(AGAIN)
        self.assertEqual((self.accounts.takeLoss(), self.accounts.takeLoss()), (AGAIN, None))

    def test_begun(self) -> None:
        """What was begun is lost though a PONG came meanwhile, and what was dropped is not."""
        account = self.accounts.current()
        self.accounts.beginSend(account)
        self.confirm()
        self.accounts.lose(LOST)
        self.accounts.dropSend(account)
        self.assertIs(self.accounts.takeLoss(), LOST)
        self.accounts.beginSend(account)
        self.accounts.dropSend(account)
        self.accounts.lose(LOST)
        self.assertIsNone(self.accounts.takeLoss())

    def test_late(self) -> None:
        """What gets no number because its connection is over is told as well."""
        self.accounts.loseLate(self.accounts.current(), LOST)
        self.assertEqual((self.accounts.takeLoss(), self.accounts.takeLoss()), (LOST, None))

    def test_owing(self) -> None:
        """There is something to flush until it was flushed, and where somebody has to be told."""
        self.assertFalse(self.accounts.needsFlush)
        self.publish()
        self.confirm()
        self.assertTrue(self.accounts.needsFlush)
        self.accounts.flushed = self.accounts.sent
        self.assertFalse(self.accounts.needsFlush)
        self.publish()
        self.accounts.lose(LOST)
        self.assertTrue(self.accounts.needsFlush)
        self.accounts.takeLoss()
        self.assertFalse(self.accounts.needsFlush)


class OwnerTests(AccountsCase):
    """Several who publish."""

    def test_each(self) -> None:
        """Everybody has an account, also who was started by one who has; each is told."""
        one, two = Owner(), Owner()
        first = self.by(one)
        first(self.publish)
        second = first(self.by, two)
        self.now = two
        second(self.publish)
        self.accounts.lose(LOST)
        self.assertEqual([first(self.accounts.takeLoss), second(self.accounts.takeLoss)], [LOST, LOST])
        self.assertEqual([first(self.accounts.takeLoss), second(self.accounts.takeLoss)], [None, None])

    def test_wrapped(self) -> None:
        """Who flushes in the context of another one does it for him."""
        one = Owner()
        first = self.by(one)
        first(self.publish)
        self.accounts.lose(LOST)
        wrapped = first(self.by, Owner())
        self.assertEqual([wrapped(self.accounts.takeLoss), first(self.accounts.takeLoss)], [LOST, None])

    def test_ownerless(self) -> None:
        """Without owners those share an account who find it before all of it is settled, and no longer."""
        first = self.by(None)
        account = first(self.publish)
        second = first(self.by, None)
        self.assertIs(second(self.publish), account)
        self.confirm()
        self.assertIsNot(second(self.publish), account)
        self.assertIsNot(first(self.publish), account)

    def test_toldOnce(self) -> None:
        """Who was told is not told of the same loss by an account that he opens later."""
        one, two = self.by(None), self.by(None)
        one(self.publish)
        two(self.publish)
        self.accounts.lose(LOST)
        self.assertIs(one(self.accounts.takeLoss), LOST)
        one(self.publish)
        self.confirm()
        self.assertIsNone(one(self.accounts.takeLoss))
        self.assertIs(two(self.accounts.takeLoss), LOST)

    def test_gone(self) -> None:
        """Who is gone leaves what was not confirmed to the one who flushes next."""
        self.by(Owner())(self.publish)
        gc.collect()
        self.accounts.lose(LOST)
        self.assertEqual((self.accounts.takeLoss(), self.accounts.takeLoss()), (LOST, None))

    def test_goneAndConfirmed(self) -> None:
        """Who is gone when all of it was confirmed leaves nothing."""
        self.by(Owner())(self.publish)
        gc.collect()
        self.confirm()
        self.accounts.lose(LOST)
        self.assertIsNone(self.accounts.takeLoss())

    def test_small(self) -> None:
        """However many come and go, little is kept of them."""
        for _ in range(5000):
            self.by(Owner())(self.publish)
        gc.collect()
        self.by(Owner())(self.publish)
        self.assertLess(len(self.accounts._opened) + len(self.accounts.orphaned), 1000)
        self.accounts.lose(LOST)
        self.assertIs(self.accounts.takeLoss(), LOST)

    def test_otherClients(self) -> None:
        """Accounts of several clients are beside each other in one context, without those that are over."""
        others = [Accounts(ContextAccounts(lambda: None)) for _ in range(3)]
        here = self.by(None)

        def publish() -> None:
            for each in (*others, self.accounts):
                each.countSent(each.current())

        here(publish)
        for each in others:
            each.lose(LOST)
        self.assertEqual([here(each.takeLoss) for each in (*others, self.accounts)], [LOST, LOST, LOST, None])
        here(publish)
        others[0].isOver = True
        here(publish)
        held = [value for value in here(contextvars.copy_context).values() if isinstance(value, tuple)]
        self.assertEqual([len(value) for value in held], [4])
        self.confirm()
        here(self.publish)
        held = [value for value in here(contextvars.copy_context).values() if isinstance(value, tuple)]
        self.assertEqual([len(value) for value in held], [3])

    def test_lossIsToldLongAfterOthersWereTold(self) -> None:
        """Also to an owner that has published meanwhile."""
        first, second = self.by(Owner()), self.by(Owner())
        first(self.publish), second(self.publish)
        self.accounts.lose(LOST)
        self.assertIs(first(self.accounts.takeLoss), LOST)
        first(self.publish), second(self.publish)
        self.confirm()
        self.assertEqual([each(self.accounts.takeLoss) for each in (first, second, second)], [None, LOST, None])

    def test_flushOfAnotherConfirms(self) -> None:
        """Only publications after it are lost."""
        first, second = self.by(Owner()), self.by(Owner())
        first(self.publish)
        self.confirm()
        second(self.publish)
        self.accounts.lose(LOST)
        self.assertEqual([each(self.accounts.takeLoss) for each in (second, first)], [LOST, None])

    def test_firstFlushIsToldForOthers(self) -> None:
        """An owner without publications may flush for them; they are told as well."""
        first = self.by(Owner())
        first(self.publish)
        self.accounts.lose(LOST)
        others = [self.by(Owner()) for _ in range(2)]
        found = [each(self.accounts.takeLoss) for each in (*others, first, first)]
        self.assertEqual(found, [LOST, None, LOST, None])


class ThreadTests(SynchronousTestCase):
    """Accounts of threads."""

    def test_each(self) -> None:
        """Each thread has one, which ends with it."""
        accounts = Accounts(ThreadAccounts())

        def publish() -> int:
            account = accounts.current()
            accounts.countSent(account)
            self.assertIs(accounts.current(), account)
            return id(account)

        mine = accounts.current()
        self.assertNotEqual(InThread(publish).result(), id(mine))
        self.assertEqual(list(accounts.orphaned), [1])
        self.assertIs(accounts.current(), mine)


def refusals(*paths: str) -> Refusals:
    """Return refusals with these paths."""
    found = Refusals()
    for path in paths:
        found.add(PublishFailed(400, f"no {path}", path))
    return found


class RefusalsTests(SynchronousTestCase):
    """Refusals since some moment."""

    def test_none(self) -> None:
        """None are no error."""
        refusals().check()
        self.assertIsNone(refusals().last)

    def test_others(self) -> None:
        """The first is raised, the others stand in it in their order."""
        error = self.assertRaises(PublishFailed, refusals("a", "b", "c").check)
        self.assertEqual((error.path, error.words, error.count), ("a", "no a", 3))
        self.assertEqual([other.path for other in error.others], ["b", "c"])

    def test_bound(self) -> None:
        """Beyond a thousand they are counted only."""
        error = self.assertRaises(PublishFailed, refusals(*map(str, range(MAX_REFUSALS + 5))).check)
        self.assertEqual(
            (len(error.others), error.count, error.others[-1].path),
            (MAX_REFUSALS - 1, MAX_REFUSALS + 5, str(MAX_REFUSALS - 1)),
        )

    def test_boundOfBytes(self) -> None:
        """Beyond 1 MiB of texts and payloads they are counted only, also when they are joined."""
        found = Refusals()
        for _ in range(5):
            found.add(PublishFailed(400, "no", "", bytes(1 << 19)))
        error = self.assertRaises(PublishFailed, Refusals([found, found]).check)
        self.assertEqual((len(error.others), error.count), (1, 10))

    def test_extend(self) -> None:
        """Later ones stand behind."""
        error = self.assertRaises(PublishFailed, Refusals([refusals("a"), refusals("b", "c")]).check)
        self.assertEqual(([each.path for each in error.others], error.count), (["b", "c"], 3))

    def test_nameless(self) -> None:
        """The first that names nothing can be taken out."""
        kept = refusals("a", "", "b")
        found = kept.popNameless()
        assert found is not None
        self.assertEqual((found.path, kept.count, kept.popNameless()), ("", 2, None))
