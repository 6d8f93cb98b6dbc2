"""Starts a quick and quiet Spark session on this machine. Under ``spark-submit`` only explicit settings apply."""

import logging
import os
import shlex
import shutil
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyspark
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from fleximq.limits import MEBIBYTE
from fleximq.pipeline.command import java
from fleximq.pipeline.command.java import ClassArchive, cacheFolder
from fleximq.pipeline.command.memory import shareOfMemory
from fleximq.pipeline.errors import PipelineError

#: The default master: in this process's Java, with a task for each core.
LOCAL = "local[*]"
#: Loggers of Spark that repeat the exception of a failing query.
_REPEATED = ["executor.Executor", "scheduler.TaskSetManager", "util.Utils", "api.python"]
_REPEATED += ["sql.execution.streaming", "sql.execution.datasources", "sql.execution.python"]
#: Environment variables that a session with its own Java sets, until it ends.
_ENVIRONMENT = ("JAVA_HOME", "PYSPARK_PYTHON")
#: Disables Arrow's checks of bounds and of nulls for each value in Java: data from Python were made by Arrow too. Saves
#: a tenth of the time that Java spends on rows of 100 bytes.
_UNCHECKED = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
#: Has Java do without its second compiler, which takes half of the processor time of a start on two cores, and pays
#: only where Java itself works for minutes. In these sessions Python reads and decodes.
_QUICK = "-XX:TieredStopAtLevel=1"
_DAEMON = "fleximq.pipeline.command.worker_daemon"
_GATEWAY = "org.apache.spark.api.python.PythonGatewayServer"


#: Settings of every session. Spark does not push filters down by itself: Spark 4.3 applies those of one use of a table
#: to its other uses, whose rows are then missing or too many.
COMMON: dict[str, str] = {
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    # Over TCP, Python and Java wait for acknowledgements in each task: 20 ms and more.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.ui.showConsoleProgress": "false",
}
#: Settings of a session on this machine only.
LOOPBACK: dict[str, str] = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": str(os.cpu_count() or 1),
    "spark.driver.maxResultSize": "0",
}


class SparkLauncher:
    """A running Spark; ended by :meth:`end`. Raises PipelineError if no Java was found, or Spark does not start.

    :param master: if None, :data:`LOCAL` or that of ``spark-submit``; ``conf`` overrides settings of the pipeline.
    :param verbose: whether Spark's own log is shown.
    :param archive: whether the archive of classes is used; ``record``: whether it may be made.
    :param quick: whether the session is for little work in Java.
    """

    def __init__(
        self,
        master: str | None = None,
        conf: Mapping[str, str] | None = None,
        verbose: bool = False,
        archive: bool = True,
        record: bool = False,
        quick: bool = False,
    ) -> None:
        self._folder = tempfile.mkdtemp(prefix="fleximq-pipeline-")
        self._verbose = verbose
        self._archive: ClassArchive | None = None
        self._before = {name: os.environ.get(name) for name in _ENVIRONMENT}
        submitted = "PYSPARK_GATEWAY_PORT" in os.environ
        given = dict(conf or {})
        settings = dict(COMMON)
        try:
            # A Java that records classes reports it at its end, even if silenced.
            with _standardOutput(os.devnull if archive and record and not verbose else None):
                if not submitted:
                    master = master or given.get("spark.master", LOCAL)
                    settings |= self._driver(master, given, archive, record, quick)
                self.spark = self._start(master, settings | given)
            if submitted and not verbose:
                self.spark.sparkContext.setLogLevel("ERROR")
        except BaseException:
            self._restore()
            raise

    def _start(self, master: str | None, settings: Mapping[str, str]) -> SparkSession:
        builder: Any = SparkSession.builder.appName("fleximq-pipeline")
        if master is not None:
            builder = builder.master(master)
        builder = builder.config(map=dict(settings))
        if not self._verbose:
            # The exception contains the text that they log.
            for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
                PySparkLogger.getLogger(name).setLevel(logging.CRITICAL + 1)
            warnings.filterwarnings("ignore", category=FutureWarning, module=r"pyspark\.")
            os.environ.setdefault("PYTHONWARNINGS", "ignore::FutureWarning")
        try:
            with java.utf8FileNames():
                spark: SparkSession = builder.getOrCreate()
        except Exception as error:
            raise PipelineError(f"Spark did not start: {str(error).splitlines()[0]}") from error
        return spark

    def _driver(self, master: str, conf: dict[str, str], archive: bool, record: bool, quick: bool) -> dict[str, str]:
        """Return the settings of a driver that this process starts; Java's options are removed from ``conf``."""
        found = java.find()
        os.environ["JAVA_HOME"] = java.javaHome(found, f"{self._folder}/java")
        settings = {"spark.driver.memory": f"{shareOfMemory() // MEBIBYTE}m"}
        if master.startswith("local"):
            settings |= LOOPBACK
            settings["spark.sql.warehouse.dir"] = f"{self._folder}/warehouse"
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable if self._verbose else self._quietPython())
        else:
            settings["spark.executor.extraJavaOptions"] = _UNCHECKED
        options = [_UNCHECKED, _QUICK if quick else "", conf.pop("spark.driver.extraJavaOptions", "")]
        if not self._verbose:
            options.append(f"-Dlog4j2.configurationFile={self._quiet()}")
        cache = cacheFolder() if archive else None
        if cache is not None:
            self._archive = ClassArchive(cache, found, str(Path(pyspark.__file__).parent))
            options.append(self._archive.options(record))
            if not record or self._archive.path.exists():
                self._archive = None
        settings["spark.driver.extraJavaOptions"] = " ".join(filter(None, options))
        return settings

    def _quietPython(self) -> str:
        """Write a script that runs this Python, with our daemon in place of Spark's, and return its path. Spark's own
        setting for a daemon does not apply to the workers that plan a query.
        """
        file = Path(self._folder, "python")
        python = shlex.quote(sys.executable)
        file.write_text(
            f'#!/bin/sh\nif [ "$2" = pyspark.daemon ]; then shift 2; exec {python} -m {_DAEMON} "$@"; fi\n'
            f'exec {python} "$@"\n'
        )
        file.chmod(0o755)
        return str(file)

    def _quiet(self) -> str:
        """Write the settings of a log that omits errors that are reported otherwise, and return the file."""
        file = Path(self._folder, "log4j2.properties")
        lines = [
            "status = error",
            "rootLogger.level = error",
            "rootLogger.appenderRef.stderr.ref = stderr",
            "appender.stderr.type = Console",
            "appender.stderr.name = stderr",
            "appender.stderr.target = SYSTEM_ERR",
            "appender.stderr.layout.type = PatternLayout",
            "appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex",
        ]
        for place, name in enumerate(_REPEATED):
            lines += [f"logger.l{place}.name = org.apache.spark.{name}", f"logger.l{place}.level = off"]
        # Spark applies the level of this logger to all, and prints a line if they differ.
        lines += [f"logger.all.name = {_GATEWAY}", "logger.all.level = error"]
        file.write_text("\n".join(lines) + "\n")
        return str(file)

    @property
    def isRecording(self) -> bool:
        """Whether :meth:`end` will take some seconds to make the archive of classes."""
        return self._archive is not None

    def end(self, keep: bool = False) -> None:
        """Stop Spark, end its Java, and remove temporary files; make the archive of classes if ``keep``."""
        with suppress(Exception):
            # Spark may be gone already.
            self._stop(keep)
        self._restore()

    def _restore(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        for name, value in self._before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value

    def _stop(self, keep: bool) -> None:
        context: Any = self.spark.sparkContext
        gateway = context._gateway
        archive = self._archive if keep else None
        arguments: list[str] = []
        if archive is not None:
            # The options of the running Java, its class path first.
            running = gateway.jvm.java.lang.management.ManagementFactory.getRuntimeMXBean()
            arguments = ["-cp", str(running.getClassPath()), *map(str, running.getInputArguments())]
        self.spark.stop()
        program = getattr(gateway, "proc", None)
        if program is None:
            return
        gateway.shutdown()
        type(context)._gateway = type(context)._jvm = None
        if self._archive is not None and not keep:
            program.kill()  # or it would write an archive that is not used
        program.stdin.close()
        if archive is not None:
            archive.keep(program, arguments)
        program.wait()


@contextmanager
def _standardOutput(file: str | None) -> Iterator[None]:
    """Redirect the standard output of programs that are started in this block to a file, or to standard error."""
    sys.stdout.flush()
    kept = os.dup(1)
    try:
        if file is None:
            os.dup2(2, 1)
        else:
            with open(file, "wb") as given:
                os.dup2(given.fileno(), 1)
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
