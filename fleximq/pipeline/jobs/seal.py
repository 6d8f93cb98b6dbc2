"""``seal``: segments of journals that have their end become Parquet, for long history to be read natively.

A segment is sealed once. What retention takes out of the journal later stays sealed: that is what history is for.
"""

import os
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from fleximq import option_values
from fleximq.errors import JournalError
from fleximq.journal.files import Files
from fleximq.pipeline.command.job import SOURCE, Job, Run, option
from fleximq.pipeline.errors import OptionRefused, PipelineError
from fleximq.pipeline.files.slices import Slice

#: So many segments for each task that runs at once are given out at a time; in between the job may be stopped.
_ROUNDS = 4


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
        "--damaged",
        action="store_true",
        help="seal segments of which something is damaged, too, without that; else they are left out",
    )


def _run(chosen: Namespace, run: Run) -> None:
    """Seal what is not sealed yet.

    :raises PipelineError: a segment could not be sealed; the others are.
    """
    # The parts that need pyarrow are not needed for --help.
    from fleximq.pipeline.lake.sealed import sealedFiles

    if not chosen.journal or not chosen.sealed:
        raise OptionRefused("--journal FOLDER and --sealed FOLDER are needed: they say what is sealed, and where")
    target = os.path.abspath(os.path.expanduser(chosen.sealed))
    failed = sealed = left = 0
    for journal, segments in _segments(chosen.journal):
        folder = f"{target}/{journal}"
        with _sealing(folder):
            there = sealedFiles(target, journal)
            todo = [
                each
                for each in segments
                if each.start < each.end and not any(file.first <= each.start < file.next for file in there)
            ]
            done, wrong = _seal(todo, folder, chosen.damaged, run)
        sealed, failed, left = sealed + done, failed + wrong, left + len(todo) - done - wrong
    run.say(f"{sealed} segments sealed" + (f", {left} left" if left else ""))
    if failed:
        raise PipelineError(f"{failed} segments are not sealed, for something of them is missing")


def _segments(paths: Sequence[str]) -> list[tuple[str, list[Slice]]]:
    from fleximq.pipeline.files.layout import JournalFiles
    from fleximq.pipeline.reader.journals import Journals
    from fleximq.pipeline.reader.options import SourceOptions

    try:
        found = Journals(SourceOptions(tuple(paths))).find()
        return [(id, journal.complete()) for id, journal in found.items() if isinstance(journal, JournalFiles)]
    except (JournalError, OSError) as error:
        raise PipelineError(str(error)) from error


def _seal(todo: Sequence[Slice], folder: str, damaged: bool, run: Run) -> tuple[int, int]:
    """Seal segments, each in a task; return how many are, and how many cannot be."""
    from fleximq.pipeline.lake.sealing import sealSegment

    if not todo:
        return 0, 0
    context = run.session().sparkContext
    done = wrong = 0
    step = max(1, context.defaultParallelism) * _ROUNDS
    for start in range(0, len(todo), step):
        if run.stopping.is_set():
            break
        some = todo[start : start + step]
        outcomes = context.parallelize(some, len(some)).map(lambda each: sealSegment(each, folder, damaged)).collect()
        for outcome in outcomes:
            done, wrong = done + (not outcome.why), wrong + bool(outcome.why)
            if outcome.why:
                run.say(f"not sealed: {outcome.why}")
        run.progress("sealed", done + wrong, len(todo), "segments")
    return done, wrong


@contextmanager
def _sealing(folder: str) -> Iterator[None]:
    """Hold the lock of whoever seals a journal, and remove what earlier ones have left unfinished."""
    from fleximq.pipeline.lake.sealing import STAGED

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
