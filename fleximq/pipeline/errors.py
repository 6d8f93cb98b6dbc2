"""What can go wrong in the pipeline; the text of each error is one sentence for whoever started the query.

What to say of a query that failed: the one sentence of the error that it began with.

Spark tells of an error in one of its Python processes as a text of many lines, in which the error's own words stand at
the end of what Python printed.
"""

import re

#: An error of ours as Python prints it: the name of its class with all of the module's, and its words.
_OURS = re.compile(r"^\W*fleximq(?:\.\w+)*\.[A-Z]\w*: (.+)$", re.MULTILINE)
#: An error of any class as Python prints it behind the places that led to it.
_PYTHON = re.compile(
    r"^\W*Traceback \(most recent call last\):\n(?:\W*  .*\n|\W*\n)+?\W*([A-Za-z_][\w.]*: .+)$", re.MULTILINE
)
#: How Spark's SQL names its errors; the words themselves are in between.
_STATE = re.compile(r"\s*SQLSTATE: \w+")
_CALLED = "An error occurred while calling "
_CLASS = re.compile(r"^\[[A-Z0-9_.]+\] ")


def sentenceOf(error: BaseException) -> str:
    """Return the words of the error that this one tells of, as one line without anything around it."""
    text = str(error)
    for pattern in (_OURS, _PYTHON):
        found = pattern.findall(text)
        if found:
            return str(found[-1]).strip()
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if len(lines) > 1 and lines[0].startswith(_CALLED):
        # Where Spark has no words of its own for it, Java's stand behind those of the bridge to it.
        lines = [lines[1].lstrip(": ")]
    first = lines[0] if lines else type(error).__name__
    return _CLASS.sub("", _STATE.sub("", first)).strip(" ;.")


class PipelineError(Exception):
    """The base of the pipeline's own errors. They are told across processes, so each can be pickled."""


class BrokerGone(PipelineError):
    """The broker could not be reached, or went away, for as long as it may take."""


class BrokerRefused(PipelineError):
    """The broker does not let the pipeline in, or will not do what it was asked."""


class PayloadTooLarge(BrokerRefused):
    """The broker takes no message as large as what it was told."""


class NotJournalled(PipelineError):
    """The broker has no journal, and what was asked for needs one."""


class RowRefused(PipelineError):
    """A row cannot be published as it is."""


class OptionRefused(PipelineError):
    """An option is missing, or has a value it cannot have."""


class LakeRefused(PipelineError):
    """A table of the lake cannot be read or written, or is not what it should be."""
