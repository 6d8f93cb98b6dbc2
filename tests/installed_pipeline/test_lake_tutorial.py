"""The tutorial of a table in an object store, done as it is written."""

import re
from importlib.util import find_spec

from twisted.trial.unittest import SynchronousTestCase

from tests import readme
from tests.installed_pipeline.lake_tutorial import TEXT, LakeTutorial
from tests.nightly import nightly
from tests.pipeline.local_query.needed import missing as skip
from tests.pipeline.object_store import BUCKET, environment

if not skip:
    from tests.pipeline.session import sharedSession

if not skip and (absent := [name for name in ("deltalake", "s3fs") if find_spec(name) is None]):
    skip = f"{absent[0]} is not installed"


@nightly
class LakeTutorialTests(SynchronousTestCase):
    """All of it, in its order."""

    def test_eachCommandPrintsWhatThePageSays(self) -> None:
        sharedSession()  # skips where there is no Java, and says to this process where one is
        with LakeTutorial() as tutorial:
            tutorial.run("shop")
            self.assertEqual(_plain(tutorial.run("ask")), _plain(readme.printed(TEXT, "ask")))
            tutorial.run("ingest")
            tutorial.run("audit")
            tutorial.run("ingest")
            for name in ("lake", "read"):
                self.assertEqual(_plain(tutorial.run(name)), _plain(readme.printed(TEXT, name)))


class StoreTests(SynchronousTestCase):
    """The commands that start the store."""

    def test_theBucketAndTheVariablesAreThoseOfTheTests(self) -> None:
        self.assertIn(f"-bucket={BUCKET}", readme.saved(TEXT, "store"))
        named = set(re.findall(r"(\w+)=", readme.saved(TEXT, "variables")))
        self.assertLessEqual(named, set(environment("")))


def _plain(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.splitlines()).strip()
