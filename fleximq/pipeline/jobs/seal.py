"""``seal``: segments of journals that have their end become Parquet, for long history to be read natively.

A segment is sealed once, in one file with its neighbours that the same run seals; or in parts, where what it has is
wanted before it has its end. What retention takes out of the journal later stays sealed: that is what history is for.
"""

import os
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from fleximq.config import option_values
from fleximq.errors import JournalError
from fleximq.journal.files.file_system import Files
from fleximq.limits import MEBIBYTE
from fleximq.pipeline.command.job import SOURCE, Job, JobContext, option
from fleximq.pipeline.errors import OptionRefused, PipelineError
from fleximq.pipeline.files.selection import Slice

if TYPE_CHECKING:
    from fleximq.pipeline.files.journal_files import JournalFiles
    from fleximq.pipeline.lake.sealed_segments import SealedFile

#: About so many bytes of neighbouring segments are a file at most: Spark needs time for each, and divides large ones.
FILE_BYTES = 256 * MEBIBYTE


def _prepare(parser: ArgumentParser) -> None:
    option(
        parser,
        "--journal",
        metavar="FOLDER",
        help="the folder of a journal, or a glob of several; may be repeated",
        action="append",
        section=SOURCE,
        read=option_values.text,
    )
    option(
        parser,
        "--sealed",
        metavar="FOLDER",
        help="where the sealed segments stand, in a folder for each journal",
        read=option_values.text,
    )
    option(
        parser,
        "--unfinished",
        action="store_true",
        help="seal what the last segment has by now, too; what it gets later becomes another file",
    )
    option(
        parser,
        "--damaged",
        action="store_true",
        help="seal segments of which something is damaged, too, without that; else they are left out",
    )


def _run(chosen: Namespace, run: JobContext) -> None:
    """Seal what is not sealed yet.

    :raises PipelineError: a segment could not be sealed; the others are.
    """
    # The parts that need pyarrow are not needed for --help.
    from fleximq.pipeline.lake.sealed_segments import sealedFiles

    if not chosen.journal or not chosen.sealed:
        raise OptionRefused("--journal FOLDER and --sealed FOLDER are needed: they say what is sealed, and where")
    target = os.path.abspath(os.path.expanduser(chosen.sealed))
    failed = sealed = left = 0
    for journal in _journals(chosen.journal):
        folder = f"{target}/{journal.id}"
        with _sealing(folder):
            try:
                todo = _unsealed(journal, sealedFiles(target, journal.id), chosen.unfinished)
            except (JournalError, OSError) as error:
                raise PipelineError(str(error)) from error
            done, wrong = _seal(todo, folder, chosen.damaged, run)
        sealed, failed, left = sealed + done, failed + wrong, left + len(todo) - done - wrong
    run.say(f"{sealed} segments sealed" + (f", {left} left" if left else ""))
    if failed:
        raise PipelineError(f"{failed} segments are not sealed, for something of them is missing")


def _journals(paths: Sequence[str]) -> "list[JournalFiles]":
    from fleximq.pipeline.files.journal_files import JournalFiles
    from fleximq.pipeline.reader.journals import Journals
    from fleximq.pipeline.reader.source_options import SourceOptions

    try:
        found = Journals(SourceOptions(tuple(paths))).find()
    except (JournalError, OSError) as error:
        raise PipelineError(str(error)) from error
    return [journal for journal in found.values() if isinstance(journal, JournalFiles)]


def _unsealed(journal: "JournalFiles", sealed: Sequence["SealedFile"], unfinished: bool) -> list[Slice]:
    """Return the segments that are not sealed, and of those that are in part what is not."""
    from fleximq.pipeline.lake.sealed_segments import uncovered

    found: list[Slice] = []
    for segment in journal.segments(unfinished):
        for start, end in uncovered(sealed, segment.start, segment.end):
            whole = (start, end) == (segment.start, segment.end)
            found.append(segment if whole or end is None else journal.part(segment, start, end))
    return found


def _seal(todo: Sequence[Slice], folder: str, damaged: bool, run: JobContext) -> tuple[int, int]:
    """Seal segments, those of a file in a task; return how many are, and how many cannot be."""
    from fleximq.pipeline.lake.segment_export import sealSegments

    if not todo:
        return 0, 0
    context = run.session().sparkContext
    tasks = max(1, context.defaultParallelism)
    # Every task gets as many files, both here and where they are read.
    rounds = -(-sum(each.bytes for each in todo) // (FILE_BYTES * tasks))
    files = neighbours(todo, rounds * tasks)
    done = wrong = 0
    for start in range(0, len(files), tasks):
        if run.stopping.is_set():
            break
        some = files[start : start + tasks]
        outcomes = (
            context.parallelize(some, len(some)).flatMap(lambda each: sealSegments(each, folder, damaged)).collect()
        )
        for outcome in outcomes:
            done, wrong = done + outcome.segments, wrong + bool(outcome.why)
            if outcome.why:
                run.say(f"not sealed: {outcome.why}")
        run.progress("sealed", done + wrong, len(todo), "segments")
    return done, wrong


def neighbours(segments: Sequence[Slice], files: int) -> list[list[Slice]]:
    """Return segments in about so many groups of about equally many bytes, whose offsets go on from one to the next.

    Where they do not there is a group more, and where there are fewer segments there are fewer.
    """
    groups: list[list[Slice]] = []
    total = sum(each.bytes for each in segments)
    before, last = 0, -1
    for each in segments:
        place = (2 * before + each.bytes) * files // (2 * total)
        if place == last and groups[-1][-1].end == each.start:
            groups[-1].append(each)
        else:
            groups.append([each])
        before, last = before + each.bytes, place
    return groups


@contextmanager
def _sealing(folder: str) -> Iterator[None]:
    """Hold the lock of whoever seals a journal, and remove what earlier ones have left unfinished."""
    from fleximq.pipeline.lake.segment_export import STAGED

    files = Files()
    try:
        os.makedirs(folder, exist_ok=True)
        descriptor = files.openLock(f"{folder}/_lock")
    except OSError as error:
        raise PipelineError(f"{folder} cannot be written: {(error.strerror or str(error)).lower()}") from error
    try:
        if not files.lock(descriptor):
            raise PipelineError(f"{folder} is in use: another run seals into it")
        for name in files.names(folder):
            if name.startswith(STAGED):
                with suppress(FileNotFoundError):
                    files.remove(f"{folder}/{name}")
        yield
    finally:
        files.close(descriptor)


SEAL = Job("seal", "Turn the finished segments of a journal into Parquet.", _prepare, _run)
