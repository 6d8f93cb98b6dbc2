"""``fleximq-pipeline ingest``: writes topics to tables of a lake (docs/guides/pipeline-lake.rst)."""

from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from os import makedirs
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlsplit

from fleximq.config import option_values
from fleximq.errors import systemReason
from fleximq.pipeline.command import job
from fleximq.pipeline.command.job_run import JobRun
from fleximq.pipeline.errors import OptionRefused
from fleximq.pipeline.lake.locations import lakePath
from fleximq.pipeline.lake.table.file_names import LAYOUTS, checkLake
from fleximq.pipeline.lake.table.format import ICEBERG, NAMESPACE, TABLE_FORMATS

if TYPE_CHECKING:
    from fleximq.pipeline.lag import Reporter
    from fleximq.pipeline.lake.table.table_spec import TableSpec
    from fleximq.pipeline.lake.upserts.state_following import StateFollowing

#: Default approximate size of a batch in bytes of journals, and of a task.
BATCH_BYTES, TASK_BYTES = 1 << 30, 32 << 20
#: Words in the names of a URL's parameters whose values nobody else should see.
_SECRETS = ("password", "token", "secret", "credential")


def _prepare(parser: ArgumentParser) -> None:
    job.addSource(parser)
    group = parser.add_argument_group("tables")
    job.addLake(group)
    words = (
        "a table of the topics that match, payloads read as messagepack, json, text or raw (raw), or by a schema: "
        "avro:FILE, protobuf:FILE,MESSAGE, json-schema:FILE or registry:URL; with :upsert(COLUMN), the latest row of "
        "each key; may be repeated; without any, all topics become the table 'messages'"
    )
    form = "NAME=PATTERN[,PATTERN][:FORMAT][:upsert(COLUMN)]"
    job.option(group, "--table", form, words, _table, action="append")
    job.option(group, "--decode", "FORMAT", "the format of payloads, for tables without one")
    words = (
        "the columns of payloads, for tables without a schema, e.g. 'at TIMESTAMP, celsius DOUBLE'; by default they "
        "are inferred"
    )
    job.option(group, "--schema", "DDL", words)
    words = "an inferred field whose numbers are BIGINT, not DOUBLE; one in a struct is OUTER.INNER; may be repeated"
    job.option(group, "--integers", "FIELD", words, action="append")
    job.option(
        group, "--format", "FORMAT", f"{', '.join(TABLE_FORMATS)} (parquet)", _oneOf(TABLE_FORMATS), default="parquet"
    )
    words = "the catalog of Iceberg tables: a name in PyIceberg's settings, or a URL (iceberg.db in the lake)"
    job.option(group, "--catalog", "NAME|URL", words, _catalog)
    words = f"the namespace of new Iceberg tables in their catalog ({NAMESPACE})"
    job.option(group, "--namespace", "NAME", words, job.namespace)
    words = "files by date, sorted by topic, or by topic and date (date for new tables)"
    job.option(group, "--layout", "LAYOUT", words, _oneOf(LAYOUTS))
    group = parser.add_argument_group("progress")
    job.addStream(group, "_fleximq/checkpoint in the lake", 1_000_000)
    job.addStart(group)
    job.option(group, "--max-offsets", "NUMBER", "the most messages of a batch", job.positiveNumber)
    words = "about the most bytes of journals of a batch (1GiB)"
    job.option(group, "--max-bytes", "SIZE", words, option_values.size, default=BATCH_BYTES)
    words = "continue after messages that are damaged or removed before they were read, and record gaps"
    job.flag(group, "--allow-data-loss", words)
    words = "end with exit code 3 if messages become dead letters: with --once at the end, else at once"
    job.flag(group, "--strict", words)
    words = "merge the small files of the tables so often, as the job compact does; never by default"
    job.option(group, "--compact-every", "TIME", words, job.duration)
    words = "bring tables with upsert up to the journals so often (1m)"
    job.option(group, "--upsert-every", "TIME", words, job.duration, default=60_000_000)
    job.option(group, "--consumer-group", "NAME", "report progress to the brokers as group NAME")
    job.option(group, "--lag-url", "URL", "the broker to report to, if its journal is read as a folder", job.place)


def _table(name: str, written: object) -> "TableSpec":
    from fleximq.pipeline.lake.table.table_spec import tableOf

    return tableOf(name, written)


def _oneOf(known: Sequence[str]) -> Callable[[str, object], str]:
    def read(name: str, written: object) -> str:
        text = option_values.text(name, written)
        if text not in known:
            raise OptionRefused(f"{name} is {text!r}, but must be one of {', '.join(known)}")
        return text

    return read


def _catalog(name: str, written: object) -> str:
    text = option_values.text(name, written)
    if "://" in text and _hasSecret(name, text):
        raise OptionRefused(
            f"{name} has a password or token, which others would see: put the URL into the environment, as "
            "PYICEBERG_CATALOG__CENTRAL__URI, or into PyIceberg's settings file, and name the catalog, as 'central'"
        )
    return text


def _hasSecret(name: str, url: str) -> bool:
    """Tell whether a URL has a password, also as a parameter; raises OptionRefused for a malformed one."""
    try:
        parts = urlsplit(url)
        named = [key.lower() for key, _ in parse_qsl(parts.query, keep_blank_values=True)]
    except ValueError:
        # The error may show a password.
        raise OptionRefused(f"{name} is no URL such as https://catalog.example/") from None
    return parts.password is not None or any(word in key for key in named for word in _SECRETS)


def _form(arguments: Namespace) -> dict[str, str]:
    """Return the format of new tables with its options; raises OptionRefused, and LakeRefused for a catalog."""
    options = {name: getattr(arguments, name) for name in ("catalog", "namespace") if getattr(arguments, name)}
    if options and arguments.format != ICEBERG:
        raise OptionRefused(f"--{next(iter(options))} is for --format {ICEBERG}")
    if "catalog" in options:
        try:
            from fleximq.pipeline.lake.iceberg.catalogs import checkCatalog
        except ImportError as error:
            raise OptionRefused(f"--catalog needs the extra iceberg: pip install '.[iceberg]' ({error})") from error
        checkCatalog(options["catalog"], lakePath(arguments.lake), options.get("namespace", NAMESPACE))
    return {"format": arguments.format, **options}


def _run(arguments: Namespace, run: JobRun) -> None:
    """Ingest until stopped, or all is ingested; raises OptionRefused or LakeRefused."""
    if not arguments.lake:
        raise OptionRefused("--lake FOLDER or URL is needed: it says where the tables go")
    from fleximq.pipeline.lake.catch_up import CatchUp
    from fleximq.pipeline.lake.checkpoint import seedCheckpoint, temporaryCheckpoint
    from fleximq.pipeline.lake.compaction import compacting
    from fleximq.pipeline.lake.ingest_driver import TableIngest
    from fleximq.pipeline.lake.ingest_stream import Ingest
    from fleximq.pipeline.lake.storage.lake_files import FILES
    from fleximq.pipeline.lake.table.table_log import CompactionGoal
    from fleximq.pipeline.reader.source_options import SourceOptions

    lake = lakePath(arguments.lake)
    checkLake(lake)
    specs = _tables(arguments)
    states, specs = [spec for spec in specs if spec.upsert], [spec for spec in specs if not spec.upsert]
    options = _source(arguments, specs or states)
    # Before folders of tables are created: a misspelled option or a missing Java must leave no trace.
    form = _form(arguments)
    job.checkSource(options)
    if specs:
        run.session(quick=arguments.once)
    every = arguments.upsert_every / 1_000_000
    with ExitStack() as held:
        following = held.enter_context(_following(arguments, run, lake, states, form, not specs)) if states else None
        if following is not None and not specs:
            if arguments.once:
                following.once()
            else:
                run.writeLine(f"ingesting into {lake}: {', '.join(spec.name for spec in states)}")
                following.until(run.stopping, every)
            return
        isInStore = "://" in lake
        own = temporaryCheckpoint(FILES) if isInStore else _ownCheckpoint(lake)
        checkpoint = arguments.checkpoint or held.enter_context(own)
        missed = CatchUp(SourceOptions.of(options)).add
        tables = TableIngest(lake, specs, form, arguments.allow_data_loss, arguments.layout, missed=missed)
        tables.beside = [f"{lake}/{spec.name}" for spec in states]
        held.enter_context(tables)
        if isInStore and arguments.checkpoint is None:
            seedCheckpoint(checkpoint, *tables.reachedTogether())
        if arguments.compact_every is not None:
            folders = [f"{lake}/{spec.name}" for spec in specs]
            held.enter_context(compacting(folders, arguments.compact_every / 1_000_000, run, CompactionGoal()))
        if following is not None and not arguments.once:
            held.enter_context(following.beside(every))
        ingest = Ingest(tables, checkpoint, run, _reporter(arguments, options), arguments.strict)
        ingest.all(options, None if arguments.once else job.interval(arguments.trigger))
        if following is not None and arguments.once:
            following.once()


@contextmanager
def _following(
    arguments: Namespace,
    run: JobRun,
    lake: str,
    specs: "list[TableSpec]",
    form: dict[str, str],
    isAlone: bool,
) -> "Iterator[StateFollowing]":
    """Hold the tables of the latest rows, which need no Spark; raises LakeRefused."""
    from fleximq.pipeline.lake.upserts.state_following import StateFollowing
    from fleximq.pipeline.lake.upserts.state_ingest import StateIngest
    from fleximq.pipeline.reader.source_options import SourceOptions

    options = _source(arguments, specs)
    reporter = _reporter(arguments, options) if isAlone else None
    try:
        with StateIngest(lake, specs, form, SourceOptions.of(options)) as ingest:
            yield StateFollowing(ingest, lake, run, arguments.strict, reporter)
    finally:
        if reporter is not None:
            reporter.close()


@contextmanager
def _ownCheckpoint(lake: str) -> Iterator[str]:
    from fleximq.pipeline.errors import LakeRefused
    from fleximq.pipeline.lake.table.lock import writerLock

    with ExitStack() as held:
        try:
            makedirs(f"{lake}/_fleximq", exist_ok=True)
            held.enter_context(writerLock(lake))
        except OSError as error:
            raise LakeRefused(f"the lake {lake} cannot be written: {systemReason(error)}") from error
        except LakeRefused as error:
            raise LakeRefused(
                f"the lake {lake} is fed by another ingest: a second one needs other tables and a --checkpoint of its "
                "own"
            ) from error
        yield f"{lake}/_fleximq/checkpoint"


def _tables(arguments: Namespace) -> "list[TableSpec]":
    """Return the tables, with the common settings where one has none of its own."""
    from fleximq.pipeline.lake.table.table_spec import TableSpec
    from fleximq.pipeline.payloads.schema_formats import formatIn

    specs = []
    for spec in arguments.table or [TableSpec("messages")]:
        if arguments.decode is not None and not spec.isExplicit:
            decode, definition = formatIn(arguments.decode)
            spec = replace(spec, decode=decode, definition=definition)
        spec = replace(spec, integers=spec.integers or tuple(arguments.integers or ()))
        # A table that is explicitly raw has no columns, regardless of the common settings.
        isPlain = spec.isExplicit and spec.decode == "raw"
        if arguments.schema is not None and not spec.schema and not isPlain and not spec.definition:
            spec = replace(spec, schema=arguments.schema)
        specs.append(spec)
    names = [spec.name for spec in specs]
    for name in names:
        if names.count(name) > 1:
            raise OptionRefused(f"--table names {name!r} twice")
    return specs


def _source(arguments: Namespace, specs: "list[TableSpec]") -> dict[str, str]:
    from fleximq.pipeline.lake.table.table_spec import topicPatterns

    options = job.sourceAlone(arguments)
    patterns = topicPatterns(specs)
    if patterns and not {"subscribe", "topics"} & set(options):
        options["topics"] = ",".join(patterns)
    options |= {
        "startingOffsets": arguments.starting,
        "maxBytesPerTrigger": str(arguments.max_bytes),
        "partitionBytes": str(TASK_BYTES),
        "failOnDataLoss": str(not arguments.allow_data_loss).lower(),
    }
    if arguments.max_offsets:
        options["maxOffsetsPerTrigger"] = str(arguments.max_offsets)
    return options


def _reporter(arguments: Namespace, options: Mapping[str, str]) -> "Reporter | None":
    if arguments.consumer_group is None:
        return None
    from fleximq.pipeline.broker_link import BrokerAddress
    from fleximq.pipeline.lag import Reporter

    brokers = job.brokerOptions(arguments)
    urls = [arguments.lag_url] if arguments.lag_url else arguments.url
    if not urls:
        raise OptionRefused("--consumer-group needs --url or --lag-url: the broker to report to")
    return Reporter(arguments.consumer_group, [BrokerAddress.of(brokers, url) for url in urls])


INGEST = job.Job(_prepare, _run)
