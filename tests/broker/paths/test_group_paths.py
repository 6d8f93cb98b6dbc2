"""The broker's paths for consumer groups: what they say of themselves, and what others are told."""

from functools import partial
from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from fleximq.broker.envelope import Envelope, MessageSource
from fleximq.broker.paths import path_table
from fleximq.broker.paths.group_paths import GROUP_PATHS
from fleximq.errors import BadRequest, NoCapacity, NotPermitted
from fleximq.security.permissions import Rights
from fleximq.values.state_records import MAX_GROUP_NAME_BYTES, MAX_GROUPS, GroupForgotten, GroupProgress
from tests.broker.parts import askAt, makeBroker, text
from tests.slow_journal import SlowJournal


class GroupCase(SynchronousTestCase):
    """A broker with a journal, at a second of its clock."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.clock.advance(1000)
        self.journal = SlowJournal()
        self.broker = makeBroker(self.clock, journal=self.journal, durable=("d.#",))
        self.client = self.broker.join("any")

    def ask(self, path: str, **arguments: Any) -> Any:
        """Return an answer that comes at once."""
        return askAt(self.broker, path, arguments)

    def keep(self, *contents: str) -> None:
        """Publish and commit."""
        envelope = Envelope(self.broker.topicFor(self.client, "d.t"), self.client, MessageSource())
        self.broker.publish(envelope, text(*contents), len(contents))
        self.journal.commit()

    def tell(self, group: str, next: int, journal: str | None = None, **more: Any) -> Any:
        """Say how far a group is."""
        word = {"group": group, "journal": journal or self.journal.id, "next": next} | more
        return self.ask("/pipeline/lag", groups=[word])

    def groups(self, **arguments: Any) -> list[Any]:
        """Return the rows."""
        found: list[Any] = self.ask("/pipeline/groups", **arguments)["groups"]
        return found


class LagTests(GroupCase):
    """``/pipeline/lag``."""

    def test_taken(self) -> None:
        """What is about this journal is taken, and noted; the answer says which journal it is."""
        self.assertEqual(self.tell("g", 5, lost=2, time=7), {"journal": self.journal.id, "taken": 1})
        self.assertEqual(self.journal.notes, [GroupProgress("g", 5, 7000, 2)])

    def test_dead(self) -> None:
        """Dead letters are for the metrics only, until the group is forgotten; others' are passed over."""
        words = [{"group": name, "journal": id, "next": 1} for name, id in (("a", self.journal.id), ("b", "other"))]
        self.ask("/pipeline/lag", groups=[word | {"dead": 3} for word in words])
        self.assertEqual(self.broker.groups.dead, {"a": 3})
        self.ask("/pipeline/lag", groups=words)
        self.assertEqual(self.broker.groups.dead, {"a": 3})
        self.broker.groups.forget("a")
        self.assertEqual(self.broker.groups.dead, {})

    def test_otherJournal(self) -> None:
        """What is about another journal is passed over."""
        self.assertEqual(self.tell("g", 5, "other"), {"journal": self.journal.id, "taken": 0})
        self.assertEqual((self.groups(), self.journal.notes), ([], []))

    def test_permitted(self) -> None:
        """Reporting needs a right of its own, for each group; the right to read is not enough."""
        word = {"journal": self.journal.id, "next": 5}
        for grants, permitted in ({"read": ("#",)}, False), ({"progress": ("g",)}, True), ({"progress": ("h",)}, False):
            client = self.broker.join("any", rights=Rights(grants))
            ask = partial(
                path_table.answer, self.broker, client, "/pipeline/lag", {"groups": [word | {"group": "g"}]}, [].append
            )
            if permitted:
                ask()
            else:
                self.assertRaises(NotPermitted, ask)
            self.assertEqual(len(self.groups()), int(permitted))
            self.broker.groups.forget("g")

    def test_several(self) -> None:
        """Several groups may say something at once."""
        words = [{"group": name, "journal": self.journal.id, "next": 1} for name in "ba"]
        self.assertEqual(self.ask("/pipeline/lag", groups=words)["taken"], 2)
        self.assertEqual([row["group"] for row in self.groups()], ["a", "b"])

    def test_defaults(self) -> None:
        """Without a time it is now, and without what is lost it is what was said before."""
        self.tell("g", 5, lost=3)
        self.tell("g", 6)
        [row] = self.groups()
        self.assertEqual((row["next"], row["lost"], row["time"]), (6, 3, 1_000_000))

    def test_unchanged(self) -> None:
        """A group that is where it was costs the journal nothing, but its time is shown."""
        self.tell("g", 5, time=1)
        self.tell("g", 5, time=9)
        self.assertEqual(len(self.journal.notes), 1)
        self.assertEqual(self.groups()[0]["time"], 9)

    def test_back(self) -> None:
        """A group may begin anew."""
        self.tell("g", 5)
        self.tell("g", 2)
        self.assertEqual(self.groups()[0]["next"], 2)

    def test_most(self) -> None:
        """There are so many groups at most; one more is refused, with all that it came with."""
        word = {"journal": self.journal.id, "next": 1}
        self.ask("/pipeline/lag", groups=[word | {"group": f"g{number}"} for number in range(MAX_GROUPS)])
        self.tell("g5", 2)
        error = self.assertRaises(
            NoCapacity, self.ask, "/pipeline/lag", groups=[word | {"group": g} for g in ("g5", "x")]
        )
        self.assertEqual(str(error), "there may be 1000 consumer groups, and there are 1000")
        self.assertEqual(self.broker.groups.get("g5"), GroupProgress("g5", 2, 1_000_000_000))
        self.ask("/pipeline/forget", group="g0")
        self.tell("x", 1)

    def test_silent(self) -> None:
        """Groups that have been silent for a day make room, the one that was silent longest first."""
        word = {"journal": self.journal.id, "next": 1}
        self.ask("/pipeline/lag", groups=[word | {"group": f"g{number}"} for number in range(MAX_GROUPS)])
        self.clock.advance(80_000)
        self.tell("g1", 2)
        self.clock.advance(1)
        self.tell("g0", 2)
        self.clock.advance(6_398)
        self.assertRaises(NoCapacity, self.tell, "x", 1)
        self.clock.advance(1)
        self.ask("/pipeline/lag", groups=[word | {"group": f"x{number}"} for number in range(MAX_GROUPS - 2)])
        self.assertRaises(NoCapacity, self.tell, "x", 1)
        self.clock.advance(80_000)
        self.tell("x", 1)
        self.assertIsNone(self.broker.groups.get("g1"))
        self.assertIsNotNone(self.broker.groups.get("g0"))
        self.assertEqual(len(self.broker.groups), MAX_GROUPS)

    def test_future(self) -> None:
        """No group has said something later than now."""
        self.tell("g", 1, time=1 << 40)
        self.assertEqual(self.groups()[0]["time"], 1_000_000)

    def test_refused(self) -> None:
        """What is no word of a group is refused, and nothing of it is taken."""
        good = {"group": "g", "journal": self.journal.id, "next": 1}
        for name, value in (
            ("group", ""),
            ("group", "x" * (MAX_GROUP_NAME_BYTES + 1)),
            ("group", 5),
            ("journal", None),
            ("next", -1),
            ("next", "5"),
            ("lost", 1.5),
            ("time", 1 << 63),
            ("time", (1 << 63) // 1000 + 1),
        ):
            self.assertRaises(BadRequest, self.ask, "/pipeline/lag", groups=[good, good | {name: value}])
        self.assertRaises(BadRequest, self.ask, "/pipeline/lag", groups=[5])
        self.assertRaises(BadRequest, self.ask, "/pipeline/lag", groups=[good] * (MAX_GROUPS + 1))
        self.assertRaises(BadRequest, self.ask, "/pipeline/lag")
        self.assertEqual(len(self.broker.groups), 0)
        self.tell("x" * MAX_GROUP_NAME_BYTES, 1)

    def test_noJournal(self) -> None:
        """Without a journal there is nothing to be behind of."""
        self.broker = makeBroker(self.clock)
        for path in GROUP_PATHS:
            error = self.assertRaises(NoCapacity, self.ask, path, group="g", groups=[])
            self.assertEqual(str(error), "there is no journal: the broker was started without --journal")


class GroupsTests(GroupCase):
    """``/pipeline/groups``."""

    def test_inOrder(self) -> None:
        """The journal is read in its own order, whatever the groups are called, and once for those at one place."""
        self.keep(*"abcdef")
        read: list[int] = []
        real = self.journal.read

        def note(offset: int, *more: Any) -> None:
            read.append(offset)
            real(offset, *more)

        self.patch(self.journal, "read", note)
        for group, next in (("a", 5), ("b", 2), ("c", 4), ("d", 2), ("e", 1)):
            self.tell(group, next)
        self.assertEqual([row["next"] for row in self.groups()], [5, 2, 4, 2, 1])
        self.assertEqual(read, [1, 2, 4, 5])

    def test_behind(self) -> None:
        """How much a group has not read, and for how long the oldest of it has been there."""
        self.journal.now = 990 * 1_000_000
        self.keep("a", "bb")
        self.journal.now = 995 * 1_000_000
        self.keep("ccc")
        for group, next in (("all", 4), ("none", 1), ("one", 3)):
            self.tell(group, next)
        found = self.ask("/pipeline/groups")
        self.assertEqual((found["journal"], found["end"], found["next"]), (self.journal.id, 4, None))
        behind = [(row["group"], row["records"], row["bytes"], row["seconds"]) for row in found["groups"]]
        self.assertEqual(behind, [("all", 0, 0, 0.0), ("none", 3, 6, 10.0), ("one", 1, 3, 5.0)])

    def test_same(self) -> None:
        """Groups that are equally far cost one reading."""
        self.keep("a")
        for group in "abc":
            self.tell(group, 1)
        before = self.journal.reads
        self.assertEqual({row["seconds"] for row in self.groups()}, {999.0})
        self.assertEqual(self.journal.reads, before + 1)

    def test_patient(self) -> None:
        """The answer comes when the journal has answered."""
        self.keep("a", "b")
        self.tell("a", 1)
        self.tell("b", 2)
        self.journal.patient = True
        answers: list[Any] = []
        path_table.answer(self.broker, self.client, "/pipeline/groups", {}, answers.append)
        self.journal.answer()
        self.assertEqual(answers, [])
        self.journal.answer()
        self.assertEqual([row["records"] for row in answers[0]["groups"]], [2, 1])

    def test_unreadable(self) -> None:
        """A record that cannot be read has no age."""
        self.keep("a")
        self.tell("g", 1)
        self.patch(self.journal, "read", lambda offset, wanted, most, found: found([], offset))
        self.assertIsNone(self.groups()[0]["seconds"])

    def test_ahead(self) -> None:
        """A group that is further than the journal, which was restored from a copy, waits for nothing."""
        self.keep("a")
        self.tell("g", 100)
        self.assertEqual(self.groups()[0]["records"], 0)

    def test_pages(self) -> None:
        """Groups come by name, so many at a time."""
        for name in "cab":
            self.tell(name, 1)
        found = self.ask("/pipeline/groups", limit=2)
        self.assertEqual(([row["group"] for row in found["groups"]], found["next"]), (["a", "b"], "b"))
        self.assertEqual([row["group"] for row in self.groups(after="b")], ["c"])

    def test_about(self) -> None:
        """``/broker/about`` counts them."""
        self.tell("g", 1)
        self.assertEqual(self.ask("/broker/about")["groups"], 1)


class ForgetTests(GroupCase):
    """``/pipeline/forget``."""

    def test_forgotten(self) -> None:
        """A group is gone until it says something again; the journal is told."""
        self.tell("g", 5, lost=3)
        self.assertEqual(self.ask("/pipeline/forget", group="g"), {"forgotten": True})
        self.assertEqual((self.groups(), self.journal.notes[-1]), ([], GroupForgotten("g")))
        self.tell("g", 7)
        self.assertEqual((self.groups()[0]["next"], self.groups()[0]["lost"]), (7, 0))

    def test_unknown(self) -> None:
        """One that is not known is no error, and nothing to note."""
        self.assertEqual(self.ask("/pipeline/forget", group="g"), {"forgotten": False})
        self.assertEqual(self.journal.notes, [])

    def test_refused(self) -> None:
        """A name is needed."""
        self.assertRaises(BadRequest, self.ask, "/pipeline/forget")
