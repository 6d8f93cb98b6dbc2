"""The one Spark session of a test run: starting it takes seconds, so all tests of a process share it."""

import atexit
import logging
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from unittest import SkipTest

from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

import fleximq
from fleximq.pipeline.command import java
from tests.fork_server import clientCommand, server
from tests.pipeline.object_store import environment

#: Two tasks at once, each of which may fail twice before it fails its job.
MASTER = "local[2,3]"
#: The file of AWS' settings that workers read, which have the environment of before the first store.
_PROFILE = "aws"
#: What Spark starts for each streaming query, and what that imports.
_RUNNER = "pyspark.sql.streaming.python_streaming_source_runner"
_IMPORTED = (
    "pyspark.sql.worker.plan_data_source_read",
    "fleximq.pipeline.reader.stream_reader",
    "fleximq.pipeline.reader.batch_reader",
    "fleximq.pipeline.source",
)


@cache
def sharedSession() -> SparkSession:
    """Return the session; it is made by the first who asks, and ends with the process.

    All that it writes is in a temporary folder, and nobody but this machine can reach it.

    :raises SkipTest: there is no Java to run it.
    """
    try:
        found = java.find()
    except java.NoJava as error:
        raise SkipTest(str(error)) from None
    folder = tempfile.mkdtemp(prefix="fleximq-spark-")
    os.environ["JAVA_HOME"] = java.javaHome(found, f"{folder}/java")
    source = str(Path(fleximq.__file__).parents[1])
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["PYSPARK_PYTHON"] = _python(folder)
    tests = str(Path(__file__).parents[2])
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [source, os.environ.get("PYTHONPATH"), tests]))
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    # A store that a test uses at the moment is not that of later tests.
    before = {name: os.environ.pop(name) for name in environment("") if name in os.environ}
    os.environ["AWS_CONFIG_FILE"] = f"{folder}/{_PROFILE}"
    settings = {
        "spark.master": MASTER,
        "spark.app.name": "fleximq-tests",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": folder,
        "spark.python.daemon.module": "tests.pipeline.spark_daemon",
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
    }
    builder = SparkSession.builder
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    os.environ.pop("AWS_CONFIG_FILE")
    os.environ.update(before)
    session.sparkContext.setLogLevel("OFF")
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL + 1)
    atexit.register(_end, session, folder)
    return session


def setProfile(settings: Mapping[str, str]) -> None:
    """Let Spark's workers find an object store by AWS' default profile, as it would be on machines of a cluster."""
    folder = sharedSession().conf.get("spark.local.dir")
    lines = [f"{name} = {value}" for name, value in settings.items()]
    Path(f"{folder}/{_PROFILE}").write_text("\n".join(["[default]", *lines, ""]))


def _python(folder: str) -> str:
    """Write a program that is Python, but forks the process of each streaming query from one with its imports."""
    client = clientCommand(server(*_IMPORTED))
    path = Path(folder, "python")
    path.write_text(
        f'#!/bin/sh\ncase "$2" in {_RUNNER}) exec {client} "$@" ;; *) exec {shlex.quote(sys.executable)} "$@" ;; esac\n'
    )
    path.chmod(0o755)
    return str(path)


def _end(session: SparkSession, folder: str) -> None:
    session.stop()
    shutil.rmtree(folder, ignore_errors=True)
