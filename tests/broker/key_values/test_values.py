"""Values that clients put, get, add to and delete, with and without a journal."""

from dataclasses import replace
from typing import Any

import msgpack
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from fleximq.broker.key_values import key_values
from fleximq.errors import (
    BadRequest,
    BrokerError,
    Conflict,
    Forbidden,
    NoCapacity,
    NotKept,
    NotPermitted,
    TooManyRequests,
)
from fleximq.limits import MOST_MILLISECONDS, NO_LIMITS, Limits
from fleximq.rights import Action
from tests.broker.key_values.storing import Memory, StoringCase
from tests.broker.parts import makeBroker
from tests.broker.schedules.durable import Life


class Only:
    """Rights to some actions on all topics."""

    limits = NO_LIMITS

    def __init__(self, *actions: str) -> None:
        self._actions = actions

    def may(self, action: str, name: str) -> bool:
        """Permit it, or not."""
        return action in self._actions

    def mayMatch(self, action: str, pattern: str) -> bool:
        """Permit it, or not."""
        return action in self._actions


class ValueTests(StoringCase):
    """With a journal."""

    def test_whatIsPutCanBeGot(self) -> None:
        """With its revision; a key without a value is missing."""
        revision = self.put("a/b", b"one")
        answer = self.ask("get", keys=["a/b", "c"])
        self.assertEqual(answer, {"values": {"a/b": [revision, b"one"]}, "rest": []})

    def test_theLastOneReplaces(self) -> None:
        """Revisions grow, and one value remains."""
        first, second = self.put("a", b"one"), self.put("a", b"two")
        self.assertGreater(second, first)
        self.assertEqual(self.values("a"), {"a": b"two"})
        self.assertEqual(len(self.broker.keyValues), 1)

    def test_onlyIfTheRevisionIsThis(self) -> None:
        """Another is a conflict that names it, and changes nothing."""
        first = self.put("a", b"one")
        error = self.assertRaises(Conflict, self.put, "a", b"two", if_revision=first + 1)
        self.assertIn(str(first), str(error))
        self.assertEqual(self.values("a"), {"a": b"one"})
        self.put("a", b"two", if_revision=first)
        self.assertEqual(self.values("a"), {"a": b"two"})

    def test_onlyIfThereIsNone(self) -> None:
        """Revision 0: of several clients, one gets it."""
        self.put("lock", b"me", if_revision=0)
        self.assertRaises(Conflict, self.put, "lock", b"you", if_revision=0)
        self.assertTrue(self.ask("delete", key="lock")["deleted"])
        self.put("lock", b"you", if_revision=0)

    def test_aRevisionOfNothing(self) -> None:
        """Is a conflict."""
        self.assertRaises(Conflict, self.put, "a", b"", if_revision=1)

    def test_delete(self) -> None:
        """Says whether there was one, with the condition of a revision."""
        revision = self.put("a", b"one")
        self.assertRaises(Conflict, self.ask, "delete", key="a", if_revision=revision + 1)
        self.assertEqual(self.ask("delete", key="a", if_revision=revision), {"deleted": True})
        self.assertEqual(self.ask("delete", key="a"), {"deleted": False})
        self.assertEqual(self.values("a"), {})

    def test_deleteSeveral(self) -> None:
        """The answer is the number of those that there were."""
        for key in "abc":
            self.put(key, b"")
        adding = self.begin("add", key="n")
        self.assertEqual(self.ask("delete", keys=["a", "c", "none", "n"]), {"deleted": 3})
        self.assertEqual(adding, [{"sum": 1}])
        self.assertEqual(list(self.values("a", "b", "c", "n")), ["b"])
        self.assertEqual(self.ask("delete", keys=[]), {"deleted": 0})
        self.assertRaises(Forbidden, self.ask, "delete", keys=["b", "$sys/x"])
        self.assertEqual(list(self.values("b")), ["b"])

    def test_add(self) -> None:
        """Counts from 0, by 1 or another number, down too."""
        self.assertEqual(self.ask("add", key="n"), {"sum": 1})
        self.assertEqual(self.ask("add", key="n", number=5), {"sum": 6})
        self.assertEqual(self.ask("add", key="n", number=-10), {"sum": -4})
        self.assertEqual(self.values("n"), {"n": msgpack.packb(-4)})

    def test_addToANumberThatWasPut(self) -> None:
        """In MessagePack."""
        self.put("n", msgpack.packb(41))
        self.assertEqual(self.ask("add", key="n"), {"sum": 42})

    def test_addToSomethingElse(self) -> None:
        """Is a conflict, and changes nothing."""
        for value in (
            b"",
            b"\xc1",
            msgpack.packb("1"),
            msgpack.packb(True),
            msgpack.packb(1.5),
            b"\x01\x02",
            bytes(10),
        ):
            self.put("n", value)
            self.assertRaises(Conflict, self.ask, "add", key="n")
            self.assertEqual(self.values("n"), {"n": value})

    def test_aSumBeyond64Bits(self) -> None:
        """Is a conflict, and others that wait with it are counted."""
        self.put("n", msgpack.packb((1 << 63) - 2))
        answers = [self.begin("add", key="n", number=number) for number in (1, 1, -1)]
        for _ in range(4):
            self.life.commit()
        results = [answer for [answer] in answers]
        self.assertEqual([results[0], results[2]], [{"sum": (1 << 63) - 1}, {"sum": (1 << 63) - 2}])
        self.assertIsInstance(results[1], Conflict)

    def test_aRefusedSumChangesNothing(self) -> None:
        """Neither revision nor time."""
        self.put("n", msgpack.packb((1 << 63) - 1))
        before = self.ask("get", keys=["n"])
        self.assertRaises(Conflict, self.ask, "add", key="n", expires_in=1)
        self.life.clock.advance(1)
        self.assertEqual(self.ask("get", keys=["n"]), before)

    def test_changesOfAKeyAreInOrder(self) -> None:
        """Each sees the ones before it, also those that are being stored; conditions too."""
        answers = [
            self.begin("add", key="n"),
            self.begin("add", key="n"),
            self.begin("put", key="n", value=b"x", if_revision=0),
            self.begin("add", key="n", number=3),
            self.begin("delete", key="n"),
            self.begin("put", key="n", value=b"y", if_revision=0),
            self.begin("delete", key="n", if_revision=1 << 60),
        ]
        for _ in range(9):
            self.life.commit()
        results = [answer for [answer] in answers]
        self.assertEqual(results[:2], [{"sum": 1}, {"sum": 2}])
        self.assertIsInstance(results[2], Conflict)
        self.assertEqual(results[3:5], [{"sum": 5}, {"deleted": True}])
        self.assertIsInstance(results[6], Conflict)
        self.assertEqual(self.values("n"), {"n": b"y"})

    def test_manyAdditionsAtOnce(self) -> None:
        """Of two clients: nothing is counted twice or not at all."""
        other = self.broker.join("fleximq")
        answers = [self.begin("add", self.life.me if place % 3 else other, key="n") for place in range(100)]
        while not all(answers):
            self.life.commit()
        self.assertEqual(sorted(answer["sum"] for [answer] in answers), list(range(1, 101)))

    # -- time --------------------------------------------------------------------------------------------

    def test_expiry(self) -> None:
        """To the millisecond for readers; the memory is free a second later."""
        self.put("a", b"one", expires_in=5000)
        self.put("b", b"two")
        self.advance(4.999)
        self.assertEqual(self.values("a", "b"), {"a": b"one", "b": b"two"})
        self.advance(0.001)
        self.assertEqual(self.values("a", "b"), {"b": b"two"})
        self.put("c", b"", if_revision=0, expires_in=1)
        self.advance(1)
        self.advance(1)
        self.assertEqual(len(self.broker.keyValues), 1)

    def test_anExpiredValueCountsAsNone(self) -> None:
        """For conditions, deletions and sums."""
        self.put("a", b"one", expires_in=1)
        self.put("n", msgpack.packb(7), expires_in=1)
        self.life.clock.advance(0.5)
        self.assertEqual(self.ask("delete", key="a"), {"deleted": False})
        self.put("a", b"two", if_revision=0)
        self.assertEqual(self.ask("add", key="n"), {"sum": 1})

    def test_aNewValueHasItsOwnTime(self) -> None:
        """Not that of the one before."""
        self.put("a", b"one", expires_in=1000)
        self.put("a", b"two")
        self.put("b", b"one", expires_in=1000)
        self.put("b", b"two", expires_in=9000)
        self.advance(5)
        self.assertEqual(self.values("a", "b"), {"a": b"two", "b": b"two"})

    def test_addLeavesTheTime(self) -> None:
        """Unless it says a new one."""
        self.ask("add", key="n", expires_in=2000)
        self.ask("add", key="m", expires_in=2000)
        self.ask("add", key="n")
        self.ask("add", key="m", expires_in=9000)
        self.advance(2)
        self.assertEqual(self.values("n", "m"), {"m": msgpack.packb(2)})

    def test_manyExpireTogether(self) -> None:
        """In portions."""
        for number in range(30):
            self.begin("put", key=f"k{number}", value=b"", expires_in=10)
        self.life.commit()
        self.patch(key_values, "BATCH", 10)
        self.advance(1)
        for _ in range(3):
            self.advance(0)
        self.assertEqual(len(self.broker.keyValues), 0)

    # -- waiting -----------------------------------------------------------------------------------------

    def test_waitForAValue(self) -> None:
        """The answer comes with the first of the keys."""
        answers = self.begin("get", keys=["a", "b"], wait=60_000)
        self.put("c", b"other")
        self.assertEqual(answers, [])
        revision = self.put("b", b"two")
        self.assertEqual(answers, [{"values": {"b": [revision, b"two"]}, "rest": []}])
        self.put("a", b"one")
        self.assertEqual(len(answers), 1)

    def test_waitForANewerValue(self) -> None:
        """Than the one with this revision; others of these keys that are newer count too."""
        first = self.put("a", b"one")
        self.assertEqual(self.ask("get", keys=["a"], after=first), {"values": {}, "rest": []})
        answers = self.begin("get", keys=["a", "b"], after=first, wait=1000)
        self.assertEqual(answers, [])
        second = self.put("b", b"two")
        third = self.put("a", b"three")
        self.assertEqual(answers, [{"values": {"b": [second, b"two"]}, "rest": []}])
        found = self.ask("get", keys=["a", "b"], after=second, wait=1000)
        self.assertEqual(found["values"], {"a": [third, b"three"]})

    def test_waitInVain(self) -> None:
        """The answer is empty after that time."""
        answers = self.begin("get", keys=["a", "a"], wait=500)
        self.life.clock.advance(0.4)
        self.assertEqual(answers, [])
        self.life.clock.advance(0.1)
        self.assertEqual(answers, [{"values": {}, "rest": []}])

    def test_aReaderGetsAValueThatIsDeletedAtOnce(self) -> None:
        """A change that waits for the value's commit does not take it from readers."""
        answers = self.begin("get", keys=["a"], wait=60_000)
        changes = self.begin("put", key="a", value=b"one"), self.begin("delete", key="a")
        self.life.commit()
        self.assertEqual(changes[1], [{"deleted": True}])
        self.assertEqual(answers, [{"values": {"a": [changes[0][0]["revision"], b"one"]}, "rest": []}])

    def test_aValueThatIsNotNewerWakesNoReader(self) -> None:
        """Nor does one that has expired when it is stored."""
        answers = self.begin("get", keys=["a"], after=1 << 60, wait=5000)
        self.put("a", b"one")
        late = self.begin("get", keys=["b"], wait=5000)
        if isinstance(self.life, Life):
            self.begin("put", key="b", value=b"", expires_in=10)
            self.life.clock.advance(1)
            self.life.commit()
        self.assertEqual((answers, late), ([], []))
        self.advance(5)
        self.assertEqual((answers, late), ([{"values": {}, "rest": []}],) * 2)

    def test_whoHasAValueDoesNotWait(self) -> None:
        """One is enough."""
        self.put("b", b"two")
        self.assertEqual(list(self.ask("get", keys=["a", "b"], wait=1000)["values"]), ["b"])

    def test_theKeysForWhichOneWaitsAreBounded(self) -> None:
        """For all requests of a client together; who has been answered may wait again."""
        for first in range(0, key_values.MOST_WAITED, 1000):
            self.begin("get", keys=[f"k{number}" for number in range(first, first + 1000)], wait=1000)
        self.assertRaises(TooManyRequests, self.ask, "get", keys=["more"], wait=1000)
        self.begin("get", self.broker.join("fleximq"), keys=["more"], wait=1000)
        self.put("k0", b"")
        self.assertEqual(self.begin("get", keys=["more"], wait=1000), [])

    def test_whoLeavesWaitsNoMore(self) -> None:
        """Nothing of it remains."""
        client = self.broker.join("fleximq")
        answers = self.begin("get", client, keys=["a", "b"], wait=1000)
        self.broker.leave(client, "test")
        self.put("a", b"")
        self.life.clock.advance(2)
        self.assertEqual(answers, [])
        self.assertEqual((self.broker.keyValues._readers, self.broker.keyValues._waiting), ({}, {}))

    # -- limits and rights -------------------------------------------------------------------------------

    def test_largeValues(self) -> None:
        """Are read in several answers."""
        large = bytes(5 << 20)
        for key in "abcd":
            self.put(key, large)
        found: dict[str, Any] = {}
        keys = list("abcd")
        while keys:
            answer = self.ask("get", keys=keys)
            self.assertGreater(len(answer["values"]), 0)
            found |= answer["values"]
            keys = answer["rest"]
        self.assertEqual(sorted(found), list("abcd"))
        self.assertEqual({value for _, value in found.values()}, {large})

    def test_wrongArguments(self) -> None:
        """Are refused in words."""
        wrong: list[tuple[str, dict[str, Any]]] = [
            ("put", {"key": "", "value": b""}),
            ("put", {"key": 1, "value": b""}),
            ("put", {"key": "k" * 1025, "value": b""}),
            ("put", {"key": "k"}),
            ("put", {"key": "k", "value": "text"}),
            ("put", {"value": b""}),
            ("put", {}),
            ("put", {"key": "k", "value": b"", "expires_in": 0}),
            ("put", {"key": "k", "value": b"", "expires_in": MOST_MILLISECONDS + 1}),
            ("put", {"key": "k", "value": b"", "if_revision": -1}),
            ("put", {"key": "k", "value": b"", "if_revision": True}),
            ("get", {}),
            ("get", {"keys": "k"}),
            ("get", {"keys": [1]}),
            ("get", {"keys": ["k"] * 1001}),
            ("get", {"keys": ["k"], "wait": 60_001}),
            ("get", {"keys": ["k"], "after": -1}),
            ("add", {"key": "k", "number": 1.5}),
            ("add", {"key": "k", "number": 1 << 63}),
            ("delete", {}),
            ("list", {"limit": 0}),
        ]
        for path, arguments in wrong:
            self.assertRaises(BadRequest, self.ask, path, **arguments)

    def test_keysOfTheBroker(self) -> None:
        """Cannot be used."""
        self.assertRaises(Forbidden, self.put, "$sys/x", b"")

    def test_rights(self) -> None:
        """Changes need the right to publish, readers that to subscribe."""
        writer, reader = self.broker.join("fleximq"), self.broker.join("fleximq")
        writer.rights, reader.rights = Only(Action.PUBLISH), Only(Action.SUBSCRIBE)  # type: ignore[assignment]
        self.ask("put", writer, key="a", value=b"one")
        self.ask("add", writer, key="n")
        self.assertEqual(list(self.ask("get", reader, keys=["a"])["values"]), ["a"])
        self.assertRaises(NotPermitted, self.ask, "get", writer, keys=["a"])
        for path in ("put", "add", "delete"):
            self.assertRaises(NotPermitted, self.ask, path, reader, key="a", value=b"")
        self.assertEqual([row["key"] for row in self.ask("list", reader)["values"]], ["a", "n"])
        nobody = self.broker.join("fleximq")
        nobody.rights = Only(Action.READ)  # type: ignore[assignment]
        self.assertEqual(self.ask("list", nobody)["values"], [])

    def test_limits(self) -> None:
        """For all, and for one principal; replacing and deleting count."""
        self.broker.changeRules(replace(self.broker.rules, limits=Limits(values=3, valuesPerPrincipal=2)))
        alice, bob = self.broker.join("fleximq", principal="alice"), self.broker.join("fleximq", principal="bob")
        for key in "ab":
            self.ask("put", alice, key=key, value=b"")
        self.assertRaises(TooManyRequests, self.ask, "put", alice, key="c", value=b"")
        self.ask("put", bob, key="c", value=b"")
        self.assertRaises(NoCapacity, self.ask, "add", bob, key="d")
        self.ask("put", alice, key="a", value=b"again")
        self.ask("delete", bob, key="a")
        self.ask("put", alice, key="d", value=b"")

    def test_prefix(self) -> None:
        """Of a list."""
        for key in ("a", "a/1", "a/2", "a/3", "ab", "b"):
            self.put(key, b"")
        first = self.ask("list", limit=2, prefix="a/")
        self.assertEqual([row["key"] for row in first["values"]], ["a/1", "a/2"])
        second = self.ask("list", limit=2, prefix="a/", after=first["next"])
        self.assertEqual(([row["key"] for row in second["values"]], second["next"]), (["a/3"], None))
        self.assertEqual(len(self.ask("list", prefix="a")["values"]), 5)

    def test_count(self) -> None:
        """Of the keys with a prefix of whole levels."""
        for key in ("a", "a/1", "a/2", "a.3", "ab", "b"):
            self.put(key, b"")
        counts = [self.ask("count", prefix=prefix)["count"] for prefix in ("a/", "a.", "b/")]
        self.assertEqual(counts, [2, 1, 0])
        self.assertRaises(BadRequest, self.ask, "count", prefix="a")
        reader = self.broker.join("fleximq")
        reader.rights = Only(Action.PUBLISH)  # type: ignore[assignment]
        self.assertRaises(NotPermitted, self.ask, "count", reader, prefix="a/")

    def test_list(self) -> None:
        """In pages, by key, of those that one may see."""
        for key in ("b", "a", "c"):
            self.put(key, b"")
        self.put("c", b"", expires_in=1000)
        first = self.ask("list", limit=2)
        self.assertEqual([(row["key"], row["expires"]) for row in first["values"]], [("a", None), ("b", None)])
        second = self.ask("list", limit=2, after=first["next"])
        self.assertEqual(second["next"], None)
        [row] = second["values"]
        self.assertEqual(row["expires"], int(self.life.wall() * 1000) + 1000)


class MemoryTests(ValueTests):
    """Without a journal."""

    make = Memory

    def test_memoryIsLimited(self) -> None:
        """By the bytes of a queue; what goes makes room."""
        self.life.stop()
        self.life = Memory(limits=Limits(queueBytes=10_000))
        self.put("a", bytes(5000))
        error = self.assertRaises(BrokerError, self.put, "b", bytes(5000))
        self.assertIsInstance(error, NotKept)
        self.ask("delete", key="a")
        self.put("b", bytes(5000))
        self.put("b", bytes(100))
        self.put("c", bytes(5000))

    def test_keysAreCounted(self) -> None:
        """They may be longer than all the rest of a value; what is deleted counts no more."""
        self.life.stop()
        self.life = Memory(limits=Limits(queueBytes=3000))
        for _ in range(3):
            for key in "ab":
                self.put(key * 1000, b"")
            self.assertRaises(NotKept, self.put, "c" * 1000, b"")
            self.ask("delete", keys=["a" * 1000, "b" * 1000])


class CallbackTests(SynchronousTestCase):
    """Callbacks that fail."""

    def test_laterChangesOfTheKeyGoOn(self) -> None:
        """The error is reported."""
        errors: list[Exception] = []
        clock = Clock()
        broker = makeBroker(clock, onError=errors.append)
        me = broker.join("fleximq")

        def fail(result: Any) -> None:
            raise ValueError(result)

        results: list[Any] = []
        broker.valueChanges.put(me, "a", b"one", 0, None, fail)
        broker.valueChanges.add(me, "n", 1, None, fail)
        broker.valueChanges.put(me, "a", b"two", 0, None, results.append)
        broker.valueChanges.add(me, "n", 1, None, results.append)
        self.assertEqual([type(each) for each in errors], [ValueError, ValueError])
        self.assertEqual(results[1:], [2])
        self.assertIsInstance(results[0], int)
