"""The lines of a file of passwords, keys or tokens: ``NAME:HASH`` or ``NAME:HASH:ROLE,ROLE``.

Empty lines and those that begin with ``#`` say nothing, and stay where they are when the file is changed.
"""

from collections.abc import Callable
from typing import NamedTuple

from fleximq.errors import SettingError
from fleximq.security import secret_files
from fleximq.security.principal import isName, isRole


class CredentialEntry(NamedTuple):
    """One line: who it is, the hash of what is shown, and the roles that come with it."""

    name: str
    hash: str
    roles: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"Entry(name={self.name!r})"

    def line(self) -> str:
        """Return the line as it stands in the file."""
        return ":".join([self.name, self.hash, *([",".join(self.roles)] if self.roles else [])])


class CredentialFile(NamedTuple):
    """A file: its lines, entries among them, and what its owner should be told."""

    lines: tuple[CredentialEntry | str, ...] = ()
    warnings: tuple[str, ...] = ()

    def all(self) -> list[CredentialEntry]:
        """Return the entries."""
        return [each for each in self.lines if isinstance(each, CredentialEntry)]


def readEntries(path: str, fault: Callable[[str], str | None]) -> CredentialFile:
    """Return what stands in a file.

    :param fault: returns what is wrong with a hash, as the end of a sentence, or None.
    :raises SettingError: the file cannot be read, or a line is not of the form; the sentence names the line, and
        nothing of what stands there but the name.
    """
    found = secret_files.read(path)
    lines = secret_files.text(path, found).splitlines()
    return CredentialFile(
        tuple(_lineOf(path, number, line, fault) for number, line in enumerate(lines, 1)), found.warnings
    )


def writeEntries(path: str, lines: tuple[CredentialEntry | str, ...]) -> None:
    """Put these lines in the place of a file.

    :raises SettingError: it cannot be written.
    """
    spelled = [each.line() if isinstance(each, CredentialEntry) else each for each in lines]
    secret_files.write(path, "".join(f"{line}\n" for line in spelled))


def faultOfName(name: str) -> str | None:
    """Return what is wrong with a name that is to stand in a file, as the end of a sentence, or None."""
    if not isName(name):
        return "a name of 1 to 256 characters, without control characters and other than anonymous and spawn:..."
    return "a name without a colon and not beginning with #" if ":" in name or name.startswith("#") else None


def _lineOf(path: str, number: int, line: str, fault: Callable[[str], str | None]) -> CredentialEntry | str:
    if not line.strip() or line.startswith("#"):
        return line
    name, *rest = line.split(":")
    if faultOfName(name) or not 1 <= len(rest) <= 2:
        raise SettingError(f"{path} cannot be understood: line {number} is not NAME:HASH or NAME:HASH:ROLE,ROLE")
    wrong = fault(rest[0])
    if wrong is not None:
        raise SettingError(f"{path} cannot be understood: line {number}, for {name}, {wrong}")
    roles = tuple(rest[1].split(",")) if len(rest) == 2 else ()
    if not all(isRole(role) for role in roles):
        raise SettingError(
            f"{path} cannot be understood: line {number}, for {name}, has a role that is not letters, digits, _, . or -"
        )
    return CredentialEntry(name, rest[0], roles)
