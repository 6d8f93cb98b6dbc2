"""Mends a table whose log refuses a recorded batch or change, or that records columns which its log cannot have."""

from contextlib import suppress

from fleximq.pipeline.lake.batch_commit import BEHIND, finish, pending, writing
from fleximq.pipeline.lake.live_files import logOf
from fleximq.pipeline.lake.refused_files import dropColumns
from fleximq.pipeline.lake.storage.lake_files import FILES, LakeFiles
from fleximq.pipeline.lake.table.lock import changeLock


def repair(table: str, files: LakeFiles = FILES) -> list[str]:
    """Complete the recorded steps of a table, also during its ingest; return a sentence for each change. Raises
    CommitRefused if the log still refuses a batch, and LakeRefused for damage.
    """
    done = []
    with writing(table), changeLock(table, files):
        log = logOf(table, files)
        if log is not None and (names := dropColumns(table, log, files)):
            done.append(f"no columns any more, since Iceberg has these names already: {', '.join(names)}")
        waiting = pending(table, files)
        finish(table, files)
        # The ingest adds the records that the table lacks.
        with suppress(FileNotFoundError):
            files.removeOwn(table, BEHIND)
        done += [f"{each} is complete" for each in waiting]
    return done
