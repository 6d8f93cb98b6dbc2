"""Losses and refusals that a flush raises, and in which thread or task."""

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

    def test_nothingUnconfirmedIsNoLoss(self) -> None:
        """Before the first message, and after a confirmation."""
        self.accounts.lose(LOST)
        self.publish()
        self.confirm()
        self.accounts.lose(LOST)
        self.assertIsNone(self.accounts.takeLoss())

    def test_lastOfSeveralLossesIsToldOnce(self) -> None:
        """To one account."""
        self.publish()
        self.accounts.lose(LOST)
        self.publish()
        self.accounts.lose(AGAIN)
        self.assertEqual((self.accounts.takeLoss(), self.accounts.takeLoss()), (AGAIN, None))

    def test_messageBeingSentIsLost(self) -> None:
        """Although a PONG arrived meanwhile; a dropped one is not."""
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

    def test_messageOfAnEndedConnectionIsLost(self) -> None:
        """It gets no number."""
        self.accounts.loseLate(self.accounts.current(), LOST)
        self.assertEqual((self.accounts.takeLoss(), self.accounts.takeLoss()), (LOST, None))

    def test_flushIsNeededUntilItIsDone(self) -> None:
        """Or while a loss is untold."""
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

    def test_eachOwnerIsToldOnce(self) -> None:
        """Also one that was started by another."""
        one, two = Owner(), Owner()
        first = self.by(one)
        first(self.publish)
        second = first(self.by, two)
        self.now = two
        second(self.publish)
        self.accounts.lose(LOST)
        self.assertEqual([first(self.accounts.takeLoss), second(self.accounts.takeLoss)], [LOST, LOST])
        self.assertEqual([first(self.accounts.takeLoss), second(self.accounts.takeLoss)], [None, None])

    def test_flushInTheContextOfAnotherIsHis(self) -> None:
        """Its owner is not told again."""
        one = Owner()
        first = self.by(one)
        first(self.publish)
        self.accounts.lose(LOST)
        wrapped = first(self.by, Owner())
        self.assertEqual([wrapped(self.accounts.takeLoss), first(self.accounts.takeLoss)], [LOST, None])

    def test_contextsWithoutOwnersShareAnOpenAccount(self) -> None:
        """Until all of its messages are confirmed."""
        first = self.by(None)
        account = first(self.publish)
        second = first(self.by, None)
        self.assertIs(second(self.publish), account)
        self.confirm()
        self.assertIsNot(second(self.publish), account)
        self.assertIsNot(first(self.publish), account)

    def test_laterAccountIsNotToldAgain(self) -> None:
        """Of the same loss."""
        one, two = self.by(None), self.by(None)
        one(self.publish)
        two(self.publish)
        self.accounts.lose(LOST)
        self.assertIs(one(self.accounts.takeLoss), LOST)
        one(self.publish)
        self.confirm()
        self.assertIsNone(one(self.accounts.takeLoss))
        self.assertIs(two(self.accounts.takeLoss), LOST)

    def test_lossOfAnEndedOwnerIsToldOnce(self) -> None:
        """To the next flush."""
        self.by(Owner())(self.publish)
        gc.collect()
        self.accounts.lose(LOST)
        self.assertEqual((self.accounts.takeLoss(), self.accounts.takeLoss()), (LOST, None))

    def test_endedOwnerWithoutALossLeavesNone(self) -> None:
        """All of it was confirmed."""
        self.by(Owner())(self.publish)
        gc.collect()
        self.confirm()
        self.accounts.lose(LOST)
        self.assertIsNone(self.accounts.takeLoss())

    def test_manyEndedOwnersTakeLittleMemory(self) -> None:
        """Their loss is told."""
        for _ in range(5000):
            self.by(Owner())(self.publish)
        gc.collect()
        self.by(Owner())(self.publish)
        self.assertLess(len(self.accounts._opened) + len(self.accounts.orphaned), 1000)
        self.accounts.lose(LOST)
        self.assertIs(self.accounts.takeLoss(), LOST)

    def test_accountsOfSeveralClientsShareAContext(self) -> None:
        """Without those that are over."""
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

    def test_eachThreadHasAnAccountThatEndsWithIt(self) -> None:
        """Others cannot find it."""
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

    def test_noRefusalsAreNoError(self) -> None:
        """And have no last one."""
        refusals().check()
        self.assertIsNone(refusals().last)

    def test_firstRefusalIsRaisedWithTheOthers(self) -> None:
        """In their order."""
        error = self.assertRaises(PublishFailed, refusals("a", "b", "c").check)
        self.assertEqual((error.path, error.words, error.count), ("a", "no a", 3))
        self.assertEqual([other.path for other in error.others], ["b", "c"])

    def test_refusalsBeyondTheLimitAreCounted(self) -> None:
        """Not stored."""
        error = self.assertRaises(PublishFailed, refusals(*map(str, range(MAX_REFUSALS + 5))).check)
        self.assertEqual(
            (len(error.others), error.count, error.others[-1].path),
            (MAX_REFUSALS - 1, MAX_REFUSALS + 5, str(MAX_REFUSALS - 1)),
        )

    def test_refusalsBeyondOneMebibyteAreCounted(self) -> None:
        """Also when several are joined."""
        found = Refusals()
        for _ in range(5):
            found.add(PublishFailed(400, "no", "", bytes(1 << 19)))
        error = self.assertRaises(PublishFailed, Refusals([found, found]).check)
        self.assertEqual((len(error.others), error.count), (1, 10))

    def test_laterRefusalsFollow(self) -> None:
        """When several are joined."""
        error = self.assertRaises(PublishFailed, Refusals([refusals("a"), refusals("b", "c")]).check)
        self.assertEqual(([each.path for each in error.others], error.count), (["b", "c"], 3))

    def test_firstRefusalWithoutATopicCanBeRemoved(self) -> None:
        """And no second one."""
        kept = refusals("a", "", "b")
        found = kept.popNameless()
        assert found is not None
        self.assertEqual((found.path, kept.count, kept.popNameless()), ("", 2, None))
