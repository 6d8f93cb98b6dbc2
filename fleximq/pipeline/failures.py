"""What to say of a query that failed: the one sentence of the error that it began with.

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
