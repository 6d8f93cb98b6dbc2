"""Which tables a lake has, and what is asked of those that jobs look after."""

import os
from argparse import ArgumentParser
from collections.abc import Sequence

from fleximq.config import option_values
from fleximq.pipeline.command.job import option
from fleximq.pipeline.errors import LakeRefused, OptionRefused
from fleximq.pipeline.lake.table.file_names import OWN


def addTables(parser: ArgumentParser) -> None:
    """Add the options that name a lake and its tables."""
    option(
        parser, "--lake", read=option_values.text, metavar="FOLDER", help="the folder in which each table has its own"
    )
    option(
        parser,
        "--table",
        read=option_values.text,
        metavar="NAME",
        action="append",
        help="only this table; may be repeated",
    )


def tablesOf(lake: str | None, names: Sequence[str] | None) -> list[str]:
    """Return the folders of these tables, or of all.

    :raises OptionRefused: no lake was named.
    :raises LakeRefused: there is no such table, or none at all.
    """
    if not lake:
        raise OptionRefused("--lake FOLDER is needed: it says where the tables are")
    lake = os.path.abspath(os.path.expanduser(lake))
    try:
        found = sorted(name for name in os.listdir(lake) if os.path.isdir(f"{lake}/{name}/{OWN}"))
    except OSError as error:
        raise LakeRefused(f"the lake {lake} cannot be read: {(error.strerror or str(error)).lower()}") from error
    if not found:
        raise LakeRefused(f"there is no table in {lake}")
    for name in names or ():
        if name not in found:
            raise LakeRefused(f"there is no table {name!r} in {lake}, only {', '.join(found)}")
    return [f"{lake}/{name}" for name in names or found]
