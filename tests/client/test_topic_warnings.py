"""Warnings of doubtful topics."""

import warnings
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from fleximq.client.errors import TopicWarning
from fleximq.client.topic_warnings import literalDoubt, literalTopic


class LiteralTests(SynchronousTestCase):
    """Topics without wildcards."""

    def test_line(self) -> None:
        """The warning is at the line of the program, also for a topic given by name."""

        @literalTopic
        def work(client: Any, topic: str, value: int) -> int:
            return value

        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", TopicWarning)
            self.assertEqual([work(None, "a..b", 1), work(None, topic="a.b", value=2)], [1, 2])
        self.assertEqual([each.filename for each in caught], [__file__])

    def test_type(self) -> None:
        """A topic that is not a text is an error in one sentence."""
        error = self.assertRaises(TypeError, literalDoubt, 5)
        self.assertEqual(str(error), "the topic is 5, but must be a str")
