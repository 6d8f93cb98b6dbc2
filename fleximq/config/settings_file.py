"""The settings file: TOML with the names of the command line."""

import tomllib
from pathlib import Path

from fleximq.errors import SettingError


def read(path: str) -> dict[str, object]:
    """Return what is written in a file, by name; whether the names and values are settings is not looked at.

    :raises SettingError: the file is not there, cannot be read or is not TOML; the sentence names the file, and the
        line where there is one.
    """
    try:
        written = Path(path).read_bytes()
    except (OSError, ValueError) as error:
        words = (isinstance(error, OSError) and error.strerror) or str(error)
        raise SettingError(f"{path} cannot be read: {words[:1].lower()}{words[1:]}") from error
    try:
        return tomllib.loads(written.decode())
    except UnicodeDecodeError as error:
        line = written.count(b"\n", 0, error.start) + 1
        raise SettingError(f"{path} is not TOML: line {line} is not UTF-8") from error
    except tomllib.TOMLDecodeError as error:
        words = str(error)
        raise SettingError(f"{path} is not TOML: {words[:1].lower()}{words[1:]}") from error
    except RecursionError as error:
        raise SettingError(f"{path} is not TOML that can be read: it is nested too deeply") from error
