"""How the log is written, as an operator sets it."""

from enum import Enum

from fleximq.errors import SettingError


class LogFormat(Enum):
    """The two forms that there are."""

    TEXT = "text"
    JSON = "json"


def logFormat(name: str, value: object) -> LogFormat:
    """Read the name of a form.

    :raises SettingError: it is none.
    """
    try:
        return LogFormat(value)
    except ValueError:
        known = ", ".join(form.value for form in LogFormat)
        raise SettingError(f"{name} is {value!r}, but must be one of {known}") from None
