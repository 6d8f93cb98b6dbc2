"""What the tasks of an ingest report on a batch."""

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import pyarrow as pa

from fleximq.pipeline.lake.table.ledger import Gap
from fleximq.pipeline.lake.table.table_log import TableFile
from fleximq.pipeline.payloads import ddl


@dataclass
class TaskReports:
    """A batch: by table ``staged`` files, new ``fields``, names ``leftOut``, ``dead`` letters by journal, and the
    ``reasons`` of the first.
    """

    start: dict[str, int] = field(default_factory=dict)
    end: dict[str, int] = field(default_factory=dict)
    gaps: dict[str, list[Gap]] = field(default_factory=dict)
    staged: dict[str, list[TableFile]] = field(default_factory=dict)
    fields: dict[str, list[pa.Schema]] = field(default_factory=dict)
    leftOut: dict[str, dict[str, None]] = field(default_factory=dict)
    dead: dict[str, Counter[str]] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, lines: Iterable[str]) -> "TaskReports":
        """Return the combined reports of these JSON lines."""
        reports = cls()
        for line in lines:
            found = json.loads(line)
            reports.start |= found.get("start", {})
            reports.end |= found.get("end", {})
            for journal, gaps in found.get("gaps", {}).items():
                reports.gaps.setdefault(journal, []).extend(Gap(*gap) for gap in gaps)
            if "staged" in found:
                reports.staged.setdefault(found["table"], []).append(TableFile(*found["staged"]))
            if "fields" in found:
                reports.fields.setdefault(found["table"], []).append(ddl.parsed(found["fields"], twins=True))
            if "leftOut" in found:
                reports.leftOut.setdefault(found["table"], {}).update(dict.fromkeys(found["leftOut"]))
            if "dead" in found:
                journal, number, reason = found["dead"]
                reports.dead.setdefault(found["table"], Counter())[journal] += number
                reports.reasons.setdefault(found["table"], reason)
        return reports
