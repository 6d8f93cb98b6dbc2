"""``seal``: writes finished segments of journals to Parquet, as history that Spark reads natively, which outlives the
journal's retention. A segment is sealed once, or in parts if ``--unfinished`` seals its first records earlier. It needs
no Spark: a thread seals about a million records of 100 bytes a second, less time than Java takes to start.
"""

import os
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import chain
from typing import TYPE_CHECKING

from fleximq.errors import JournalError, systemReason
from fleximq.journal.files.file_system import Files
from fleximq.limits import MEBIBYTE
from fleximq.pipeline.command.job import Job, addJournal, flag, option
from fleximq.pipeline.command.job_run import JobRun
from fleximq.pipeline.errors import OptionRefused, PipelineError
from fleximq.pipeline.files.selection import Slice

if TYPE_CHECKING:
    from fleximq.pipeline.files.journal_files import JournalFiles
    from fleximq.pipeline.lake.sealed_segments import SealedFile

#: Approximate maximum size of a file in bytes: Spark needs time for each file, and divides large ones.
FILE_BYTES = 256 * MEBIBYTE


def _prepare(parser: ArgumentParser) -> None:
    addJournal(parser)
    option(parser, "--sealed", "FOLDER", "the folder of sealed segments, with a folder for each journal")
    words = "also seal the present records of the last segment; later ones become another file"
    flag(parser, "--unfinished", words)
    flag(parser, "--damaged", "also seal damaged segments, without the damaged part; else they are skipped")


def _run(arguments: Namespace, run: JobRun) -> None:
    """Seal the remaining segments; raises PipelineError if a segment could not be sealed; the others are."""
    # The parts that need pyarrow are not needed for --help.
    from fleximq.pipeline.lake.sealed_segments import sealedFiles

    if not arguments.journal or not arguments.sealed:
        raise OptionRefused("--journal FOLDER and --sealed FOLDER are needed: the source and the target")
    if "://" in arguments.sealed:
        raise OptionRefused(
            f"--sealed is {arguments.sealed}, but must be a folder: sealed history is in no object store"
        )
    target = os.path.abspath(os.path.expanduser(arguments.sealed))
    failed = sealed = left = 0
    for journal in _journals(arguments.journal):
        folder = f"{target}/{journal.id}"
        with _sealing(folder):
            try:
                todo = _unsealed(journal, sealedFiles(target, journal.id), arguments.unfinished)
            except (JournalError, OSError) as error:
                raise PipelineError(str(error)) from error
            done, wrong = _seal(todo, folder, arguments.damaged, run)
        sealed, failed, left = sealed + done, failed + wrong, left + len(todo) - done - wrong
    run.writeLine(f"{sealed} segments sealed" + (f", {left} left" if left else ""))
    if failed:
        raise PipelineError(f"{failed} segments are not sealed, because records are missing")


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
    """Return the segments that are not sealed, and the unsealed parts of others."""
    from fleximq.pipeline.lake.sealed_segments import unsealedRanges

    found: list[Slice] = []
    for segment in journal.segments(unfinished):
        for start, end in unsealedRanges(sealed, segment.start, segment.end):
            whole = (start, end) == (segment.start, segment.end)
            found.append(segment if whole or end is None else journal.part(segment, start, end))
    return found


def _seal(todo: Sequence[Slice], folder: str, damaged: bool, run: JobRun) -> tuple[int, int]:
    """Seal segments, those of a file in one thread; return the numbers of sealed and of failed ones."""
    from fleximq.pipeline.lake.sealed_segments import sealSegments

    if not todo:
        return 0, 0
    tasks = os.cpu_count() or 1
    # Every thread gets as many files, and so do the tasks of readers.
    rounds = -(-sum(each.bytes for each in todo) // (FILE_BYTES * tasks))
    files = neighbours(todo, rounds * tasks)
    done = wrong = 0
    with ThreadPoolExecutor(tasks) as threads:
        for start in range(0, len(files), tasks):
            if run.stopping.is_set():
                break
            sealed = threads.map(lambda each: sealSegments(each, folder, damaged), files[start : start + tasks])
            for outcome in chain.from_iterable(sealed):
                done, wrong = done + outcome.segments, wrong + bool(outcome.why)
                if outcome.why:
                    run.writeLine(f"not sealed: {outcome.why}")
            run.progress("sealed", done + wrong, len(todo), "segments")
    return done, wrong


def neighbours(segments: Sequence[Slice], files: int) -> list[list[Slice]]:
    """Return segments in about so many groups of about equal size; a gap in the offsets adds a group."""
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
    """Hold the lock for sealing a journal, and remove unfinished files of earlier runs."""
    from fleximq.pipeline.lake.sealed_segments import STAGED

    files = Files()
    try:
        os.makedirs(folder, exist_ok=True)
        descriptor = files.openLock(f"{folder}/_lock")
    except OSError as error:
        raise PipelineError(f"{folder} cannot be written: {systemReason(error)}") from error
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


SEAL = Job(_prepare, _run)
