"""What is measured, and what is wanted of it. A new scene is a new line in :data:`SCENES`."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass

from benchmarks.pipeline.following import followed
from benchmarks.pipeline.reading import Reading, Way, decoded, folder, native, sealed, url
from benchmarks.pipeline.stand import Stand
from benchmarks.pipeline.writing import copied, ingested, partitioned, sunk
from benchmarks.scenes import OURS, Goal
from benchmarks.work.effort import Run

#: The peers: Spark with Parquet; and the same with a folder for each topic and date.
PARQUET, PARTITIONED = "parquet", "partitioned"
#: How many cores Spark has.
MASTERS = ("local[2]", "local[1]")
#: Rounds of a query that do not count: Java compiles what is new in it, on a core that its tasks need, until then.
WARM = 4
Contender = Callable[[Stand], AbstractContextManager[Run]]


@dataclass(frozen=True, slots=True)
class Scene:
    """Work that is done in several ways, ours first, and the goals of ours."""

    name: str
    title: str
    contenders: Mapping[str, Contender]
    goals: tuple[Goal, ...] = ()
    #: Where the goals count.
    masters: tuple[str, ...] = MASTERS
    #: Rounds that do not.
    uncounted: int = 1


def _read(name: str, title: str, way: Way, over: float) -> tuple[Scene, ...]:
    """Two scenes of tables that are read, with what share of the peer's rate is wanted."""
    return tuple(
        Scene(
            f"{name}-{size}",
            f"{title}, {words}",
            {OURS: Reading(material, way), PARQUET: Reading(material, native)},
            (Goal("rows/s", over, PARQUET),),
            uncounted=WARM,
        )
        for size, material, words in (("100b", "small", "2 M x 100 B"), ("4k", "large", "200,000 x 4 KB"))
    )


SCENES: tuple[Scene, ...] = (
    *_read("read", "All columns from a journal's folder", folder, 0.7),
    *_read("history", "All columns from sealed history and the rest of the journal", sealed, 0.9),
    *_read("url", "All columns through a broker", url, 0.6),
    Scene(
        "decode",
        "MessagePack maps of 5 fields as columns, 2 M x 100 B",
        {OURS: Reading("small", decoded)},
        (Goal("rows/s", 1_000_000),),
        MASTERS[:1],
        WARM,
    ),
    Scene(
        "ingest",
        "Catch-up of ingest to a lake, 2 M x 100 B",
        {OURS: ingested, PARQUET: copied, PARTITIONED: partitioned},
        (Goal("rows/s", 0.9, PARTITIONED),),
    ),
    Scene(
        "follow",
        "Ingest every 500 ms, 2,000 messages/s",
        {OURS: followed},
        (Goal("batch p50, ms", 300, atMost=True), Goal("queryable p50, ms", 1_000, atMost=True)),
    ),
    Scene("sink", "600,000 rows x 100 B into a topic", {OURS: sunk}, (Goal("rows/s", 300_000),)),
)
