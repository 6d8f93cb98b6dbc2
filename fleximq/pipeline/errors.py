"""Errors of the pipeline; the text of each is one sentence for the user of the query."""

import os
import re
import shlex

#: An error of ours as Python prints it: the full name of its class, and its text.
_OURS = re.compile(r"^\W*fleximq(?:\.\w+)*\.[A-Z]\w*: (.+)$", re.MULTILINE)
#: An error of any class as Python prints it after the traceback.
_PYTHON = re.compile(
    r"^\W*Traceback \(most recent call last\):\n(?:\W*  .*\n|\W*\n)+?\W*([A-Za-z_][\w.]*: .+)$", re.MULTILINE
)
#: The error codes of Spark's SQL around the text.
_STATE = re.compile(r"\s*SQLSTATE: \w+")
_CALLED = "An error occurred while calling "
_CLASS = re.compile(r"^\[[A-Z0-9_.]+\] ")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
#: The parts of an error of SQLAlchemy after its text, and the class before it.
_SQL = re.compile(r"\s*\[SQL: .*|\s*\(Background on this error at: .*", re.DOTALL)
_DATABASE = re.compile(r"^\((?:\w+\.)+\w+\) ")
#: Characters of tables that PyIceberg draws.
_BOX = re.compile(r"[\u2500-\u257f]")


def plainError(error: BaseException) -> str:
    """Return the text of a library's error as one line, without colours, SQL, links and tables."""
    text = _DATABASE.sub("", _SQL.sub("", _COLOUR.sub("", str(error))))
    lines = [line.strip() for line in text.splitlines() if line.strip() and not _BOX.search(line)]
    joined = " ".join(lines).replace(" \u21b3 ", ": ")
    return joined.strip(" .") or type(error).__name__


def sentenceOf(error: BaseException) -> str:
    """Return the original error's text, as one line: Spark's is of many lines that end with it."""
    text = _COLOUR.sub("", str(error))
    for pattern in (_OURS, _PYTHON):
        found = pattern.findall(text)
        if found:
            return str(found[-1]).strip()
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if len(lines) > 1 and lines[0].startswith(_CALLED):
        # Without a text of Spark, that of Java follows the bridge's.
        lines = [lines[1].lstrip(": ")]
    first = lines[0] if lines else type(error).__name__
    return _CLASS.sub("", _STATE.sub("", first)).strip(" ;.")


class PipelineError(Exception):
    """The base of the pipeline's own errors. Each can be pickled. A job ends with the exit code of its error."""

    exitCode = 1


class BrokerGone(PipelineError):
    """The broker stayed unreachable for the timeout."""


class RegistryGone(PipelineError):
    """The schema registry stayed unreachable for the timeout, or refuses the login."""


class BrokerRefused(PipelineError):
    """The broker refuses the login, or a request."""


class PayloadTooLarge(BrokerRefused):
    """The broker refuses messages of this size."""


class NotJournalled(PipelineError):
    """The broker has no journal, which the request needs."""


class RowRefused(PipelineError):
    """A row cannot be published as it is."""


class OptionRefused(PipelineError):
    """An option is missing, or has an invalid value."""


class DeadLettersFound(PipelineError):
    """Messages that must fit do not fit their table."""

    exitCode = 3


class LakeRefused(PipelineError):
    """A table of the lake cannot be read or written, or is damaged."""


class LeftBehind(LakeRefused):
    """A table cannot get the messages that it lacks yet; its ingest tries again later."""


class CommitRefused(LakeRefused):
    """The log of a table, Delta Lake's or Iceberg's, refuses a recorded batch or change, and has not changed."""

    @classmethod
    def of(cls, table: str, error: LakeRefused) -> "CommitRefused":
        """Return the error with the command that tries the commit again."""
        return cls(f"{error}; {repairCommand(table)} tries it again")


class TableBusy(LakeRefused):
    """Another process locks a table for long, or has changed it although it was locked; later it can be changed."""


class RowsRefused(LakeRefused):
    """The log of a table of the latest rows refuses the values of some rows; the change is undone."""


def repairCommand(table: str) -> str:
    """Return the command line that completes the recorded steps of a table."""
    lake, name = os.path.split(table)
    return f"fleximq-pipeline repair --lake {shlex.quote(lake)} --table {name}"
