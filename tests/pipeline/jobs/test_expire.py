"""``expire``: what a lake need not keep any longer."""

from argparse import ArgumentParser
from typing import Any

from twisted.trial.unittest import SkipTest

from fleximq.errors import SettingError
from tests.pipeline.installed import missing as skip
from tests.pipeline.jobs.test_compact import LakeCase
from tests.pipeline.lake.iceberg_case import skip as noIceberg

if not skip:
    from fleximq.pipeline import lake
    from fleximq.pipeline.errors import OptionRefused
    from fleximq.pipeline.jobs.expire import EXPIRE, Keep, keep
    from tests.pipeline.jobs.fake_run import FakeRun
    from tests.pipeline.lake.tables import JOURNAL


class ExpireTests(LakeCase):
    """What the command does; the rows are of 2023."""

    def expire(self, *arguments: str) -> Any:
        """Run the job and return what it said."""
        parser = ArgumentParser()
        EXPIRE.prepare(parser)
        run = FakeRun()
        EXPIRE.run(parser.parse_args(["--lake", self.lake, *arguments]), run)
        return run.said

    def test_topics(self) -> None:
        """Topics are kept for as long as is said of them."""
        self.publish(2)
        self.assertEqual(self.expire("--keep", "36500d"), [f"{self.table}: 0 rows in 0 partitions have expired"])
        said = self.expire("--keep", "b=36500d", "--keep", "90d")
        self.assertEqual(said, [f"{self.table}: 10 rows in 1 partitions have expired"])
        self.assertEqual(lake.ranges(self.table)[JOURNAL], lake.Covered(1, 21, 10, (), 10))
        self.assertEqual(lake.audit(self.table), [])

    def test_unmatched(self) -> None:
        """A pattern that matches nothing is said, for it may be written wrong; the others do what they do."""
        self.publish(2)
        said = self.expire("--keep", "b=90d", "--keep", "bb.*=1d", "--keep", "*=36500d")
        self.assertEqual(
            said,
            [
                f"--keep bb.*=... matches no topic of {self.table}",
                f"{self.table}: 10 rows in 1 partitions have expired",
            ],
        )

    def test_keep(self) -> None:
        """An age, or one for the topics that match a pattern."""
        self.assertEqual(keep("keep", "90d"), Keep(None, 90 * 86_400))
        self.assertEqual(keep("keep", "a=b.*=12h"), Keep("a=b.*", 43_200))
        for wrong in ("", "90", "0d", "=90d", "a=", "90y"):
            words = str(self.assertRaises(SettingError, keep, "keep", wrong))
            self.assertIn("must be an age, e.g. 90d", words)

    def test_iceberg(self) -> None:
        """So it is with a table of Iceberg."""
        if noIceberg:
            raise SkipTest(noIceberg)
        self.begin("iceberg")
        self.publish(2)
        said = self.expire("--keep", "x=1d", "--keep", "b=36500d", "--keep", "90d")
        self.assertEqual(
            said,
            [
                f"--keep x=... matches no topic of {self.table}",
                f"{self.table}: 10 rows in 1 partitions have expired",
            ],
        )
        self.assertEqual(lake.ranges(self.table)[JOURNAL], lake.Covered(1, 21, 10, (), 10))
        said = self.expire("--keep", "b=36500d", "--keep", "90d")
        self.assertEqual(said, [f"{self.table}: 0 rows in 0 partitions have expired"])

    def test_needed(self) -> None:
        """Without --keep nothing goes."""
        self.publish()
        self.assertIn("--keep AGE is needed", str(self.assertRaises(OptionRefused, self.expire)))
