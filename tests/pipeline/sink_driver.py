"""A driver of its own: ``python -m tests.pipeline.sink_driver FOLDER URL`` publishes lines until it is killed.

The lines come from files in ``FOLDER/source``, one file for each batch, the checkpoint is in ``FOLDER/checkpoint``, and
faults are ordered in ``FOLDER/faults``, see :mod:`tests.pipeline.faulty_sink`. Where there is no Java it ends with 77.
"""

import sys
from unittest import SkipTest

from tests.pipeline.faulty_sink import FaultySource
from tests.pipeline.session import sharedSession

NO_JAVA = 77


def main(folder: str, url: str) -> int:
    """Run the query; it ends only if it fails."""
    try:
        spark = sharedSession()
    except SkipTest:
        return NO_JAVA
    spark.dataSource.register(FaultySource)
    lines = spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(f"{folder}/source")
    query = (
        lines.repartition(2)
        .writeStream.format("faulty")
        .options(url=url, faults=f"{folder}/faults", topic="rows", portionBytes="2048")
        .option("checkpointLocation", f"{folder}/checkpoint")
        .start()
    )
    print("running", flush=True)
    query.awaitTermination()
    return 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
