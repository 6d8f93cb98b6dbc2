"""Files with secrets: read completely, replaced atomically, readable by their owner only.

Files of passwords, keys or tokens have lines ``NAME:HASH``, ``NAME:HASH:ROLE,ROLE`` or ``NAME:HASH:ROLE,ROLE:UNTIL``
(UTC, as in ``20261231T235959Z``; there may be no roles before it). Empty lines and comments with ``#`` are preserved.
"""

import fcntl
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import NamedTuple

from fleximq.errors import SettingError, systemReason
from fleximq.limits import MEBIBYTE
from fleximq.security.principal import isName, isRole

#: Maximum size of a file with secrets in bytes.
MAX_FILE_BYTES = 64 * MEBIBYTE


class SecretFile(NamedTuple):
    """The bytes of a file, and warnings for its owner."""

    content: bytes
    warnings: tuple[str, ...]


def read(path: str, public: bool = False) -> SecretFile:
    """Return the content of a file, which others may read if it is ``public``; raises SettingError if that fails."""
    if not path or "\0" in path:
        raise SettingError(f"{path!r} names no file")
    try:
        with open(path, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise SettingError(f"{path} cannot be read: {systemReason(error)}") from error
    if len(content) > MAX_FILE_BYTES:
        raise SettingError(f"{path} has more than {MAX_FILE_BYTES} bytes")
    others = not public and mode & (stat.S_IRWXG | stat.S_IRWXO) and not _isCredential(path)
    return SecretFile(content, (f"{path} is open to others than its owner: chmod 600 {path}",) if others else ())


def _isCredential(path: str) -> bool:
    """Return whether this is a credential file of systemd: its folder is closed to others, even if the file is not."""
    folder = os.environ.get("CREDENTIALS_DIRECTORY")
    return bool(folder) and os.path.dirname(os.path.abspath(path)) == os.path.abspath(folder or "")


def text(path: str, found: SecretFile) -> str:
    """Return the content of a file as text; raises SettingError if it is not UTF-8; the sentence names the line."""
    try:
        return found.content.decode()
    except UnicodeDecodeError as error:
        line = found.content.count(b"\n", 0, error.start) + 1
        raise SettingError(f"{path} cannot be understood: line {line} is not UTF-8") from None


@contextmanager
def alone(path: str) -> Iterator[None]:
    """Lock the folder of a file against other uses of this function; raises SettingError if it does not exist."""
    folder = os.path.dirname(os.path.abspath(path))
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise SettingError(f"{path} cannot be written: {systemReason(error)}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def write(path: str, content: str) -> None:
    """Replace a file atomically, also after a crash; raises SettingError if it cannot be written.

    Its owner can read it, and its group if it could read the old one.
    """
    path = os.path.realpath(path)
    folder = os.path.dirname(path)
    try:
        descriptor, new = tempfile.mkstemp(prefix=".", suffix=".new", dir=folder)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
                with suppress(FileNotFoundError, PermissionError):
                    old = os.stat(path)
                    os.fchown(descriptor, old.st_uid, old.st_gid)
                    os.fchmod(descriptor, stat.S_IRUSR | stat.S_IWUSR | (old.st_mode & stat.S_IRGRP))
                file.write(content)
                file.flush()
                os.fsync(descriptor)
            os.replace(new, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(new)
            raise
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise SettingError(f"{path} cannot be written: {systemReason(error)}") from error


_TIME = "%Y%m%dT%H%M%SZ"


class CredentialEntry(NamedTuple):
    """One line: the name, the hash of the secret, the roles, and its end in seconds since 1970."""

    name: str
    hash: str
    roles: tuple[str, ...] = ()
    until: float | None = None

    def __repr__(self) -> str:
        return f"CredentialEntry(name={self.name!r})"

    def line(self) -> str:
        """Return the line for the file."""
        until = [] if self.until is None else [datetime.fromtimestamp(self.until, UTC).strftime(_TIME)]
        return ":".join([self.name, self.hash, *([",".join(self.roles)] if self.roles or until else []), *until])

    def hasExpired(self, now: float) -> bool:
        """Return whether its end is past at this time, in seconds since 1970."""
        return self.until is not None and self.until <= now


class CredentialFile(NamedTuple):
    """A file: its lines, entries among them, and warnings for its owner."""

    lines: tuple[CredentialEntry | str, ...] = ()
    warnings: tuple[str, ...] = ()

    def all(self) -> list[CredentialEntry]:
        """Return the entries."""
        return [each for each in self.lines if isinstance(each, CredentialEntry)]


def readEntries(path: str, fault: Callable[[str], str | None]) -> CredentialFile:
    """Return the lines of a file; ``fault`` returns that of a hash, or None. Raises SettingError with a line number."""
    found = read(path)
    lines = text(path, found).splitlines()
    entries = tuple(_lineOf(path, number, line, fault) for number, line in enumerate(lines, 1))
    return CredentialFile(entries, found.warnings)


def writeEntries(path: str, lines: tuple[CredentialEntry | str, ...]) -> None:
    """Replace the lines of a file; raises SettingError if it cannot be written."""
    spelled = [each.line() if isinstance(each, CredentialEntry) else each for each in lines]
    write(path, "".join(f"{line}\n" for line in spelled))


def faultOfName(name: str) -> str | None:
    """Return the fault of a name for a file, as the end of a sentence, or None."""
    if not isName(name):
        return "a name of 1 to 256 characters, without control characters and other than anonymous and spawn:..."
    return "a name without a colon and not beginning with #" if ":" in name or name.startswith("#") else None


def _lineOf(path: str, number: int, line: str, fault: Callable[[str], str | None]) -> CredentialEntry | str:
    if not line.strip() or line.startswith("#"):
        return line
    name, *rest = line.split(":")
    place = f"{path} cannot be understood: line {number}"
    if faultOfName(name) or not 1 <= len(rest) <= 3:
        raise SettingError(f"{place} is not NAME:HASH or NAME:HASH:ROLE,ROLE")
    wrong = fault(rest[0])
    if wrong is not None:
        raise SettingError(f"{place}, for {name}, {wrong}")
    roles = tuple(rest[1].split(",")) if len(rest) > 1 and (rest[1] or len(rest) == 2) else ()
    if not all(isRole(role) for role in roles):
        raise SettingError(f"{place}, for {name}, has a role that is not letters, digits, _, . or -")
    try:
        until = datetime.strptime(rest[2], _TIME).replace(tzinfo=UTC).timestamp() if len(rest) == 3 else None
    except ValueError:
        raise SettingError(f"{place}, for {name}, ends at no time like 20261231T235959Z") from None
    return CredentialEntry(name, rest[0], roles, until)
