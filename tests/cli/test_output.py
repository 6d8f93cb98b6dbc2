"""Tables of the command line in terminals of several widths."""

import io
from unittest.mock import patch

from rich.console import Console
from twisted.trial.unittest import SynchronousTestCase

from fleximq.cli.output import table

_HEADINGS = ("topic", "subscribers", "queues", "published", "bytes", "durable")
_ROW = ("sensors.kitchen.temperature", 3, 1, 1_234_567, 99_999_999, True)


class TableTests(SynchronousTestCase):
    """What is cut."""

    def shown(self, width: int) -> str:
        """Return the row as a terminal of this width shows it."""
        with patch.dict("os.environ", {"COLUMNS": str(width)}):
            output = io.StringIO()
            Console(file=output, width=width).print(table(_HEADINGS, [_ROW]))
        return output.getvalue().splitlines()[3]

    def test_wide(self) -> None:
        """From 80 columns on texts are cut, and never numbers."""
        row = self.shown(80)
        self.assertRegex(row, r"sensors\.kitchen\S*… +3 +1 +1,234,567 +99,999,999 +yes")

    def test_narrow(self) -> None:
        """In a narrow terminal the first column still says which row it is."""
        self.assertIn("sensors.kit…", self.shown(40))
