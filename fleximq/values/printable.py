"""Text from clients for terminals and logs, with control characters as escapes."""

import json
import re

#: C0, DEL, C1, the line ends U+2028 and U+2029, marks and overrides of the writing direction, and surrogates.
_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str, lines: bool = False) -> str:
    """Return a text with control characters escaped, as ``\\x1b`` or ``\\u202e``; ``lines``: except LF and TAB."""
    return _CONTROLS.sub(lambda found: found[0] if lines and found[0] in "\n\t" else _shown(found), text)


def shortened(text: str, most: int = 200) -> str:
    """Return a text of at most so many characters; a longer one is cut, and ends with ``...``."""
    return text if len(text) <= most else text[: most - 3] + "..."


def jsonLine(value: object, separators: tuple[str, str] | None = None, indent: int | None = None) -> str:
    """Return a value as JSON without control characters, on one line unless indented."""
    text = json.dumps(value, ensure_ascii=False, separators=separators, indent=indent)
    return _CONTROLS.sub(lambda found: "\n" if found[0] == "\n" else f"\\u{ord(found[0]):04x}", text)


def _shown(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
