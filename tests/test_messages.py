"""docs/reference/messages.rst lists exactly the messages that there are."""

import re
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from fleximq.broker.paths.path_table import PATHS
from fleximq.wire.blipmq_frame import FrameType
from fleximq.wire.fleximq_header import RULES, MessageType
from tests.pages import tableRows

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "messages.rst"
PARTS = re.split(r"^(\w+)\n-{5,}\n", PAGE.read_text(), flags=re.MULTILINE)


def rows(dialect: str) -> list[tuple[int, str, str]]:
    """Return the first three cells of each row of a dialect's table: number, name, what it needs or carries."""
    section = PARTS[PARTS.index(dialect) + 1]
    return [(int(row[0]), row[1], row[2]) for row in tableRows(section) if row[0].isdigit()]


class MessagesTests(SynchronousTestCase):
    """The tables, against the code."""

    def test_fleximq(self) -> None:
        """FlexiMQ's types, with their numbers and what their headers need."""
        listed = [(number, name, tuple(re.findall(r"``(\w+)``", needs))) for number, name, needs in rows("FlexiMQ")]
        self.assertEqual(listed, [(kind, MessageType(kind).name, RULES[kind].required) for kind in sorted(RULES)])

    def test_blipmq(self) -> None:
        """BlipMQ's types, with their numbers."""
        self.assertEqual([row[:2] for row in rows("BlipMQ")], [(kind, kind.name) for kind in FrameType])

    def test_paths(self) -> None:
        """The paths of the broker."""
        section = PARTS[PARTS.index("FlexiMQ") + 1]
        lines = re.findall(r"^(``/[a-z/-]+``(?:, ``/[a-z/-]+``)*)$", section, re.MULTILINE)
        self.assertEqual(sorted(re.findall(r"/[a-z/-]+", " ".join(lines))), sorted(PATHS))
