"""Reads the checkpoint of an ingest query as Spark writes it to a local folder, and makes those that need not last."""

import json
import os
import shlex
import shutil
import tempfile
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from glob import glob

from fleximq.journal.files.file_system import Files
from fleximq.pipeline.errors import LakeRefused
from fleximq.pipeline.lake.table.ledger import readLedger


def nextBatch(checkpoint: str) -> int:
    """Return the number of the next batch of a query; 0 for a new one, or in a remote folder."""
    try:
        return 1 + max(int(name) for name in os.listdir(f"{checkpoint}/commits") if name.isdigit())
    except (OSError, ValueError):
        return 0


def checkpointOffsets(checkpoint: str) -> dict[str, int]:
    """Return the offsets at which the next batch of a query begins; empty for a new one, or in a remote folder."""
    try:
        with open(f"{checkpoint}/offsets/{nextBatch(checkpoint) - 1}") as file:
            # The format's version and Spark's settings precede the offsets of the source.
            offsets: dict[str, int] = json.loads(file.read().splitlines()[2])
            return offsets
    except (OSError, ValueError, IndexError):
        return {}


def checkCheckpoint(checkpoint: str, tables: Iterable[str]) -> None:
    """Raise LakeRefused if a local query would begin again with tables that have batches already."""
    if "://" in checkpoint or os.path.isdir(f"{checkpoint}/offsets"):
        return
    for table in tables:
        if readLedger(table).batch >= 0:
            lake, name = os.path.split(table)
            raise LakeRefused(
                f"there is no checkpoint in {checkpoint}, which says where the table {table} goes on: put it back, or "
                "ingest into a table of another name and then run fleximq-pipeline backfill NEW --lake "
                f"{shlex.quote(lake)} --from {name}"
            )


def seedCheckpoint(checkpoint: str, batch: int, offsets: Mapping[str, int]) -> None:
    """Write the checkpoint that Spark would have after this batch, if any, to a new folder, so that the query continues
    there: a lake in an object store needs no lasting checkpoint, since the ledgers of its tables have the offsets.
    """
    if batch < 0:
        return
    planned = "\n".join(
        ("v1", json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": 0, "conf": {}}), json.dumps(dict(offsets)))
    )
    content = {
        "metadata": json.dumps({"id": str(uuid.uuid4())}),
        # Spark begins with the batch before the last one, and fails without it.
        **{f"offsets/{number}": planned for number in range(max(0, batch - 1), batch + 1)},
        f"commits/{batch}": "v1\n" + json.dumps({"nextBatchWatermarkMs": 0}),
    }
    for name, text in content.items():
        path = f"{checkpoint}/{name}"
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write(text)


#: How the names of temporary checkpoints begin, and the file that their process has locked.
_TEMPORARY, _LOCK = "fleximq-checkpoint-", "lock"


@contextmanager
def temporaryCheckpoint(files: Files) -> Iterator[str]:
    """Make a folder for the length of a ``with`` block; first remove those whose processes were killed."""
    for path in glob(f"{tempfile.gettempdir()}/{_TEMPORARY}*/{_LOCK}"):
        with suppress(OSError), files.closing(files.open(path)) as descriptor:
            if files.lock(descriptor):
                shutil.rmtree(os.path.dirname(path), ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=_TEMPORARY) as folder:
        # Another process finds it only once it is locked.
        with files.closing(files.create(f"{folder}/new")) as descriptor:
            files.lock(descriptor)
            files.rename(f"{folder}/new", f"{folder}/{_LOCK}")
            yield f"{folder}/checkpoint"


def syncOffsets(checkpoint: str, number: int) -> None:
    """Sync a batch's local offsets to disk before its commit: after a power loss, Spark could plan it with others."""
    for path in (f"{checkpoint}/offsets/{number}", f"{checkpoint}/offsets"):
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
