"""What the console suggests to type is understood by the command line."""

import re
import shlex
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

import fleximq
from fleximq.cli.commands import parser

PAGES = Path(fleximq.__file__).parent / "web" / "console" / "pages"
#: A command in the text of a script, in either kind of quotation marks.
COMMAND = re.compile(r"""h\("code", \{\}, (["`])(fleximq .+?)(?<!\\)\1\)""")


class HintsTests(SynchronousTestCase):
    """The commands in the texts of the pages."""

    def test_commands(self) -> None:
        """Each has the words and options that the command takes."""
        found = [each for page in sorted(PAGES.glob("*.js")) for _, each in COMMAND.findall(page.read_text())]
        self.assertGreater(len(found), 5)
        for each in found:
            words = shlex.split(each.replace('\\"', '"'))
            _, strange = parser().parse_known_args(words[1:])
            self.assertEqual(strange, [], each)
