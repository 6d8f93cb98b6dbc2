"""What a job can say of its source before Spark starts, which takes seconds: that it cannot be as it was written."""

import os
from collections.abc import Mapping

from fleximq.pipeline.errors import OptionRefused, PipelineError


def checkSource(options: Mapping[str, str]) -> None:
    """Return if the source can be read with these options, as far as a look at folders tells; no broker is asked.

    :raises OptionRefused: an option has a value that it cannot have, or there is no journal where one was named.
    :raises JournalError: a folder that is named is no journal.
    :raises PipelineError: Spark is not installed.
    """
    try:
        from fleximq.pipeline.reader.journals import Journals
        from fleximq.pipeline.reader.source_options import SourceOptions
    except ImportError as error:
        raise PipelineError(f"Spark is not installed ({error.msg}): pip install 'fleximq[spark]' brings it") from error
    chosen = SourceOptions.of(options)
    if not chosen.brokers:
        Journals(chosen).find()


def checkLake(lake: str) -> None:
    """Return if the folder of a lake is there.

    :raises OptionRefused: it cannot be read.
    """
    try:
        os.listdir(lake)
    except OSError as error:
        raise OptionRefused(f"the lake {lake} cannot be read: {(error.strerror or str(error)).lower()}") from error
