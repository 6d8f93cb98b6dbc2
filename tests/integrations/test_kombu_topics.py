"""Topics of exchanges, and sources of bindings."""

from importlib.util import find_spec

from twisted.trial.unittest import SynchronousTestCase

from fleximq.values.patterns import anyOf

_MISSING = "" if find_spec("amqp") else "needs the extra celery"
if not _MISSING:
    from fleximq.integrations.kombu.topics import bindingSource, topicOf


class TopicTests(SynchronousTestCase):
    """A binding matches the publications that AMQP says."""

    if _MISSING:
        skip = _MISSING

    def matches(self, kind: str, binding: str, key: str, bound: str = "x", published: str = "x") -> bool:
        """Return whether a binding to one exchange gets a publication to another."""
        return anyOf([bindingSource(bound, binding, kind)])(topicOf(published, key))

    def test_defaultExchangeIsTheQueue(self) -> None:
        """Its topic is the routing key itself."""
        self.assertEqual(topicOf("", "jobs.mail"), "jobs.mail")

    def test_directMatchesTheSameKey(self) -> None:
        """Literally, also one with wildcards."""
        for binding, key, expected in (("a.b", "a.b", True), ("a.b", "a.c", False), ("a.*", "a.*", True),
                                       ("a.*", "a.b", False), ("#", "a", False), ("", "", True)):  # fmt: skip
            self.assertIs(self.matches("direct", binding, key), expected, (binding, key))

    def test_topicMatchesWords(self) -> None:
        """``*`` is one word, a last ``#`` any number."""
        for binding, key, expected in (("a.*", "a.b", True), ("a.*", "a", False), ("a.*", "a.b.c", False),
                                       ("a.#", "a", True), ("a.#", "a.b.c", True), ("#", "a.b", True),
                                       ("*.b", "a.b", True), ("a.b", "a.b", True), ("a*", "ab", False)):  # fmt: skip
            self.assertIs(self.matches("topic", binding, key), expected, (binding, key))

    def test_fanoutMatchesAll(self) -> None:
        """Any key, and none."""
        for key in ("", "a", "a.b"):
            self.assertTrue(self.matches("fanout", "ignored", key))

    def test_exchangesAreApart(self) -> None:
        """Also those whose names have separators or wildcards."""
        for bound, published in (("a", "a.b"), ("a", "ab"), ("a.b", "a/b"), ("a%2Eb", "a.b"), ("*", "a"), ("#", "a")):
            self.assertFalse(self.matches("fanout", "", "c", bound, published), (bound, published))

    def test_impossibleBindingsAreRefused(self) -> None:
        """``#`` before the end, and other kinds."""
        self.assertRaises(ValueError, bindingSource, "x", "#.a", "topic")
        self.assertRaises(ValueError, bindingSource, "x", "a", "headers")
