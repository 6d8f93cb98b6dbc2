"""``fleximq enqueue`` puts jobs into a queue; ``fleximq work`` runs a command for each of them.

The command gets the job's value as text on standard input, and queue, attempt and ids in variables. Exit code 0
acknowledges the job, 75 (EX_TEMPFAIL) has it delivered again, as does a signal that ends the command; others reject it,
with the last line of standard error. 126 and 127 mean that the command cannot run: then the job stays in its queue, and
the worker ends.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from argparse import ArgumentTypeError, Namespace
from contextlib import suppress
from datetime import datetime
from typing import IO, Any

from fleximq.cli.client_commands.broker_options import Address, Outages, count, seconds
from fleximq.cli.client_commands.client_command import clientCommand
from fleximq.cli.client_commands.pub import VALUES, chunksOfValues, sendAll
from fleximq.cli.client_commands.texts import FORMATTERS, INPUT, STRICT, checkTopics
from fleximq.cli.command import argument
from fleximq.cli.output import jsonOption, outJson, say
from fleximq.client.blocking import Client
from fleximq.client.jobs import Job, Reject
from fleximq.client.times import milliseconds
from fleximq.errors import SettingError

_RETRY, _CANNOT_RUN = 75, (126, 127)  #: Exit codes.
_LINE = 1 << 16  #: Bytes of a line of standard error that are read at once.


def moment(text: str) -> datetime:
    """Parse a time; one without a zone is local. For ``argparse``."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is not a time such as 2030-01-31T07:00") from None
    return found if found.tzinfo is not None else found.astimezone()


@clientCommand(
    "enqueue", *VALUES, INPUT,
    argument("--priority", "N", "0 to 9; jobs with higher ones are first [4]", type=int, choices=range(10)),
    argument("--delay", "SECONDS", "put them into the queue after this time", type=seconds),
    argument("--at", "TIME", "put them into the queue at this time, e.g. 2030-01-31T07:00", type=moment),
    argument("--expires", "SECONDS", "remove those that nobody has taken after this time", type=seconds),
    argument("--key", words="the key of each job, for queues that are ordered by it"),
    argument("--message-id", "ID", "the id of the job; with a journal, the broker drops a repeated one"),
)  # fmt: skip
def enqueue(arguments: Namespace, address: Address) -> None:
    """Put a value, the lines of standard input, or a file into a queue of jobs."""
    checkTopics([arguments.topic], arguments.strict, publishes=True)
    if arguments.delay is not None and arguments.at is not None:
        raise SettingError("give --delay or --at, not both")
    same = {"priority": arguments.priority, "expires": arguments.expires}
    own = {name: getattr(arguments, name) for name in ("delay", "at", "key", "message_id")}
    isOne = arguments.count in (None, 1) and (arguments.value is not None or bool(arguments.file))
    isLater = arguments.delay is not None or arguments.at is not None
    isScheduled = isOne and isLater and arguments.message_id is None  # a repeated id has no schedule of its own
    told: dict[str, Any] = {}

    def send(values: list[Any]) -> None:
        if isScheduled:
            told["schedule"] = _schedule(arguments, client, values[0])
            return
        if not any(each is not None for each in own.values()):
            client.enqueue_many(arguments.topic, values, **same)
            return
        for value in values:
            client.enqueue(arguments.topic, value, **same, **own)

    values = chunksOfValues(arguments)
    with address.connect() as client:
        sendAll(arguments, values, send, client.flush, told)


def _schedule(arguments: Namespace, client: Client, value: Any) -> int:
    """Schedule one job, and return the id by which ``fleximq schedules rm`` removes it."""
    expires = None if arguments.expires is None else milliseconds("expires", arguments.expires)
    fields = {"priority": arguments.priority, "key": arguments.key, "expires_in": expires}
    headers = {name: each for name, each in fields.items() if each is not None}
    when = {"delay": arguments.delay, "at": arguments.at}
    return client.schedule(arguments.topic, value, **when, queue=True, headers=headers)


class CommandWorker:
    """Runs a command for each job; ``stop`` is called after ``--count`` jobs, and if the command cannot run."""

    def __init__(self, arguments: Namespace, stop: Any) -> None:
        words = arguments.command
        self._arguments = arguments
        # One word is for the shell.
        self._command = words[0] if len(words) == 1 else words
        self._stop = stop
        self._left = arguments.count
        self._lock = threading.Lock()
        self.failure: str | None = None

    def __call__(self, job: Job) -> None:
        """Run the command, and settle the job; raises Reject."""
        try:
            code, words = self._run(job)
        except OSError as error:
            code, words = _CANNOT_RUN[0], f"{self._arguments.command[0]} cannot run: {error}"
        if self._arguments.json:
            outJson({"queue": job.queue, "message_id": job.message_id, "attempt": job.attempt, "code": code})
        if code in _CANNOT_RUN:
            self.failure = words or f"exit code {code}"
            self._stop()
        elif code == _RETRY or code < 0:
            job.retry()
        self._counted()
        if code in _CANNOT_RUN:
            return job.retry(0)
        if code > 0 and code != _RETRY:
            raise Reject(words or f"exit code {code}")

    def _counted(self) -> None:
        with self._lock:
            if self._left is not None:
                self._left -= 1
                if self._left <= 0:
                    self._stop()

    def _run(self, job: Job) -> tuple[int, str]:
        """Return the exit code, and the last line of standard error, which is also shown."""
        with tempfile.TemporaryFile() as value:
            value.write(FORMATTERS[self._arguments.format](job.payload).removesuffix(b"\n"))
            value.seek(0)
            # A group of its own, so that Control-C ends the worker and not the job.
            process = subprocess.Popen(
                self._command, shell=isinstance(self._command, str), stdin=value, stderr=subprocess.PIPE,
                env=_variables(job), process_group=0,
            )  # fmt: skip
        with process:
            limit = self._arguments.limit
            timer = None if limit is None else threading.Timer(limit, _kill, (process,))
            if timer is not None:
                timer.daemon = True
                timer.start()
            try:
                assert process.stderr is not None
                words = _lastLine(process.stderr)
                return process.wait(), words
            finally:
                if timer is not None:
                    timer.cancel()


def _variables(job: Job) -> dict[str, str]:
    own = {"FLEXIMQ_QUEUE": job.queue, "FLEXIMQ_ATTEMPT": str(job.attempt)}
    for name, value in (("FLEXIMQ_MESSAGE_ID", job.message_id), ("FLEXIMQ_KEY", job.key)):
        if isinstance(value, str) and "\0" not in value:
            own[name] = value
    return {**os.environ, **own}


def _lastLine(stream: IO[bytes]) -> str:
    last = b""
    while line := stream.readline(_LINE):
        sys.stderr.write(line.decode("utf-8", "replace"))
        last = line.strip() or last
    sys.stderr.flush()
    return last.decode("utf-8", "replace")


def _kill(process: "subprocess.Popen[bytes]") -> None:
    with suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)


@clientCommand(
    "work", argument("queue", "QUEUE", "the queue, which is made if there is none"),
    argument("command", "COMMAND", "the command for each job, after --; a single word is for the shell", nargs="+"),
    STRICT,
    argument("--concurrency", "N", "run so many commands at once [1]", type=count, default=1),
    argument("--limit", "SECONDS", "kill a command that takes longer; its job is delivered again", type=seconds),
    argument("--count", "N", "end after so many jobs", type=count),
    argument("--format", None, "the format of the value on standard input [text]", choices=tuple(FORMATTERS),
             default="text"),
    jsonOption("report each job as one line of JSON"),
)  # fmt: skip
def work(arguments: Namespace, address: Address) -> int:
    """Run a command for each job of a queue: 0 acknowledges, 75 retries, other exit codes reject."""
    checkTopics([arguments.queue], arguments.strict, publishes=True)
    if len(arguments.command) > 1 and shutil.which(arguments.command[0]) is None:
        raise SettingError(f"there is no command {arguments.command[0]!r}")
    with address.connect(on_state=Outages("; jobs that were running may run again")) as client:
        worker = CommandWorker(arguments, client.stop_work)
        client.work(arguments.queue, worker, concurrency=min(arguments.concurrency, arguments.count or sys.maxsize))
    if worker.failure is not None:
        say(f"fleximq: the command cannot run, so its job is in the queue again: {worker.failure}")
    return 0 if worker.failure is None else 1
