"""The catalog of Iceberg, as docs/guides/pipeline-lake.rst opens it."""

import re
from pathlib import Path
from textwrap import dedent
from typing import Any

from tests.pipeline.lake import iceberg_case
from tests.pipeline.lake.iceberg_case import TOPIC, IcebergCase

skip = iceberg_case.skip
if not skip:
    from tests.pipeline.session import sharedSession


class CatalogTests(IcebergCase):
    """A reader that does not know FlexiMQ."""

    def test_pyIcebergAndSparkFindTheRowsAsThePageSays(self) -> None:
        page = (Path(__file__).parents[4] / "docs" / "guides" / "pipeline-lake.rst").read_text()
        program, *_ = re.findall(r"^    from pyiceberg.*\n(?:\n|    .*\n)+", page, re.MULTILINE)
        found: dict[str, Any] = {"spark": sharedSession()}
        exec(dedent(program).replace("/mnt/lake", self.lake).replace("lake.sensors", "lake.messages"), found)
        self.assertEqual(sorted(found["rows"].column("offset").to_pylist()), self.all[10:])
        self.assertEqual([tuple(row) for row in found["counts"].collect()], [(TOPIC, 16)])
