"""A journal of several segments, and its queries."""

import json
from io import StringIO
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from fleximq.values.message import Content
from tests.pipeline.local_query.needed import missing as skip
from tests.pipeline.written import TIME, Written

if not skip:
    from fleximq.pipeline.local_query.command import QueryRequest, runQuery


class JournalCase(SynchronousTestCase):
    """300 records of JSON, of two topics in turn, one each second."""

    if skip:
        skip = skip

    def setUp(self) -> None:
        """Write it."""
        self.folder = Path(self.mktemp()).absolute()
        self.written = Written(str(self.folder), segmentBytes=5_000)
        self.said: list[str] = []
        for number in range(300):
            self.written.time = TIME + number * 1_000_000
            payload = json.dumps({"n": number, "offset": "o", "half": number / 2}).encode()
            self.written.kept(("a.x", "b")[number % 2], payload, content=Content.TEXT)

    def printed(self, query: str, **more: Any) -> str:
        """Return what a query prints, as JSON unless another format is given."""
        out = StringIO()
        runQuery(
            QueryRequest(query, **{"journals": (str(self.folder),), "format": "json", **more}), out, self.said.append
        )
        return out.getvalue()

    def found(self, query: str, **more: Any) -> list[Any]:
        """Return the rows of a query."""
        return [tuple(json.loads(line).values()) for line in self.printed(query, **more).splitlines()]
