"""Makes the packages in ``plugins/`` known to this process, as an installation would."""

import sys
from pathlib import Path

import twisted.plugins

PLUGINS = Path(__file__).parents[2] / "plugins"
#: The folder of each example, and the package in it.
EXAMPLES = {
    "audit_trail": "fleximq_audit_trail",
    "line_echo": "fleximq_line_echo",
    "time_codes": "fleximq_time_codes",
}


def makeKnown() -> None:
    """Let the examples be imported, and their drop-in files be found. What is installed comes first."""
    for folder in EXAMPLES:
        for known, path in ((sys.path, PLUGINS / folder), (twisted.plugins.__path__, PLUGINS / folder / _DROP_INS)):
            if str(path) not in known:
                known.append(str(path))


_DROP_INS = Path("twisted", "plugins")
