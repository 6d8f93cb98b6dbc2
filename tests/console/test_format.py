"""Numbers and times as the pages of the console write them."""

import json
import os
import subprocess
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.console.test_hints import PAGES
from tests.js.workshop import PATIENCE, node

FORMAT = PAGES.parent / "format.js"


class FormatTests(SynchronousTestCase):
    """``format.js`` in node."""

    def value(self, expression: str) -> Any:
        """Return the value of an expression, in a zone with summer time."""
        script = f'import * as format from "{FORMAT}"; console.log(JSON.stringify({expression}))'
        words = [node(), "--input-type=module", "-e", script]
        environment = {**os.environ, "TZ": "Europe/Berlin"}
        ended = subprocess.run(words, capture_output=True, text=True, check=True, timeout=PATIENCE, env=environment)
        return json.loads(ended.stdout)

    def test_ticks(self) -> None:
        """The times of an axis have 24 hours, and the day where it changes."""
        found = self.value(
            'format.ticks(["2026-01-31T22:00Z", "2026-01-31T23:00Z", "2026-02-01T17:00Z"].map(Date.parse))'
        )
        self.assertEqual(found, ["23:00", "00:00\n2026-02-01", "18:00"])
