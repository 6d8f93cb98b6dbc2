"""``fleximq journal check|stat|cat|repair FOLDER``: inspects and repairs the journal of a broker.

All but ``repair`` only read, and can be used while the broker runs.
"""

import json
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from base64 import b64encode
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

from fleximq.cli.command import Command
from fleximq.cli.output import addJsonOption, say, tell
from fleximq.config.journal_options import checkPattern
from fleximq.config.option_values import formattedSize
from fleximq.errors import JournalError, SettingError
from fleximq.journal.files.file_system import Files
from fleximq.journal.files.folder_files import Lock, readIdentity
from fleximq.journal.files.folder_survey import Finding, FolderSurvey
from fleximq.journal.files.topic_counts import topicCountsOf
from fleximq.journal.recovery.recovery import DryRunFiles, recover
from fleximq.values.message import Content
from fleximq.values.patterns import anyOf
from fleximq.values.printable import jsonLine
from fleximq.values.records import CONTENTS, DIALECTS, StoredBatch, TopicBounds
from fleximq.wire.messagepack_json import toJson

_NAMES = {code: name for name, code in DIALECTS.items()}


def check(arguments: Namespace) -> int:
    """Verify every checksum, and print damaged, missing or unfinished parts; return 1 if messages are lost."""
    damaged = frames = records = 0
    survey = _survey(arguments.folder)
    for found in survey.check():
        if isinstance(found, Finding):
            damaged += found.damaged
            kind = "damaged" if found.damaged else "note"
            tell(arguments, f"{kind}: {found.sentence}", **{kind: found.sentence})
        else:
            frames += found.frames
            records += found.records
            offsets = f"{_many(found.records, 'record')}, offsets {found.first} to {found.next - 1}"
            tell(
                arguments,
                f"{found.file.name}: {_many(found.frames, 'frame')}, {offsets if found.records else 'no records'}",
                file=found.file.name, frames=found.frames, records=found.records, first=found.first, next=found.next,
            )  # fmt: skip
    total = f"{_many(len(survey.files), 'file')}, {_many(frames, 'frame')}, {_many(records, 'record')}"
    tell(
        arguments,
        f"{total}: " + (f"{_many(damaged, 'place')} damaged" if damaged else "all of it is as it was written"),
        files=len(survey.files), frames=frames, records=records, places_damaged=damaged,
    )  # fmt: skip
    return 1 if damaged else 0


def stat(arguments: Namespace) -> int:
    """Print the files, the messages of each topic, and the progress of consumer groups."""
    survey = _survey(arguments.folder)
    id, files = readIdentity(Files(), arguments.folder), len(survey.files)
    size = formattedSize(survey.bytes)
    tell(arguments, f"journal {id}\n{_many(files, 'file')}, {size} bytes", journal=id, files=files, bytes=survey.bytes)
    topics: dict[str, TopicBounds] = {}
    for batch in survey.batches():
        for topic, bounds in topicCountsOf(batch).items():
            topics[topic] = _together(topics.get(topic), bounds)
    for topic in sorted(topics):
        bounds = topics[topic]
        times = [_time(bounds.firstTime), _time(bounds.lastTime)]
        tell(
            arguments,
            f"{jsonLine(topic)}: {_many(bounds.count, 'record')}, {bounds.bytes} bytes, "
            f"offsets {bounds.first} to {bounds.last}, {' to '.join(times)}",
            topic=topic, records=bounds.count, bytes=bounds.bytes, first=bounds.first, last=bounds.last,
            first_time=times[0], last_time=times[1],
        )  # fmt: skip
    for name, word in sorted(survey.groups().items()):
        lost = f", {_many(word.lost, 'record')} lost to it" if word.lost else ""
        tell(
            arguments,
            f"consumer group {jsonLine(name)}: next offset {word.next}, as it said at {_time(word.time)}{lost}",
            group=name, next=word.next, time=_time(word.time), lost=word.lost,
        )  # fmt: skip
    return 0


def cat(arguments: Namespace) -> int:
    """Print the messages of a range as JSON, one per line; raises JournalError if the range ends before it begins."""
    if arguments.last < arguments.first:
        raise JournalError(f"--to is {arguments.last}, which is before --from, {arguments.first}")
    wanted = (lambda topic: True) if arguments.topic is None else anyOf([arguments.topic])
    for batch in _survey(arguments.folder).batches(arguments.first):
        if len(batch) and batch.offsets[0] > arguments.last:
            break
        for row in rows(batch.only(wanted), arguments.first, arguments.last):
            print(jsonLine(row, (",", ":")))
    return 0


def repair(arguments: Namespace) -> int:
    """Cut an unfinished end and set damaged parts aside, as a starting broker does; ``--yes``: not only print that."""
    _survey(arguments.folder)
    lock = Lock(Files(), arguments.folder)
    try:
        journal = readIdentity(Files(), arguments.folder)
        rehearsal = DryRunFiles()
        found = recover(rehearsal, arguments.folder, journal)
        for step in rehearsal.steps:
            tell(arguments, f"would {step}" if not arguments.yes else step, step=step, done=arguments.yes)
        for sentence in found.lost:
            tell(arguments, f"lost: {sentence}", lost=sentence)
        if rehearsal.steps and arguments.yes:
            recover(Files(), arguments.folder, journal)
        if not arguments.json:
            print("there is nothing to cut" if not rehearsal.steps else
                  "done" if arguments.yes else "nothing was changed; --yes does it")  # fmt: skip
    finally:
        lock.release()
    return 0


def rows(batch: StoredBatch, first: int, last: int) -> Iterator[dict[str, Any]]:
    """Yield the records with offsets from ``first`` to ``last`` as JSON objects."""
    for place, offset in enumerate(batch.offsets):
        if not first <= offset <= last:
            continue
        publisher, name = batch.publishers[batch.publisherOf[place]]
        content, qos, _, _ = CONTENTS[batch.contents[place]]
        header = batch.headers[place]
        yield {
            "offset": offset,
            "time": batch.timestamps[place] // 1000,
            "topic": batch.topics[batch.topicOf[place]],
            "publisher": publisher,
            "name": name,
            "dialect": _NAMES.get(batch.dialects[place], name.rpartition("-")[0]),
            "qos": qos,
            "header": json.loads(toJson(header)) if header else {},
            **_value(content, batch.payloads[place]),
        }


def _value(content: Content, payload: bytes) -> dict[str, Any]:
    """Return a payload as JSON, or as base64 if it cannot be decoded."""
    try:
        if content is Content.MESSAGEPACK and payload:
            return {"value": json.loads(toJson(payload))}
        return {"value": payload.decode()}
    except ValueError:
        return {"base64": b64encode(payload).decode()}


def _survey(folder: str) -> FolderSurvey:
    """Return the survey of a folder; raises JournalError if it is not a journal."""
    files = Files()
    try:
        readIdentity(files, folder)
    except FileNotFoundError:
        reason = "is not a journal" if files.exists(folder) else "does not exist"
        raise JournalError(f"{folder} {reason}") from None
    return FolderSurvey(files, folder)


def _together(one: TopicBounds | None, other: TopicBounds) -> TopicBounds:
    if one is None:
        return other
    return TopicBounds(
        min(one.first, other.first),
        max(one.last, other.last),
        min(one.firstTime, other.firstTime),
        max(one.lastTime, other.lastTime),
        one.count + other.count,
        one.bytes + other.bytes,
    )


def _time(microseconds: int) -> str:
    return datetime.fromtimestamp(microseconds / 1e6, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _many(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


def _reportingErrors(work: Callable[[Namespace], int]) -> Callable[[Namespace], int]:
    """Wrap a function to print its errors as one sentence."""

    def run(arguments: Namespace) -> int:
        try:
            return work(arguments)
        except BrokenPipeError:
            raise
        except JournalError as error:
            words = str(error)
        except OSError as error:
            words = f"{error.filename or arguments.folder} cannot be read: {(error.strerror or str(error)).lower()}"
        say(f"fleximq: {words}")
        return 1

    return run


def _offset(written: str) -> int:
    if not written.isascii() or not written.isdigit() or not int(written):
        raise ArgumentTypeError(f"{written!r} is not an offset: they count from 1")
    return int(written)


def _pattern(written: str) -> str:
    try:
        checkPattern("it", written, written)
    except SettingError as error:
        raise ArgumentTypeError(str(error)) from None
    return written


def _prepare(parser: ArgumentParser) -> None:
    works = parser.add_subparsers(metavar="COMMAND", required=True)
    for name, work, words in (
        ("check", check, "Verify every checksum, and report damaged, missing or unfinished parts; changes nothing."),
        ("stat", stat, "Show the journal's size, the messages of each topic, and the progress of consumer groups."),
        ("cat", cat, "Write messages as JSON, one per line."),
        ("repair", repair, "Report what a starting broker would cut and set aside; do it with --yes."),
    ):
        own = works.add_parser(name, help=words, description=words)
        own.add_argument("folder", metavar="FOLDER", help="the journal's folder, as for twistd fleximq --journal")
        own.set_defaults(work=_reportingErrors(work))
        addJsonOption(own, "as always: one JSON object per line" if name == "cat" else "one JSON object per line")
        if name == "repair":
            own.add_argument("--yes", action="store_true", help="perform the repair")
        if name == "cat":
            own.add_argument(
                "--topic", metavar="PATTERN", type=_pattern, default=None, help="only matching topics; all by default"
            )
            own.add_argument("--from", metavar="OFFSET", type=_offset, default=1, dest="first", help="the first offset")
            own.add_argument(
                "--to", metavar="OFFSET", type=_offset, default=1 << 64, dest="last", help="the last offset"
            )


#: The command.
JOURNAL = Command(
    "journal", "Inspect, check and repair a journal.", _prepare, lambda arguments: arguments.work(arguments)
)
