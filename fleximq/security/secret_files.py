"""Files with secrets in them: read whole, replaced whole, and nobody's business but their owner's."""

import fcntl
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from fleximq.errors import SettingError
from fleximq.limits import MEBIBYTE

#: A file with secrets may have so many bytes.
LARGEST = 64 * MEBIBYTE


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
            content = file.read(LARGEST + 1)
    except OSError as error:
        words = error.strerror or str(error)
        raise SettingError(f"{path} cannot be read: {words[:1].lower()}{words[1:]}") from error
    if len(content) > LARGEST:
        raise SettingError(f"{path} has more than {LARGEST} bytes")
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
