"""The object store that other tests use: what it promises to formats of tables, and how its proxy makes it fail."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.pipeline.fault_proxy import CUT, SERVER_ERROR, SLOW_DOWN, SWALLOWED, Fault, FaultProxy, Request
from tests.pipeline.object_store import BUCKET, ObjectStore, icebergSettings, sharedStore, useStore

skip = None if find_spec("s3fs") and find_spec("boto3") else "s3fs or boto3 is not installed"

if not skip:
    import fsspec
    from botocore.exceptions import BotoCoreError, ClientError


class CreationTests(SynchronousTestCase):
    """An object is created only where there is none, which is all that a commit needs."""

    def setUp(self) -> None:
        self.store = sharedStore()
        self.client = self.store.client()
        self.key = self.store.newPrefix().removeprefix(f"s3://{BUCKET}/")

    def create(self, body: bytes) -> int:
        """Create the object, and return the status of the answer."""
        try:
            answer = self.client.put_object(Bucket=BUCKET, Key=self.key, Body=body, IfNoneMatch="*")
        except ClientError as error:
            answer = error.response
        status: int = answer["ResponseMetadata"]["HTTPStatusCode"]
        return status

    def test_createsAnObjectOnce(self) -> None:
        self.assertEqual([self.create(b"1"), self.create(b"2")], [200, 412])
        self.assertEqual(self.client.get_object(Bucket=BUCKET, Key=self.key)["Body"].read(), b"1")

    def test_fsspecCreatesAnObjectOnce(self) -> None:
        useStore(self, self.store.endpoint)
        files: Any = fsspec.filesystem("s3")
        path = f"{BUCKET}/{self.key}"
        files.pipe_file(path, b"1", mode="create")
        # s3fs knows the error of AWS alone, which names the condition, as FileExistsError.
        error = self.assertRaises(OSError, files.pipe_file, path, b"2", mode="create")
        self.assertEqual(error.__cause__.response["ResponseMetadata"]["HTTPStatusCode"], 412)
        self.assertEqual(files.cat_file(path), b"1")

    def test_aCreationThatIsRepeatedSinceItsAnswerWasLostIsRefusedLikeThatOfAnotherWriter(self) -> None:
        """So who creates an object must look, after a refusal, whether it is its own."""
        with FaultProxy(self.store.endpoint) as proxy:
            useStore(self, proxy.endpoint)
            files: Any = fsspec.filesystem("s3")
            proxy.fail(SWALLOWED, "PUT", self.key)
            path = f"{BUCKET}/{self.key}"
            self.assertRaises(OSError, files.pipe_file, path, b"1", mode="create")
            self.assertEqual(files.cat_file(path), b"1")
            self.assertEqual([status for request, status in proxy.seen if request.method == "PUT"], [0, 412])


class FormatTests(SynchronousTestCase):
    """The commits of the formats' own libraries are conditional there: of two writers neither overwrites the other."""

    def setUp(self) -> None:
        self.store = sharedStore()
        self.proxy = FaultProxy(self.store.endpoint).__enter__()
        self.addCleanup(self.proxy.__exit__, None, None, None)
        useStore(self, self.proxy.endpoint)

    def test_deltalakeCommitsOnlyWhereThereIsNoSuchVersion(self) -> None:
        if find_spec("deltalake") is None:
            self.skipTest("deltalake is not installed")
        import pyarrow as pa
        from deltalake import DeltaTable, write_deltalake

        table = self.store.newPrefix()
        write_deltalake(table, pa.table({"a": [0]}))
        own = {"aws_endpoint_url": self.store.endpoint}

        def choose(request: Request) -> Fault | None:
            """Let another writer commit before the first commit of version 1."""
            if request.ifNoneMatch and request.path.endswith("1.json") and not commits:
                commits.append(0)
                write_deltalake(table, pa.table({"a": [1]}), mode="append", storage_options=own)
            return None

        commits: list[int] = []
        self.proxy.choose = choose
        write_deltalake(table, pa.table({"a": [2]}), mode="append")
        found = DeltaTable(table)
        self.assertEqual((found.version(), sorted(found.to_pyarrow_table()["a"].to_pylist())), (2, [0, 1, 2]))
        commits += [status for request, status in self.proxy.seen if request.ifNoneMatch]
        self.assertEqual(commits, [0, 200, 412, 200])

    def test_pyicebergCommitsOnlyWhatFollowsTheSnapshotItHasSeen(self) -> None:
        if find_spec("pyiceberg") is None:
            self.skipTest("pyiceberg is not installed")
        import pyarrow as pa
        from pyiceberg.catalog import load_catalog
        from pyiceberg.exceptions import CommitFailedException
        from pyiceberg.types import LongType

        folder = Path(self.mktemp())
        folder.mkdir()
        catalogs = {
            "SQL": {"type": "sql", "uri": f"sqlite:///{folder.absolute()}/c.db", "warehouse": self.store.newPrefix()},
            "REST": self.store.catalogSettings,
        }
        for kind, settings in catalogs.items():
            catalog = load_catalog("lake", **settings, **icebergSettings(self.proxy.endpoint))
            catalog.create_namespace("lake")
            table = catalog.create_table("lake.t", pa.schema([("a", pa.int64())]))
            writers = [catalog.load_table("lake.t") for _ in range(2)]
            with writers[0].update_schema() as change:
                change.add_column("b", LongType())
            with self.assertRaises(CommitFailedException, msg=kind), writers[1].update_schema() as change:
                change.add_column("c", LongType())
            self.assertEqual(table.refresh().schema().column_names, ["a", "b"], kind)


class FaultTests(SynchronousTestCase):
    """The proxy makes requests fail in the chosen way, and the store can be killed."""

    def setUp(self) -> None:
        self.store = sharedStore()
        self.proxy = FaultProxy(self.store.endpoint).__enter__()
        self.addCleanup(self.proxy.__exit__, None, None, None)
        self.client = self.store.client(self.proxy.endpoint, retries={"total_max_attempts": 1})
        self.key = self.store.newPrefix().removeprefix(f"s3://{BUCKET}/")

    def outcome(self, fault: Fault) -> tuple[object, bool]:
        """Put an object with a fault; return the status, or None, and whether the store has the object."""
        self.proxy.fail(fault, "PUT", self.key)
        status: object = None
        try:
            self.client.put_object(Bucket=BUCKET, Key=self.key, Body=b"1")
        except ClientError as error:
            status = error.response["ResponseMetadata"]["HTTPStatusCode"]
        except BotoCoreError:
            pass
        found = self.client.list_objects_v2(Bucket=BUCKET, Prefix=self.key)["KeyCount"] == 1
        return status, found

    def test_aConnectionIsCutBeforeTheStoreSeesTheRequest(self) -> None:
        self.assertEqual(self.outcome(CUT), (None, False))

    def test_anAnswerIsSwallowedAfterTheStoreDidWhatWasAsked(self) -> None:
        self.assertEqual(self.outcome(SWALLOWED), (None, True))

    def test_errorsOfTheServerAreAnsweredInItsPlace(self) -> None:
        self.assertEqual([self.outcome(SERVER_ERROR), self.outcome(SLOW_DOWN)], [(500, False), (503, False)])

    def test_whatTheStoreHasConfirmedOutlivesItsProcess(self) -> None:
        with ObjectStore() as store:
            store.client().put_object(Bucket=BUCKET, Key="a", Body=b"1", IfNoneMatch="*")
            before = store.pid
            store.kill()
            store.start()
            self.assertNotEqual(store.pid, before)
            self.assertEqual(store.client().get_object(Bucket=BUCKET, Key="a")["Body"].read(), b"1")
