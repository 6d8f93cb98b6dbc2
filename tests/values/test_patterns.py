"""Patterns that are asked about names."""

from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from fleximq.broker.topics.topic_table import TopicTable
from fleximq.values.patterns import anyOf, covers, doubtIn, faultIn, mistakeIn, overlap
from tests.broker.parts import Collector
from tests.nightly import repetitions

_PARTS = st.sampled_from(["a", "b", "*", "#", ".", "/", "$", "", "a*", "\n", "é"])
#: Every name that tells patterns of up to three of these levels apart; "c" is in none of them.
_LEVELS = ("a", "$a", "", "#", "*", "c", "$c")
_ALL_NAMES = [name for depth in range(1, 5) for levels in product(_LEVELS, repeat=depth) if (name := ".".join(levels))]
_NAMES = st.lists(_PARTS, min_size=1, max_size=8).map("".join).filter(bool)


class AnyOfTests(SynchronousTestCase):
    """A name is asked about."""

    def test_noPatternsMatchNothing(self) -> None:
        """No patterns match nothing."""
        self.assertEqual([anyOf(())(name) for name in ("", "a", "#")], [False] * 3)

    def test_eachWildcardStandsForWhatItStandsForInSubscription(self) -> None:
        """Each wildcard stands for what it stands for in a subscription."""
        for pattern, matching, others in (
            ("a", ["a"], ["A", "a.b", "b", "a."]),
            ("a.*", ["a.b", "a/b", "a."], ["a", "a.b.c", "b.a"]),
            ("*.a", ["b.a", "/a"], ["a", "$b.a"]),
            ("a.#", ["a", "a.b", "a/b.c", "a."], ["ab", "b"]),
            ("#", ["a", "a.b", "a$"], ["$sys/x", "$"]),
            ("$dead.#", ["$dead/t", "$dead"], ["dead"]),
            ("a#", ["a#"], ["a", "ab"]),
            ("#.a", ["#.a", "#/a"], ["b.a"]),
            ("a.b|c", ["a.b|c"], ["a.b", "c"]),
        ):
            matches = anyOf((pattern,))
            self.assertEqual([name for name in matching + others if matches(name)], matching, pattern)

    def test_oneMatchIsEnough(self) -> None:
        """One match is enough."""
        matches = anyOf(("a.*", "b"))
        self.assertEqual([matches(name) for name in ("a.x", "b", "a", "b.x")], [True, True, False, False])

    @given(_NAMES, _NAMES)
    def test_asSubscribed(self, pattern: str, name: str) -> None:
        """A pattern matches the names whose messages a subscription to it brings."""
        table = TopicTable(10, lambda topic: None)
        table.subscribePattern(Collector(), pattern)
        self.assertEqual(anyOf((pattern,))(name), bool(table.subscribers(table.get(name))))


class OverlapTests(SynchronousTestCase):
    """Two patterns are compared."""

    def test_patternsOverlapIfOneNameMatchesBoth(self) -> None:
        """They overlap if there is a name for both."""
        for one, other, expected in (
            ("a", "a", True),
            ("a", "b", False),
            ("a.b", "a/b", True),
            ("a.*", "*.b", True),
            ("a.*", "b.*", False),
            ("a.*", "a", False),
            ("a.#", "a", True),
            ("a.#", "a.b.c", True),
            ("a.#", "b.#", False),
            ("#", "a.*.b", True),
            ("*", "a.#", True),
            ("*.*", "a", False),
            ("#", "$sys/x", False),
            ("*.x", "$sys.x", False),
            ("$sys/#", "$sys/*/joined", True),
            ("$sys/#", "*/x", False),
            ("#.a", "b.a", False),
            ("#.a", "#", True),
            (".#", "*", False),
            (".#", "#", True),
            (".#", ".#", True),
        ):
            self.assertEqual([overlap(one, other), overlap(other, one)], [expected] * 2, (one, other))

    @settings(deadline=None, max_examples=repetitions(120, 1500))
    @given(*[st.lists(st.sampled_from(["a", "$a", "", "*", "#"]), min_size=1, max_size=3).map(".".join)] * 2)
    def test_asMatched(self, one: str, other: str) -> None:
        """They overlap just if one of all names is matched by both."""
        if not (one and other):
            return
        matches, matchesToo = anyOf((one,)), anyOf((other,))
        self.assertEqual(overlap(one, other), any(matches(name) and matchesToo(name) for name in _ALL_NAMES))


class CoversTests(SynchronousTestCase):
    """A pattern that covers another one."""

    def test_whatIsSurelyCoveredAndWhatIsNot(self) -> None:
        """What is surely covered, and what is not."""
        for line in ("a a", "* a", "# a.b", "# #", "a.# a", "a.# a.*.#", "$a.# $a.b", "# *.x", "a/* a.b"):
            self.assertTrue(covers(*line.split()), line)
        for line in ("a b", "a *", "a.* a.#", "a.*.# a.#", "# $a", "*.b $a.b", "a.b a"):
            self.assertFalse(covers(*line.split()), line)

    @given(
        *[st.lists(st.sampled_from(["a", "$a", "*", "b"]), min_size=0, max_size=2)] * 2, st.booleans(), st.booleans()
    )
    def test_asNames(self, one: list[str], other: list[str], oneRest: bool, otherRest: bool) -> None:
        """Every name that matches the covered pattern matches the covering one."""
        wide, narrow = (".".join([*levels, "#"] if rest or not levels else levels)
                        for levels, rest in ((one, oneRest), (other, otherRest)))  # fmt: skip
        if covers(wide, narrow):
            inside, outside = anyOf((narrow,)), anyOf((wide,))
            self.assertEqual([name for name in _ALL_NAMES if inside(name) and not outside(name)], [])


class TypedTests(SynchronousTestCase):
    """A name that may not mean what was typed."""

    def test_wildcardsOfOtherBrokersAreLevels(self) -> None:
        """Wildcards of other brokers are levels; the sentence has the right form."""
        for typed, right in (
            ("a.>", "a.#"),
            (">", "#"),
            ("a/+/b", "a/*/b"),
            ("+.b.+", "*.b.*"),
            ("a.>.b", "a.*.b"),
            ("a.#.>", "a.#.#"),
        ):
            self.assertIn(f"did you mean {right!r}?", mistakeIn(typed) or "", typed)
        for fine in ("a", "a.*.#", "a>", "a.b+c", "a.#.b", "#", "", "$sys/#"):
            self.assertIsNone(mistakeIn(fine), fine)

    def test_misplacedWildcardsAndEmptyLevels(self) -> None:
        """Misplaced wildcards and empty levels."""
        for typed, words in (
            ("a.#.b", "did you mean 'a.*.b'?"),
            ("#/b", "did you mean '*/b'?"),
            ("a..b", "an empty level"),
            ("a/", "an empty level"),
            ("a.b*", "levels of their own"),
            ("**", "levels of their own"),
        ):
            self.assertIn(words, doubtIn(typed) or "", typed)
        for fine in ("a", "a.*.#", "#", "*", "/a/b", "$sys/#", "a*b", ""):
            self.assertIsNone(doubtIn(fine), fine)

    def test_messageHasOneTopicInWhichThereAreNoWildcards(self) -> None:
        """A message has one topic, in which there are no wildcards."""
        for typed in ("*", "a.*", "a.#", "a.#.b", "a.>", "+/a"):
            self.assertIn("is an ordinary topic", doubtIn(typed, publishes=True) or "", typed)
        self.assertIn("an empty level", doubtIn("a..b", publishes=True) or "")
        for fine in ("a", "a.b", "/a", "a*", "c#"):
            self.assertIsNone(doubtIn(fine, publishes=True), fine)

    def test_rules(self) -> None:
        """A pattern of the settings that would never match is a fault, though a topic could have the name."""
        own, seen = "as levels of their own only", "cannot be seen"
        blank, empty = "begin or end with a blank", "an empty level"
        for typed, words in (
            ("payroll-*", own),
            ("payroll#", own),
            ("a.pay*roll.b", own),
            ("*payroll", own),
            ("**", own),
            ("a.##", own),
            ("#, orders", own),
            ("#-x", own),
            (" payroll.#", blank),
            ("payroll.# ", blank),
            ("payroll .#", blank),
            ("payroll. *", blank),
            ("pay..x", empty),
            ("pay.", empty),
            ("pay/", empty),
            (".pay", empty),
            ("a./b", empty),
            ("pay\x00roll", seen),
            ("payroll.#\n", seen),
            ("\tpayroll", seen),
            ("payroll\u200b.#", seen),
            ("pay\u00a0roll", seen),
            ("\ud800", seen),
            ("a.#.b", "only the last level"),
            ("a.>", "did you mean 'a.#'?"),
        ):
            self.assertIn(words, faultIn(typed) or "", ascii(typed))
        for fine in (
            "a",
            "#",
            "*",
            "a.*.#",
            "/a/#",
            "$sys/#",
            "pay roll.#",
            "#general",
            "a.#c-1",
            "\u0645\u06cc\u200c\u062e",
            "é",
        ):
            self.assertIsNone(faultIn(fine), fine)
