"""Describes options: for the help text, the pages and the example file."""

from enum import Enum

from fleximq.config.option_table import REPEATED, Option
from fleximq.config.option_values import flag, formattedSize, size, texts
from fleximq.config.settings import Settings

_DEFAULTS = Settings()


def words(option: Option) -> str:
    """Return an option's help text, and whether it may be repeated."""
    return f"{option.words[:-1]}; may be given several times." if option.read in REPEATED else option.words


def default(option: Option) -> str:
    """Return an option's default as text; "" for a switch, and for an option that has none."""
    value = option.of(_DEFAULTS)
    if option.read is flag or value in (None, (), ""):
        return ""
    if option.read is texts:
        return ", ".join(value)
    if option.read is size:
        return formattedSize(value)
    if isinstance(value, Enum):
        return str(value.value)
    return f"{value:g}" if isinstance(value, float) else str(value)
