"""``fleximq journal check|stat|cat|repair FOLDER``; all but ``repair`` only read, also while the broker runs."""

import json
from argparse import ArgumentTypeError, Namespace
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

from fleximq.cli.command import Argument, Command, Work, argument, group, switch
from fleximq.cli.output import jsonOption, say, tell
from fleximq.config.journal_options import checkPattern
from fleximq.config.option_values import formattedSize
from fleximq.errors import JournalError, SettingError, systemReason
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


def _journalCommand(name: str, *own: Argument) -> Callable[[Work], Command]:
    """Return a decorator as :func:`command` does, for a function that reports errors in one sentence."""
    folder = argument("folder", "FOLDER", "the journal's folder, as for twistd fleximq --journal")

    def run(work: Work, arguments: Namespace) -> int | None:
        try:
            return work(arguments)
        except BrokenPipeError:
            raise
        except JournalError as error:
            words = str(error)
        except OSError as error:
            words = f"{error.filename or arguments.folder} cannot be read: {systemReason(error)}"
        say(f"fleximq: {words}")
        return 1

    return lambda work: Command(name, work.__doc__ or "", (folder, *own), partial(run, work))


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


@_journalCommand("check", jsonOption())
def check(arguments: Namespace) -> int:
    """Verify every checksum, and report damaged, missing or unfinished parts; read-only."""
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


@_journalCommand("stat", jsonOption())
def stat(arguments: Namespace) -> int:
    """Show the journal's size, the messages of each topic, and the progress of consumer groups."""
    survey = _survey(arguments.folder)
    journalId, files = readIdentity(Files(), arguments.folder), len(survey.files)
    size = formattedSize(survey.bytes)
    unit = "" if size.endswith("B") else " bytes"
    tell(
        arguments,
        f"journal {journalId}\n{_many(files, 'file')}, {size}{unit}",
        journal=journalId,
        files=files,
        bytes=survey.bytes,
    )
    topics: dict[str, TopicBounds] = {}
    skipped: list[str] = []
    for batch in survey.batches(skipped=skipped.append):
        for topic, bounds in topicCountsOf(batch).items():
            topics[topic] = _together(topics[topic], bounds) if topic in topics else bounds
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
    return _reportSkipped(skipped)


@_journalCommand(
    "cat", jsonOption("as always: one JSON object per line"),
    argument("--topic", "PATTERN", "only matching topics; all by default", type=_pattern),
    argument("--from", "OFFSET", "the first offset", type=_offset, default=1, dest="first"),
    argument("--to", "OFFSET", "the last offset", type=_offset, default=1 << 64, dest="last"),
)  # fmt: skip
def cat(arguments: Namespace) -> int:
    """Write messages as JSON, one per line."""
    if arguments.last < arguments.first:
        raise JournalError(f"--to is {arguments.last}, which is before --from, {arguments.first}")
    wanted = (lambda topic: True) if arguments.topic is None else anyOf([arguments.topic])
    skipped: list[str] = []
    for batch in _survey(arguments.folder).batches(arguments.first, skipped.append):
        if len(batch) and batch.offsets[0] > arguments.last:
            break
        for row in rows(batch.only(wanted), arguments.first, arguments.last):
            print(jsonLine(row, (",", ":")))
    return _reportSkipped(skipped)


@_journalCommand("repair", jsonOption(), switch("--yes", "perform the repair"))
def repair(arguments: Namespace) -> None:
    """Report the parts that a starting broker would cut off and save; cut them off with --yes."""
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
            print("there is nothing to cut; journal check reads complete files, too" if not rehearsal.steps else
                  "done" if arguments.yes else "nothing was changed; --yes does it")  # fmt: skip
    finally:
        lock.release()


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
            "header": _header(header),
            **_value(content, batch.payloads[place]),
        }


def _header(packed: bytes) -> Any:
    """Return a header as JSON, or as base64 if it cannot be decoded."""
    try:
        return json.loads(toJson(packed)) if packed else {}
    except ValueError:
        return {"base64": b64encode(packed).decode()}


def _reportSkipped(skipped: Sequence[str]) -> int:
    """Name the frames that were skipped, and return the exit code."""
    for sentence in skipped:
        say(f"fleximq: skipped, see fleximq journal check: {sentence}")
    return 1 if skipped else 0


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


def _together(one: TopicBounds, other: TopicBounds) -> TopicBounds:
    return TopicBounds(
        min(one.first, other.first), max(one.last, other.last),
        min(one.firstTime, other.firstTime), max(one.lastTime, other.lastTime),
        one.count + other.count, one.bytes + other.bytes,
    )  # fmt: skip


def _time(microseconds: int) -> str:
    try:
        time = datetime.fromtimestamp(microseconds / 1e6, UTC)
    except (ValueError, OverflowError, OSError):  # beyond the years of a datetime
        return f"{microseconds} microseconds after 1970"
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _many(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


JOURNAL = group("journal", "Inspect, check and repair a journal.", check, stat, cat, repair)
