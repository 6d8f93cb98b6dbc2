"""The topic table: names, subscribers, wildcards, routes, idle topics."""

from itertools import chain, combinations
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from fleximq.broker.topics.names import PATTERN_LEVELS, checkName
from fleximq.broker.topics.topic_table import Topic, TopicTable
from fleximq.errors import InvalidTopic
from fleximq.interfaces import IGuard, ISubscriber
from fleximq.values.patterns import isPattern
from tests.broker.parts import AsMessages, Collector
from tests.nightly import repetitions
from tests.processor_time import Measured, processorSeconds

#: Pattern, names that match, names that do not (docs/reference/dialects.rst, "Topics").
MATCHES = [
    ("*", "a ** # * a* a$", "a.b a/b a. . /x $a $ $sys/x"),
    ("#", "a a.b a/b/c a. .a /", "$ $a $sys/clients/joined"),
    ("a.*", "a.b a/b a.* a. a/", "a a.b.c b.a A.b ab a.b/c"),
    ("a/*", "a.b a/b", "a a/b/c"),
    ("*.b", "a.b a/b .b *.b", "b a.b.c $a.b $/b a.B"),
    ("*.*", "a.b a/b . / a.", "a a.b.c $a.b"),
    ("a.#", "a a.b a/b a.b.c a/b/c a.", "b ab a$ b.a"),
    ("a/#", "a a.b a.b.c", "b"),
    ("a.*.c", "a.b.c a/b/c a..c a.b/c", "a.c a.b.b.c a.b a.b.c."),
    ("a.*.#", "a.b a.b.c a/b/c/d", "a b.a"),
    ("*.#", "a a.b a.b.c .x", "$a $a.b"),
    ("*.*.#", "a.b a.b.c", "a $a.b"),
    ("$sys/#", "$sys/clients/joined $sys $sys.x", "sys/x $sysx a"),
    ("$sys/*/left", "$sys/clients/left $sys.x.left", "$sys/left"),
    ("$sys/*", "$sys/x", "$sys $sys/x/y"),
    ("a.#.*", "a.#.b a/#/b", "a.b a.b.c a.#"),
    ("..*", "..a ./b .. //x", ". a..b ...a"),
]


@implementer(IGuard, ISubscriber)
class _Guard(Collector):
    """A subscriber that may refuse, and does not."""

    def admits(self, count: int, size: int) -> str | None:
        return None


def naive(pattern: str, name: str) -> bool:
    """Tell whether a pattern matches, in the plainest way."""
    levels, wanted = name.replace("/", ".").split("."), pattern.replace("/", ".").split(".")
    if name.startswith("$") and wanted[0] in ("*", "#"):
        return False
    if wanted[-1] == "#":
        wanted.pop()
        if len(levels) < len(wanted):
            return False
        levels = levels[: len(wanted)]
    return len(levels) == len(wanted) and all(want in ("*", level) for want, level in zip(wanted, levels, strict=True))


class TableCase(SynchronousTestCase):
    """A table that remembers three idle topics, and notes what it tells."""

    def setUp(self) -> None:
        """Make the table."""
        self.created: list[str] = []
        self.changes = 0
        self.table = TopicTable(3, lambda topic: self.created.append(topic.name), self.channelsChanged)

    def channelsChanged(self) -> None:
        """Count."""
        self.changes += 1

    def takers(self, name: str) -> list[Any]:
        """Return who takes what is published to a name."""
        return list(self.table.subscribers(self.table.get(name)))


class NameTests(SynchronousTestCase):
    """What a topic may be called."""

    def test_length(self) -> None:
        """Up to 1,024 bytes of UTF-8, not empty."""
        for name in ("x", "x" * 1024, "é" * 512, "€" * 341 + "x", "𝄞" * 256, "\0", " "):
            checkName(name)
        for name in ("", "x" * 1025, "é" * 512 + "x", "€" * 341 + "xx", "𝄞" * 256 + "x"):
            self.assertRaises(InvalidTopic, checkName, name)

    def test_deadLetters(self) -> None:
        """The prefix of a dead-letter topic comes on top."""
        checkName("$dead/" + "x" * 1024)
        self.assertRaises(InvalidTopic, checkName, "$dead/" + "x" * 1025)

    def test_patterns(self) -> None:
        """Only a whole level is a wildcard, and ``#`` only the last."""
        for name in ("*", "#", "a.*", "*.a", "a/#", "a.*.b", "*#.*", "#.*", ".#", "/*"):
            self.assertTrue(isPattern(name), name)
        for name in ("a", "a*", "*a", "#a", "a.#.b", "#.a", "a.b*", "a.**", "##", "", "a.#/"):
            self.assertFalse(isPattern(name), name)


class MatchTests(TableCase):
    """Wildcards."""

    def test_table(self) -> None:
        """What each pattern matches, and what not; the plain matcher agrees."""
        for pattern, matching, others in MATCHES:
            table = TopicTable(100, lambda topic: None)
            taker = Collector()
            table.subscribePattern(taker, pattern)
            for name in matching.split() + others.split():
                wanted = name in matching.split()
                self.assertEqual(bool(table.subscribers(table.get(name))), wanted, f"{pattern} {name}")
                self.assertEqual(table.hasSubscribers(name), wanted, f"{pattern} {name}")
                self.assertEqual(naive(pattern, name), wanted, f"{pattern} {name}")

    NAMES = st.lists(st.sampled_from(["a", "b", "", "$", "$a", "*", "#", "a*"]), min_size=1, max_size=5).flatmap(
        lambda levels: st.lists(st.sampled_from("./"), min_size=len(levels) - 1, max_size=len(levels) - 1).map(
            lambda cuts: "".join(part for pair in zip(levels, [*cuts, ""], strict=True) for part in pair)
        )
    )

    @settings(deadline=None, max_examples=repetitions(120, 1500))
    @given(st.lists(NAMES.filter(isPattern), max_size=8), st.lists(NAMES.filter(bool), max_size=8), st.integers(0, 8))
    def test_naive(self, patterns: list[str], names: list[str], removed: int) -> None:
        """Any patterns, some of them taken back, against the plain matcher."""
        table = TopicTable(100, lambda topic: None)
        takers = [(Collector(), pattern) for pattern in patterns]
        for taker, pattern in takers:
            table.subscribePattern(taker, pattern)
        for taker, pattern in takers[:removed]:
            table.unsubscribePattern(taker, pattern)
        for name in names:
            found = set(table.subscribers(table.get(name)))
            self.assertEqual(found, {taker for taker, pattern in takers[removed:] if naive(pattern, name)})

    @settings(deadline=None)
    @given(
        st.lists(st.tuples(st.booleans(), NAMES.filter(isPattern)), max_size=12),
        st.lists(NAMES.filter(bool), max_size=5),
    )
    def test_one(self, steps: list[tuple[bool, str]], names: list[str]) -> None:
        """One subscriber with many patterns: it is there once while one of them matches."""
        table = TopicTable(100, lambda topic: None)
        taker = Collector()
        held: set[str] = set()
        for adds, pattern in steps:
            if adds and pattern not in held:
                held.add(pattern)
                table.subscribePattern(taker, pattern)
            elif not adds and pattern in held:
                held.discard(pattern)
                table.unsubscribePattern(taker, pattern)
        for name in names:
            wanted = [taker] if any(naive(pattern, name) for pattern in held) else []
            self.assertEqual(list(table.subscribers(table.get(name))), wanted)

    def test_separators(self) -> None:
        """Patterns that differ in their separators only are two: one ends, the other stays."""
        taker = Collector()
        for last in ("*", "#"):
            for pattern in ("a." + last, "a/" + last):
                self.table.subscribePattern(taker, pattern)
            for pattern, wanted in (("a." + last, [taker]), ("a/" + last, [])):
                self.table.unsubscribePattern(taker, pattern)
                self.assertEqual(self.takers("a.b"), wanted)

    def test_nothingLeft(self) -> None:
        """When all patterns are taken back the tree is empty, and taking back what is not there does nothing."""
        taker = Collector()
        patterns = [pattern for pattern, _, _ in MATCHES]
        for pattern in patterns:
            self.table.subscribePattern(taker, pattern)
        for pattern in [*reversed(patterns), *patterns, "x.*", "a.b.c.*"]:
            self.table.unsubscribePattern(taker, pattern)
        root = self.table._wildcards._root
        self.assertFalse(root.children or root.rest)
        self.assertFalse(self.table.hasSubscribers("a"))

    def test_tooLong(self) -> None:
        """A pattern is held to the length of topics."""
        self.table.subscribePattern(Collector(), "x" * 1022 + ".*")
        self.assertRaises(InvalidTopic, self.table.subscribePattern, Collector(), "x" * 1023 + ".*")

    def test_levels(self) -> None:
        """A pattern has so many levels and no more, however they are separated; nothing is left of one too deep."""
        for name in ("*" + "/a" * (PATTERN_LEVELS - 1), "a." * (PATTERN_LEVELS - 1) + "#"):
            self.table.subscribePattern(Collector(), name)
            self.assertRaises(InvalidTopic, self.table.subscribePattern, Collector(), "b." + name)
        self.assertFalse(self.table.hasSubscribers("b" + ".a" * PATTERN_LEVELS))

    def test_deepNames(self) -> None:
        """Names of many levels against patterns of many wildcards take no long time."""
        for depth in range(1, 9):
            self.table.subscribePattern(Collector(), ".".join("*" * depth))
        with Measured() as measured:
            for depth in range(1, 500, 10):
                self.assertEqual(len(self.takers(".".join("a" * depth))), depth <= 8)
        self.assertLess(measured.seconds, 0.5)

    def test_wildLevels(self) -> None:
        """Beyond 8 levels a pattern has at most two levels ``*``, beyond 16 one."""
        for most, length in ((8, 8), (2, 9), (2, 16), (1, 17), (1, PATTERN_LEVELS)):
            self.table.subscribePattern(Collector(), ".".join("a" * (length - most) + "*" * most))
            if length > 8:
                pattern = ".".join("a" * (length - most - 1) + "*" * (most + 1))
                self.assertRaises(InvalidTopic, self.table.subscribePattern, Collector(), pattern)

    def test_allPatterns(self) -> None:
        """All patterns that overlap in one name, of the permitted ones, cost a few milliseconds."""
        taker, length = Collector(), PATTERN_LEVELS
        for size, most in ((8, 8), (16, 2), (length, 1)):
            for wild in chain.from_iterable(combinations(range(size), count) for count in range(most + 1)):
                levels = ["*" if place in wild else "a" for place in range(size - 1)]
                self.table.subscribePattern(taker, ".".join((*levels, "b")))
        seconds = processorSeconds(lambda: self.takers("a." * (length - 1) + "c"))
        self.assertLess(seconds, 0.02)


class SubscriptionTests(TableCase):
    """Exact names."""

    def test_same(self) -> None:
        """One name is one topic."""
        self.assertIs(self.table.get("t"), self.table.get("t"))
        self.assertIsNot(self.table.get("t"), self.table.get("T"))

    def test_invalid(self) -> None:
        """No topic comes into being under an invalid name."""
        for name in ("", "x" * 1025):
            self.assertRaises(InvalidTopic, self.table.get, name)
            self.assertRaises(InvalidTopic, self.table.subscribe, Collector(), name)
            self.table.unsubscribe(Collector(), name)
        self.assertEqual((len(self.table), self.created), (0, []))

    def test_once(self) -> None:
        """Adding again changes nothing, and one removal ends it."""
        taker = Collector()
        for _ in range(3):
            self.table.subscribe(taker, "t")
        self.assertEqual(self.takers("t"), [taker])
        self.table.unsubscribe(taker, "t")
        self.assertEqual(self.takers("t"), [])

    def test_exactFirst(self) -> None:
        """Exact subscribers come first, in order; each once."""
        wild, first, second = Collector(), Collector(), Collector()
        self.table.subscribePattern(wild, "*")
        self.table.subscribePattern(first, "*")
        self.table.subscribe(first, "t")
        self.table.subscribe(second, "t")
        self.assertEqual(self.takers("t"), [first, second, wild])

    def test_literal(self) -> None:
        """A name with wildcards may be subscribed to literally."""
        taker = Collector()
        self.table.subscribe(taker, "a.*")
        self.assertEqual((self.takers("a.*"), self.takers("a.b")), ([taker], []))

    def test_created(self) -> None:
        """Each topic is told when it comes into being, once, by whatever use; not by asking for it."""
        self.table.find("x")
        self.table.hasSubscribers("x")
        self.table.unsubscribe(Collector(), "x")
        for _ in range(2):
            self.table.get("a")
            self.table.subscribe(Collector(), "b")
            self.table.subscribePattern(Collector(), "c.*")
        self.assertEqual(self.created, ["a", "b"])


class RouteTests(TableCase):
    """What a publication follows."""

    def test_byForm(self) -> None:
        """One route for each form, with everybody who takes it."""
        form = AsMessages()
        one, two, other = Collector(form), Collector(form), Collector()
        for taker in (one, other, two):
            self.table.subscribe(taker, "t")
        routes = self.table.route(self.table.get("t"))
        self.assertEqual([each[0] for each in routes], [form, other.form])
        self.assertEqual([list(each[1]) for each in routes], [[one.deliver, two.deliver], [other.deliver]])

    def routed(self, topic: Topic) -> int:
        """Return how many take part, through the remembered routes if there are any."""
        routes = topic.routes if topic.routes is not None else self.table.route(topic)
        return sum(len(delivers) for _, delivers in routes)

    def test_remembered(self) -> None:
        """Routes are remembered, and made anew after each change that concerns them."""
        topic = self.table.get("a.b")
        exact, wild = Collector(), Collector()
        changes = [
            (lambda: self.table.subscribe(exact, "a.b"), 1),
            (lambda: self.table.subscribePattern(wild, "a.*"), 2),
            (lambda: self.table.subscribePattern(exact, "#"), 2),
            (lambda: self.table.unsubscribe(exact, "a.b"), 2),
            (lambda: self.table.unsubscribePattern(exact, "#"), 1),
            (lambda: self.table.unsubscribePattern(wild, "a.*"), 0),
        ]
        self.assertEqual(self.routed(topic), 0)
        for change, wanted in changes:
            change()
            self.assertEqual(self.routed(topic), wanted)
            self.assertIs(topic.routes, topic.routes)
            self.assertIsNotNone(topic.routes)

    def test_untouched(self) -> None:
        """A change of another exact name leaves them alone."""
        topic = self.table.get("t")
        routes = self.table.route(topic)
        self.table.subscribe(Collector(), "u")
        self.assertIs(topic.routes, routes)


class IdleTests(TableCase):
    """Topics without a subscriber are remembered up to a bound."""

    def names(self) -> list[str]:
        """Return all topics."""
        return [topic.name for topic in self.table]

    def test_oldestGoes(self) -> None:
        """At the bound all stay; above it the oldest goes, and knows it."""
        first = self.table.get("a")
        for name in "bc":
            self.table.get(name)
        self.assertEqual((self.names(), first.gone), (["a", "b", "c"], False))
        self.table.get("d")
        self.assertEqual((self.names(), first.gone, first.needsOrder), (["b", "c", "d"], True, True))
        self.assertIsNone(self.table.find("a"))

    def test_subscribedStay(self) -> None:
        """One with a subscriber never goes; without it is idle again, as the youngest."""
        taker = Collector()
        self.table.subscribe(taker, "a")
        for name in "bcdef":
            self.table.get(name)
        self.assertEqual(self.names(), ["a", "d", "e", "f"])
        self.table.get("a").published += 1
        self.table.unsubscribe(taker, "a")
        self.assertEqual(sorted(self.names()), ["a", "e", "f"])

    def test_neverPublished(self) -> None:
        """One that only had subscribers goes with the last of them; its publishers find a new one."""
        takers = [Collector(), Collector()]
        for taker in takers:
            self.table.subscribe(taker, "a")
        topic = self.table.get("a")
        self.table.unsubscribe(takers[0], "a")
        self.assertEqual((self.names(), topic.gone), (["a"], False))
        self.table.unsubscribe(takers[1], "a")
        self.assertEqual((self.names(), self.table.names.all(), self.table.channels(), topic.gone), ([], [], [], True))

    def test_isDurable(self) -> None:
        """A question makes no topic."""
        self.assertFalse(self.table.isDurable("a"))
        self.assertEqual(self.names(), [])
        self.table.subscribe(Collector(), "a", queue=True, durable=True)
        self.assertTrue(self.table.isDurable("a"))

    def test_subscriptions(self) -> None:
        """Those to the name and to patterns count, but neither work queues nor what is no client."""
        topic, taker, other = self.table.get("a.b"), Collector(), Collector()
        for pattern in ("#", "a.*", "a.c", "*"):
            self.table.subscribePattern(taker, pattern)
            self.table.subscribePattern(other, pattern)
        self.table.others.add(other)
        self.table.subscribe(taker, "a.b")
        self.table.subscribe(Collector(), "a.b", queue=True)
        self.assertEqual(self.table.subscriptions(topic), 3)

    def test_boundOfOne(self) -> None:
        """With a bound of one the youngest stays, also when others come into being meanwhile."""

        def created(topic: Topic) -> None:
            if not topic.name.startswith("$"):
                table.get("$told")

        table = TopicTable(1, created)
        taker = Collector()
        table.subscribe(taker, "t")
        self.assertEqual(list(table.subscribers(table.get("t"))), [taker])
        topic = table.get("u")
        self.assertFalse(topic.gone)
        self.assertIs(table.find("u"), topic)

    def test_again(self) -> None:
        """A name that was forgotten comes into being again, as another topic."""
        first = self.table.get("a")
        for name in "bcd":
            self.table.get(name)
        self.assertIsNot(self.table.get("a"), first)
        self.assertEqual(self.created, ["a", "b", "c", "d", "a"])


class ChannelTests(TableCase):
    """Names that have subscribers."""

    def test_channels(self) -> None:
        """Sorted; patterns, work queues and topics that are only published to are none."""
        one, two = Collector(), Collector()
        self.table.get("silent")
        self.table.subscribe(one, "b")
        self.table.subscribe(two, "b")
        self.table.subscribe(one, "a")
        self.table.subscribe(Collector(), "queue", queue=True)
        self.table.subscribePattern(one, "c.*")
        self.assertEqual((self.table.channels(), self.changes), (["a", "b"], 2))

    def test_queueGone(self) -> None:
        """A work queue that ends leaves the count of subscribers as it was."""
        queue, taker = Collector(), Collector()
        self.table.subscribe(queue, "t", queue=True)
        self.table.subscribe(taker, "t")
        self.table.unsubscribe(queue, "t", queue=True)
        self.assertEqual((self.table.get("t").subscribers, self.table.channels()), (1, ["t"]))

    def test_changes(self) -> None:
        """A change is told when a name gets its first or loses its last subscriber, not otherwise."""
        one, two = Collector(), Collector()
        for change, wanted, channels in (
            (lambda: self.table.subscribe(one, "t"), 1, ["t"]),
            (lambda: self.table.subscribe(two, "t"), 1, ["t"]),
            (lambda: self.table.unsubscribe(one, "t"), 1, ["t"]),
            (lambda: self.table.unsubscribe(one, "t"), 1, ["t"]),
            (lambda: self.table.unsubscribe(two, "t"), 2, []),
        ):
            change()
            self.assertEqual((self.changes, self.table.channels()), (wanted, channels))

    def test_guards(self) -> None:
        """While somebody who may refuse is subscribed, publications are careful."""
        guard = _Guard()
        self.table.subscribe(Collector(), "t")
        topic = self.table.get("t")
        self.assertFalse(topic.needsOrder)
        self.table.subscribe(guard, "t", guard=guard)
        self.assertTrue(topic.needsOrder)
        self.assertEqual(topic.guards, {guard: guard})
        self.table.unsubscribe(guard, "t")
        self.assertFalse(topic.needsOrder)
