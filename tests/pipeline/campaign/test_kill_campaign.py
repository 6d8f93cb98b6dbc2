"""Everything that feeds and maintains a lake is killed at random moments: every message is in its tables once."""

import os
from importlib.util import find_spec
from typing import Any
from unittest import SkipTest

from twisted.trial.unittest import SynchronousTestCase

from tests.nightly import nightly, repetitions
from tests.pipeline.installed import missing as skip

if not skip:
    from fleximq.pipeline.command import java
    from tests.pipeline.campaign.kill_campaign import KillCampaign, campaign

#: Another order of what happens is tried with this variable in the environment.
SEED = int(os.environ.get("FLEXIMQ_LAKE_SEED", "7"))


class CampaignCase(SynchronousTestCase):
    """``isStore``: whether the lakes are in an object store, of which some requests fail."""

    isStore = False

    def kill(self, tableFormat: str, needed: str | None = None, isSmall: bool = False) -> None:
        """Run a campaign; ``isSmall``: with an ingest without Spark."""
        if needed is not None and find_spec(needed) is None:
            raise SkipTest(f"{needed} is not installed")
        if not isSmall:
            try:
                java.find()
            except java.NoJava as error:
                raise SkipTest(str(error)) from None
        run, said = campaign(tableFormat, repetitions(2, 20), SEED, self.isStore, isSmall)
        self.assertEqual(run.faults, [], said)
        self.assertGreater(run.rows["late"], run.rows["early"], said)
        self.assertGreater(len(run.engines), 1, said)


class FolderTests(CampaignCase):
    """Lakes on local disks."""

    @nightly
    def test_killsLoseAndRepeatNothingInParquet(self) -> None:
        self.kill("parquet")

    @nightly
    def test_killsLoseAndRepeatNothingInDelta(self) -> None:
        self.kill("delta", "deltalake")

    @nightly
    def test_killsLoseAndRepeatNothingInIceberg(self) -> None:
        self.kill("iceberg", "pyiceberg")


class StoreTests(CampaignCase):
    """Lakes in an object store that is killed too."""

    isStore = True
    skip = None if find_spec("s3fs") and find_spec("boto3") else "s3fs or boto3 is not installed"

    def test_killsWithoutSparkLoseAndRepeatNothing(self) -> None:
        self.kill("delta", "deltalake", isSmall=True)

    @nightly
    def test_killsLoseAndRepeatNothingInDelta(self) -> None:
        self.kill("delta", "deltalake")

    @nightly
    def test_killsLoseAndRepeatNothingInParquet(self) -> None:
        self.kill("parquet")

    @nightly
    def test_killsLoseAndRepeatNothingInIceberg(self) -> None:
        self.kill("iceberg", "pyiceberg")


class ComparisonTests(SynchronousTestCase):
    """That it sees what is wrong."""

    def faults(self, rows: list[tuple[Any, ...]]) -> list[str]:
        """Return what is said of these rows in place of two."""
        run = KillCampaign.__new__(KillCampaign)
        run.faults = []
        run._compare("t", rows, [("j", 1, "a"), ("j", 2, "a")])
        return run.faults

    def test_aMissingARepeatedAndAWrongRowAreFaults(self) -> None:
        one, two = ("j", 1, "a"), ("j", 2, "a")
        self.assertEqual(self.faults([one, two]), [])
        self.assertRegex(self.faults([one])[0], "1 rows are missing, 0 are wrong, 0 offsets")
        self.assertRegex(self.faults([one, two, two])[0], "0 rows are missing, 1 are wrong, 1 offsets")
        self.assertRegex(self.faults([one, ("j", 2, "b")])[0], "1 rows are missing, 1 are wrong, 0 offsets")
