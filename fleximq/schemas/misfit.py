"""The error for a payload that does not fit its schema, and the interface of codecs."""

from typing import Any, Protocol

from fleximq.errors import SettingError

#: Maximum characters of the words.
MAX_WORDS = 240
#: Maximum characters of a path.
_MAX_PATH = 200


class Misfit(Exception):
    """A payload does not fit its schema; the text is one clause that names the field.

    ``path`` is that of the field, as ``address.city`` or ``items[2].price``, "" for the whole payload; ``words`` are
    the fault.
    """

    def __init__(self, path: str, words: str) -> None:
        self.path = path if len(path) <= _MAX_PATH else f"{path[:_MAX_PATH]}..."
        self.words = words if len(words) <= MAX_WORDS else f"{words[:MAX_WORDS]}..."
        super().__init__(f"'{self.path}' {self.words}" if path else f"the payload {self.words}")


class ICodec(Protocol):
    """Reads payloads by one schema."""

    def read(self, payload: bytes) -> Any:
        """Return the value of a payload; raises Misfit if it does not fit."""


def missingExtra(error: ImportError) -> SettingError:
    """Return the error for a library that is not installed."""
    return SettingError(f"schemas need the extra schemas: pip install 'fleximq[schemas]' ({error})")
