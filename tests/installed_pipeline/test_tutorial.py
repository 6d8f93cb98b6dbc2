"""The tutorial of the pipeline, done as it is written."""

from importlib.util import find_spec
from pathlib import Path
from xml.etree import ElementTree

from twisted.trial.unittest import SynchronousTestCase

from tests import readme
from tests.installed_pipeline.tutorial import DOCS, PICTURE, TEXT, Tutorial
from tests.nightly import nightly
from tests.pipeline.installed import missing as skip

if not skip:
    from tests.pipeline.session import sharedSession

if not skip and find_spec("matplotlib") is None:
    skip = "matplotlib not installed: pip install fleximq[chart]"


@nightly
class TutorialTests(SynchronousTestCase):
    """All of it, in its order."""

    def setUp(self) -> None:
        sharedSession()  # skips where there is no Java, and says to this process where one is
        tutorial = Tutorial()
        self.addCleanup(tutorial.__exit__)
        self.tutorial = tutorial.__enter__()

    def prints(self, name: str) -> None:
        """Run a block, and see that it prints what the page says."""
        found = "\n".join(line.rstrip() for line in self.tutorial.run(name).splitlines())
        self.assertEqual(found.strip(), readme.printed(TEXT, name).strip())

    def test_eachCommandPrintsWhatThePageSaysAndTheChartIsDrawn(self) -> None:
        self.tutorial.run("publish")
        self.prints("ask")
        self.tutorial.run("ingest")
        self.prints("lake")
        self.tutorial.run("stats")
        self.tutorial.run("draw")
        drawn, shown = self.tutorial.folder / "rates.svg", DOCS / "pictures" / PICTURE
        self.assertEqual(sizeOf(drawn), sizeOf(shown))
        self.tutorial.run("replay")
        self.prints("again")


def sizeOf(picture: Path) -> tuple[str | None, str | None]:
    """Return width and height of an SVG."""
    root = ElementTree.parse(picture).getroot()
    assert root.tag.endswith("svg"), picture
    return root.get("width"), root.get("height")
