"""Takes the conversations out of README.rst and the tutorials, as a reader would who copies them.

A conversation is a code block behind the comment ``.. conversation: NAME``. What it prints stands in a code block
behind ``.. prints: NAME``, or, in JavaScript, in comments at its own end.
"""

import re
import textwrap
from pathlib import Path

README = Path(__file__).parents[1] / "README.rst"

_BLOCK = r"^\.\. {label}: {name}\n+\.\. code-block:: \w+\n\n(?P<code>(?:    .*\n|\n)+)"


def conversation(text: str, name: str, port: int) -> str:
    """Return the code of a conversation, with port 7890 replaced.

    :raises LookupError: if there is none of that name, or it names no port that could be replaced.
    """
    code = labelled(text, "conversation", name)
    if "7890" not in code:
        raise LookupError(f"the conversation {name} does not name the port 7890")
    return code.replace("7890", str(port))


def printed(text: str, name: str) -> str:
    """Return what README says that a conversation prints.

    :raises LookupError: if it does not say so.
    """
    return labelled(text, "prints", name)


def saved(text: str, name: str) -> str:
    """Return the code behind ``.. saved: NAME``, which a page tells its reader to save or to run.

    :raises LookupError: if there is none of that name.
    """
    return labelled(text, "saved", name)


def labelled(text: str, label: str, name: str) -> str:
    """Return the code behind ``.. LABEL: NAME``.

    :raises LookupError: if there is none, or several.
    """
    found = re.findall(_BLOCK.format(label=label, name=name), text, re.MULTILINE)
    if len(found) != 1:
        raise LookupError(f"there are {len(found)} code blocks behind '.. {label}: {name}', not 1")
    return textwrap.dedent(found[0]).strip() + "\n"


def sentFrames(code: str) -> list[str]:
    """Return the texts that a conversation in JavaScript sends, in order."""
    return re.findall(r'ws\.send\("([^"]*)"\)', code)


def webSocketPath(code: str) -> str:
    """Return the path of the one WebSocket that a conversation in JavaScript opens."""
    (path,) = re.findall(r'new WebSocket\("ws://[^/"]*(/[^"]*)"\)', code)
    return str(path)


def loggedLines(code: str) -> list[str]:
    """Return what a conversation in JavaScript logs, as its comments say; ``xxxxxxxx`` stands for any name."""
    return re.findall(r"^// (.*)$", code, re.MULTILINE)


def saysTheSame(logged: str, documented: str) -> bool:
    """Whether a line is what README says, where ``xxxxxxxx`` stands for eight hexadecimal digits."""
    return re.fullmatch(re.escape(documented).replace("xxxxxxxx", "[0-9a-f]{8}"), logged) is not None
