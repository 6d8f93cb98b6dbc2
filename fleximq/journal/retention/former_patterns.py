"""Remembers which topics were durable, so that a start with other options deletes no stored messages.

DIR/durable is a JSON object. A key is a pattern of durable topics, in the order of the options; its value is null while
the options name it, else the offset from which they do not: earlier records are stored as retention says. A pattern is
dropped when no record depends on it.
"""

import json

from fleximq.errors import JournalError
from fleximq.journal.files.file_system import Files, readFile, replaceFile
from fleximq.journal.files.segment_table import SegmentTable
from fleximq.journal.retention.retention_rules import RetentionPolicy
from fleximq.values.patterns import anyOf

NAME = "durable"


def withFormer(
    rules: RetentionPolicy, files: Files, folder: str, segments: SegmentTable
) -> tuple[RetentionPolicy, int]:
    """Return the rules with the former patterns, and the number of topics that depend on them; updates the file.

    :raises JournalError: the file is damaged. OSError is raised as well.
    """
    known = _read(files, folder)
    former: list[tuple[str, int]] = []
    topics: set[str] = set()
    for pattern, until in known.items():
        if pattern in rules.patterns:
            continue
        until = segments.nextOffset if until is None else until
        matches = anyOf([pattern])
        depend = [
            topic
            for topic, bounds in segments.bounds().items()
            if bounds.first < until and matches(topic) and not rules.durable(topic)
        ]
        if depend:
            former.append((pattern, until))
            topics.update(depend)
    new = dict.fromkeys(rules.patterns) | dict(former)
    if new != known:
        replaceFile(files, folder, NAME, json.dumps(new).encode())
    return rules._replace(former=former), len(topics)


def _read(files: Files, folder: str) -> dict[str, int | None]:
    path = f"{folder}/{NAME}"
    if not files.exists(path):
        return {}
    try:
        known = json.loads(readFile(files, path))
    except ValueError:
        known = None
    if not isinstance(known, dict) or not all(value is None or type(value) is int for value in known.values()):
        raise JournalError(
            f"the file {path} is damaged; without it the messages of topics that are not durable now are deleted"
        )
    return known
