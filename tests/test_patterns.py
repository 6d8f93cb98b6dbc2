"""Patterns that are asked about names."""

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from fleximq.broker.topics import TopicTable
from fleximq.patterns import anyOf
from tests.broker.parts import Collector

_PARTS = st.sampled_from(["a", "b", "*", "#", ".", "/", "$", "", "a*", "\n", "é"])
_NAMES = st.lists(_PARTS, min_size=1, max_size=8).map("".join).filter(bool)


class AnyOfTests(SynchronousTestCase):
    """A name is asked about."""

    def test_none(self) -> None:
        """No patterns match nothing."""
        self.assertEqual([anyOf(())(name) for name in ("", "a", "#")], [False] * 3)

    def test_examples(self) -> None:
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

    def test_several(self) -> None:
        """One match is enough."""
        matches = anyOf(("a.*", "b"))
        self.assertEqual([matches(name) for name in ("a.x", "b", "a", "b.x")], [True, True, False, False])

    @given(_NAMES, _NAMES)
    def test_asSubscribed(self, pattern: str, name: str) -> None:
        """A pattern matches the names whose messages a subscription to it brings."""
        table = TopicTable(10, lambda topic: None)
        table.subscribePattern(Collector(), pattern)
        self.assertEqual(anyOf((pattern,))(name), bool(table.subscribers(table.get(name))))
