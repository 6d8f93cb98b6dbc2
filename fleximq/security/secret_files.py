"""Files with secrets in them: read whole, replaced whole, and nobody's business but their owner's.

The lines of a file of passwords, keys or tokens: ``NAME:HASH`` or ``NAME:HASH:ROLE,ROLE``.

Empty lines and those that begin with ``#`` say nothing, and stay where they are when the file is changed.
"""

import fcntl
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from fleximq.errors import SettingError
from fleximq.limits import MEBIBYTE
from fleximq.security.principal import isName, isRole

#: A file with secrets may have so many bytes.
MAX_FILE_BYTES = 64 * MEBIBYTE


class SecretFile(NamedTuple):
    """The bytes of a file, and what its owner should be told about it."""

    content: bytes
    warnings: tuple[str, ...]


def read(path: str, public: bool = False) -> SecretFile:
    """Return what stands in a file.

    :param public: nothing in it is secret, so that everybody may read it.
    :raises SettingError: there is none, or it cannot be read.
    """
    if not path or "\0" in path:
        raise SettingError(f"{path!r} names no file")
    try:
        with open(path, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        words = error.strerror or str(error)
        raise SettingError(f"{path} cannot be read: {words[:1].lower()}{words[1:]}") from error
    if len(content) > MAX_FILE_BYTES:
        raise SettingError(f"{path} has more than {MAX_FILE_BYTES} bytes")
    others = not public and mode & (stat.S_IRWXG | stat.S_IRWXO) and not _isCredential(path)
    return SecretFile(content, (f"{path} is open to others than its owner: chmod 600 {path}",) if others else ())


def _isCredential(path: str) -> bool:
    """Say whether systemd keeps this file, in a folder that is shut to others whatever the mode of the file."""
    folder = os.environ.get("CREDENTIALS_DIRECTORY")
    return bool(folder) and os.path.dirname(os.path.abspath(path)) == os.path.abspath(folder or "")


def text(path: str, found: SecretFile) -> str:
    """Return what was found in a file as text.

    :raises SettingError: it is not UTF-8; the sentence names the line.
    """
    try:
        return found.content.decode()
    except UnicodeDecodeError as error:
        line = found.content.count(b"\n", 0, error.start) + 1
        raise SettingError(f"{path} cannot be understood: line {line} is not UTF-8") from None


@contextmanager
def alone(path: str) -> Iterator[None]:
    """Keep out, meanwhile, everybody else who changes a file in the same folder in this manner.

    :raises SettingError: there is no such folder.
    """
    folder = os.path.dirname(os.path.abspath(path))
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise SettingError(f"{path} cannot be written: {(error.strerror or str(error)).lower()}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def write(path: str, content: str) -> None:
    """Put this in the place of a file, all at once. Only its owner may read it, and its group if that might before.

    Whoever reads the file meanwhile finds the old content or the new one, also after a crash.

    :raises SettingError: it cannot be written.
    """
    path = os.path.realpath(path)
    folder = os.path.dirname(path)
    try:
        descriptor, new = tempfile.mkstemp(prefix=".", suffix=".new", dir=folder)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
                _giveTo(path, descriptor)
                file.write(content)
                file.flush()
                os.fsync(descriptor)
            os.replace(new, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(new)
            raise
        _sync(folder)
    except OSError as error:
        raise SettingError(f"{path} cannot be written: {(error.strerror or str(error)).lower()}") from error


def _giveTo(path: str, descriptor: int) -> None:
    """Let a new file belong to whom the old one belongs, and its group read it if that might; else it stays ours."""
    with suppress(FileNotFoundError, PermissionError):
        old = os.stat(path)
        os.fchown(descriptor, old.st_uid, old.st_gid)
        os.fchmod(descriptor, stat.S_IRUSR | stat.S_IWUSR | (old.st_mode & stat.S_IRGRP))


def _sync(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


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
    found = read(path)
    lines = text(path, found).splitlines()
    return CredentialFile(
        tuple(_lineOf(path, number, line, fault) for number, line in enumerate(lines, 1)), found.warnings
    )


def writeEntries(path: str, lines: tuple[CredentialEntry | str, ...]) -> None:
    """Put these lines in the place of a file.

    :raises SettingError: it cannot be written.
    """
    spelled = [each.line() if isinstance(each, CredentialEntry) else each for each in lines]
    write(path, "".join(f"{line}\n" for line in spelled))


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
