"""``fleximq-pipeline catalog``: shows how other programs find the tables of a lake, or those of a catalog."""

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from os.path import basename
from typing import Any

from fleximq.pipeline.command.job import Job, addTables, lowered, namespace, option
from fleximq.pipeline.command.job_run import JobRun
from fleximq.pipeline.errors import LakeRefused, OptionRefused
from fleximq.pipeline.lake.table.file_names import tablesOf
from fleximq.pipeline.lake.table.format import NAMESPACE
from fleximq.values.printable import jsonLine, printable


def _prepare(parser: ArgumentParser) -> None:
    addTables(parser)
    words = "in place of a lake, all tables of a catalog: a name in PyIceberg's settings, or a URL"
    option(parser, "--catalog", "NAME|URL", words)
    words = f"the namespace of these tables ({NAMESPACE})"
    option(parser, "--namespace", "NAME", words, namespace, default=NAMESPACE)
    option(parser, "--format", None, "the output format", lowered, choices=("table", "json"), default="table")


def _run(arguments: Namespace, run: JobRun) -> None:
    """Show the tables; raises OptionRefused, and LakeRefused if one cannot be read, after the others were shown."""
    if arguments.lake and arguments.catalog:
        raise OptionRefused("--lake and --catalog exclude each other: each table of a lake knows its catalog")
    found = _inCatalog(arguments) if arguments.catalog else _inLake(arguments)
    facts, refused = [], []
    for each in found:
        if isinstance(each, LakeRefused):
            refused.append(each)
        else:
            facts.append(each)
    if arguments.format == "json":
        run.out.write(jsonLine({"tables": facts}, indent=2) + "\n")
    else:
        _write(facts, run)
    for error in refused[:-1]:
        run.writeLine(str(error))
    if refused:
        raise refused[-1]


def _inLake(arguments: Namespace) -> Iterator[dict[str, Any] | LakeRefused]:
    from fleximq.pipeline.lake.live_files import tableState
    from fleximq.pipeline.lake.table.format import formatOf

    for table in tablesOf(arguments.lake, arguments.table):
        try:
            form = formatOf(table)
            yield {"table": basename(table), "format": form["format"], **tableState(table)._asdict()}
        except LakeRefused as error:
            yield error


def _inCatalog(arguments: Namespace) -> Iterator[dict[str, Any] | LakeRefused]:
    try:
        from fleximq.pipeline.lake.iceberg.snapshots import statesIn
    except ImportError as error:
        raise OptionRefused(f"--catalog needs the extra iceberg: pip install '.[iceberg]' ({error})") from error
    for name, state in statesIn(arguments.catalog, arguments.namespace, arguments.table):
        yield {"table": name, "format": "iceberg", **state._asdict()}


def _write(facts: list[dict[str, Any]], run: JobRun) -> None:
    from fleximq.pipeline.query.query_output import aligned

    names = ["table", "format", "rows", "files", "snapshot", "catalog", "location"]
    cells = [["" if row[name] is None else printable(str(row[name])) for name in names] for row in facts]
    aligned(names, cells, [name in ("rows", "files") for name in names], run.out)
    for row in facts:
        run.out.write(f"\n{printable(row['table'])}\n\n")
        columns = [[printable(name), printable(written)] for name, written in row["columns"].items()]
        aligned(["column", "type"], columns, [False, False], run.out)


CATALOG = Job(_prepare, _run, True)
