"""A PostgreSQL server in a process of its own, on loopback, for catalogs of tables."""

import glob
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any
from unittest import SkipTest

#: Seconds that a start may take, and between two looks at it.
PATIENCE, LOOK = 120.0, 0.05
#: The one user, who owns the database of the same name.
USER, PASSWORD = "lake", "lake-secret"
#: Where Debian has the programs of the server.
_DEBIAN = "/usr/lib/postgresql/*/bin"


def programs() -> str:
    """Return the folder of the server's programs; raises SkipTest if they are missing."""
    found = shutil.which("initdb")
    folders = [os.path.dirname(os.path.realpath(found))] if found else sorted(glob.glob(_DEBIAN))
    if not folders:
        raise SkipTest("PostgreSQL's server is missing: Debian's package is postgresql")
    return folders[-1]


def owner() -> dict[str, Any]:
    """Return what starts a process as a user whom the server accepts: it refuses root."""
    if os.geteuid():
        return {}
    try:
        found = pwd.getpwnam("postgres")
    except KeyError:
        raise SkipTest("PostgreSQL does not run as root, and there is no user postgres") from None
    return {"user": found.pw_uid, "group": found.pw_gid, "extra_groups": []}


class Postgres:
    """As a context manager it is entered when the server answers; ``port`` is that on loopback."""

    def __init__(self) -> None:
        self._programs, self._owner = programs(), owner()
        self._folder = tempfile.mkdtemp(prefix="fleximq-postgres-", dir="/tmp")
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0

    def __enter__(self) -> "Postgres":
        try:
            self._make()
            with socket.create_server(("127.0.0.1", 0)) as listener:
                self.port = listener.getsockname()[1]
            self.start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill(signal.SIGQUIT)
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def url(self) -> str:
        """The URL for SQLAlchemy, without the password, which is in ``PGPASSWORD``."""
        return f"postgresql+psycopg://{USER}@127.0.0.1:{self.port}/{USER}"

    def _make(self) -> None:
        if self._owner:
            os.chown(self._folder, self._owner["user"], self._owner["group"])
        secret = Path(self._folder, "secret")
        secret.write_text(PASSWORD)
        secret.chmod(0o644)
        words = ["--auth=scram-sha-256", f"--pwfile={secret}", f"--username={USER}", "--no-sync", "--encoding=UTF8"]
        self._run("initdb", "-D", f"{self._folder}/data", "--locale=C", *words)

    def start(self) -> None:
        """Start it, again after :meth:`kill`, and wait until it answers; raises AssertionError if it does not."""
        words = ["-D", f"{self._folder}/data", "-p", str(self.port), "-k", self._folder, "-h", "127.0.0.1"]
        with open(f"{self._folder}/said", "ab") as said:
            self._process = subprocess.Popen(
                [f"{self._programs}/postgres", *words], cwd=self._folder, stdout=said, stderr=said, **self._owner
            )
        deadline = time.monotonic() + PATIENCE
        address = ("-h", "127.0.0.1", "-p", str(self.port), "-U", USER)
        while self._call("pg_isready", "-q", *address, "-d", "postgres").returncode:
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(Path(self._folder, "said").read_text(errors="replace")[-3000:])
            time.sleep(LOOK)
        self._call("createdb", *address, USER)

    def kill(self, number: int = signal.SIGKILL) -> None:
        """End it by a signal, at once unless another is given."""
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(PATIENCE)
            self._process = None

    def _call(self, name: str, *words: str) -> "subprocess.CompletedProcess[bytes]":
        variables = {**os.environ, "PGPASSWORD": PASSWORD}
        return subprocess.run(
            [f"{self._programs}/{name}", *words], cwd=self._folder, env=variables, capture_output=True, **self._owner
        )

    def _run(self, name: str, *words: str) -> None:
        ended = self._call(name, *words)
        if ended.returncode:
            raise AssertionError(ended.stderr.decode(errors="replace"))
