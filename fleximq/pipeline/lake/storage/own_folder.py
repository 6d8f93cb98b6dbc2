"""The names that readers of a table ignore, and the description of a data file."""

from typing import NamedTuple

#: The folder of a table's own files; readers of Parquet ignore names with this first character.
OWN = "_fleximq"
#: The first characters of names that readers ignore.
HIDDEN = (".", "_")


class FileState(NamedTuple):
    """A data file's bytes, an identity that another file of the same path does not have, and when it was written, in
    seconds since 1970.
    """

    bytes: int
    identity: str
    changed: float
