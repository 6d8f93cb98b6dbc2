"""What an ingest of a lake in an object store needs beside its commits: where it goes on, and who may displace it."""

import tempfile
import threading
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.pipeline.installed import missing as skip

if not skip:
    from pyspark.sql import DataFrame

    from fleximq.pipeline.errors import LakeRefused
    from fleximq.pipeline.lake.checkpoint import checkpointOffsets, nextBatch, seedCheckpoint, temporaryCheckpoint
    from fleximq.pipeline.lake.storage.lake_files import FILES
    from fleximq.pipeline.lake.table.file_names import writeOwn
    from fleximq.pipeline.lake.table.lock import compactorLock
    from fleximq.pipeline.source import FlexiMQSource
    from tests.pipeline.lake.test_store_commits import StoreCase
    from tests.pipeline.session import sharedSession
    from tests.pipeline.written import Written


class CheckpointTests(SynchronousTestCase):
    """A checkpoint that says what the ledgers of tables say."""

    def test_aQueryGoesOnAfterAnyBatch(self) -> None:
        """Spark itself reads the checkpoint, after the first batch and after later ones."""
        journal = Written(f"{Path(self.mktemp()).absolute()}-j")
        self.addCleanup(journal.close)
        journal.kept("t", *(b"%d" % number for number in range(1, 7)))
        spark = sharedSession()
        spark.dataSource.register(FlexiMQSource)
        for batch in (0, 1, 5):
            checkpoint = str(Path(self.mktemp()).absolute())
            seedCheckpoint(checkpoint, batch, {journal.id: 4})
            self.assertEqual((nextBatch(checkpoint), checkpointOffsets(checkpoint)), (batch + 1, {journal.id: 4}))
            found: list[tuple[int, list[bytes]]] = []

            def take(rows: "DataFrame", number: int, found: list[tuple[int, list[bytes]]] = found) -> None:
                found.append((number, [row.value for row in rows.collect()]))

            stream = spark.readStream.format("fleximq").load(journal.folder).writeStream.foreachBatch(take)
            query = stream.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
            query.awaitTermination()
            self.assertEqual(found, [(batch + 1, [b"4", b"5", b"6"])])

    def test_temporaryOneOfAKilledProcessIsRemovedByTheNextAndNoOther(self) -> None:
        folder = Path(self.mktemp()).absolute()
        folder.mkdir()
        self.patch(tempfile, "tempdir", str(folder))
        killed = folder / "fleximq-checkpoint-killed"
        killed.mkdir()
        (killed / "lock").touch()
        with temporaryCheckpoint(FILES) as first, temporaryCheckpoint(FILES) as second:
            self.assertEqual(
                sorted(each.name for each in folder.iterdir()),
                sorted(Path(each).parent.name for each in (first, second)),
            )
        self.assertEqual(list(folder.iterdir()), [])


if not skip:

    class DisplacedTests(StoreCase):
        """A process that commits, and compacts in another thread."""

        def setUp(self) -> None:
            super().setUp()
            self.ingest()

        def test_aWriterGoesOnIfAnotherProcessCompactsInPlaceOfItsThread(self) -> None:
            own, other = self.model.process(), self.model.process()
            refused: list[LakeRefused] = []

            def commit() -> None:
                try:
                    writeOwn(self.table, "behind", ["x"], own)
                except LakeRefused as error:
                    refused.append(error)

            with compactorLock(self.table, own), compactorLock(self.table, other):
                thread = threading.Thread(target=commit)
                thread.start()
                thread.join()
                self.assertEqual(refused, [])
                self.assertRaisesRegex(LakeRefused, "another run compacts", writeOwn, self.table, "behind", ["y"], own)
