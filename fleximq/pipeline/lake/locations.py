"""The name of a local path for each library: a lake's folder may have blanks, brackets, ``%``, ``#`` or ``?``."""

import os
import re

from fleximq.pipeline.errors import LakeRefused

_PATTERN = re.compile(r"([\\*?\[\]{}])")
#: In the path of a table, deltalake decodes the former twice, and takes the latter for a slash.
_NOT_DELTA = re.compile(r"%[0-9A-Fa-f]{2}|\\")

_NO_NAMES = ("", ".", "..")


def sparkPath(path: str) -> str:
    """Return a path for Spark's readers, which take names with some characters for patterns."""
    return _PATTERN.sub(r"\\\1", path)


def lakePath(lake: str) -> str:
    """Return the whole path of a lake that a user names, or its URL without slashes at the end. Raises LakeRefused for
    a URL that a store would read as another one.
    """
    scheme, isUrl, place = lake.partition("://")
    if not isUrl:
        return os.path.abspath(os.path.expanduser(lake))
    if faulty := [each for each in place.rstrip("/").split("/") if each in _NO_NAMES]:
        raise LakeRefused(
            f"the lake {lake} has the part {faulty[0]!r}, but needs {scheme}://BUCKET/NAME, also with several names, "
            "none of them empty, '.' or '..'"
        )
    return f"{scheme}://{place.rstrip('/')}"


def icebergLocation(path: str) -> str:
    """Return the location of a path for PyIceberg, which reads a URL only up to its ``#`` or ``?``."""
    return path if "://" in path or set(path) & set("#?") else f"file://{path}"


def checkDelta(table: str) -> None:
    """Raise LakeRefused for a path that deltalake cannot use."""
    if found := _NOT_DELTA.search(table):
        raise LakeRefused(
            f"the table {table} cannot be of format delta: deltalake cannot use a path with {found[0]!r}; give the "
            "lake another folder"
        )


def checkIceberg(table: str) -> None:
    """Raise LakeRefused for a URL that PyIceberg cannot use."""
    if "://" in table and (found := [each for each in table if each in "#?"]):
        raise LakeRefused(
            f"the table {table} cannot be of format iceberg: PyIceberg cannot use a URL with {found[0]!r}; give the "
            "lake another place"
        )
