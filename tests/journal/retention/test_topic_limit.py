"""The limit of topics where there are many of them."""

from twisted.trial.unittest import SynchronousTestCase

from fleximq.config.journal_options import RetentionRule
from fleximq.errors import NotKept
from fleximq.journal.recovery.recovered_state import NoQueueState
from fleximq.journal.retention import topic_limit
from fleximq.journal.retention.retention_rules import RetentionPolicy
from fleximq.journal.retention.topic_limit import TopicLimit
from fleximq.values.records import TopicBounds

NOW = 1_000_000_000


class ManyTopicsTests(SynchronousTestCase):
    """A count of expired topics is spread over several publications."""

    def setUp(self) -> None:
        self.patch(topic_limit, "_TOPICS", 2)
        self.patch(topic_limit, "_PART", 0.0)
        self.patch(topic_limit, "_PAUSE", 0.0)
        self.rules = RetentionPolicy(lambda topic: True, retentions=[RetentionRule("old.*", 1, 0)])
        self.looked: list[str] = []

    def retained(self, topic: str) -> bool:
        """Remember which topics are looked at."""
        self.looked.append(topic)
        return False

    def limit(self, *topics: str) -> TopicLimit:
        """Return a limit that these topics, each with an old message, have reached."""
        known = {topic: TopicBounds(number, number, 0, 0, 1, 1) for number, topic in enumerate(topics, 1)}
        rules = self.rules._replace(retained=self.retained)
        return TopicLimit(len(topics), known, rules, NoQueueState(), lambda: NOW, lambda: None)

    def looks(self, limit: TopicLimit) -> tuple[bool, int]:
        """Return whether a new topic is accepted, and how many others were looked at."""
        self.looked.clear()
        try:
            limit.check(["new"], 1)
        except NotKept:
            return False, len(self.looked)
        return True, len(self.looked)

    def test_parts(self) -> None:
        """It is refused until an expired one is found, and then accepted while the next count is under way."""
        limit = self.limit("a", "b", "c", "d", "old.e")
        found = [self.looks(limit) for _ in range(6)]
        self.assertEqual(found, [(False, 2), (False, 2), (True, 1), (True, 0), (True, 2), (True, 2)])

    def test_none(self) -> None:
        limit = self.limit("a", "b", "c")
        self.assertEqual([self.looks(limit) for _ in range(4)], [(False, 2), (False, 1), (False, 0), (False, 2)])

    def test_pause(self) -> None:
        """Between two parts is a pause."""
        self.patch(topic_limit, "_LONG", 0.0)
        self.patch(topic_limit, "_PAUSE", 1e12)
        limit = self.limit("a", "b", "c")
        self.assertEqual([self.looks(limit) for _ in range(2)], [(False, 2), (False, 0)])
