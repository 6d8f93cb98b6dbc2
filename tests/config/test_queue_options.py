"""The queues of a settings file."""

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from fleximq.config.queue_options import queueFaults, queues
from fleximq.config.settings import Settings
from fleximq.errors import SettingError
from fleximq.values.queue_definition import QueueDefinition, RetryDelays


class TableTests(SynchronousTestCase):
    """Tables of [queues.NAME]."""

    def read(self, **table: Any) -> QueueDefinition:
        """Return one table."""
        [found] = queues("queues", {"q": table})
        return found

    def test_theKeysAreThoseOfADefinition(self) -> None:
        """All have defaults."""
        self.assertEqual(self.read(), QueueDefinition("q"))
        found = self.read(sources=["a.#"], retry={"first": 5}, max_attempts=3)
        self.assertEqual(found, QueueDefinition("q", ("a.#",), max_attempts=3, retry=RetryDelays(5)))
        self.assertEqual(Settings.of({"queues": {"q": {"lease": 2}}}).queues, (QueueDefinition("q", lease=2),))

    def test_bytesMayHaveAUnit(self) -> None:
        """As all sizes in the file."""
        self.assertEqual(self.read(max_bytes="16MiB").max_bytes, 16 << 20)

    def test_wrongTables(self) -> None:
        """Each fault has a sentence."""
        for words, name, table in (
            ("must be a table", "q", 5),
            ("does not begin with [$]", "$dead/q", {}),
            ("did you mean max_attempts", "q", {"max-attempts": 5}),
            ("lease is -1", "q", {"lease": -1}),
            ("a number of bytes", "q", {"max_bytes": "many"}),
            ("when_full is 'x'", "q", {"when_full": "x"}),
        ):
            [found] = queueFaults("queues", {name: table, "fine": {}})
            self.assertRegex(found, f"queues.*{words}")

    def test_wrongValues(self) -> None:
        """Instead of tables."""
        with self.assertRaises(SettingError):
            queues("queues", [])
        with self.assertRaises(SettingError):
            queues("queues", {str(number): {} for number in range(1001)})
        self.assertEqual(len(list(queueFaults("queues", 5))), 1)
