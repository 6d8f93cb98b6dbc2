"""The pictures of the documentation are what the commands draw today, from a run of this version."""

import json
from xml.etree import ElementTree

from twisted.trial.unittest import SynchronousTestCase

import fleximq
from tests.cli.pictures import DOCS, MEASURED, PICTURES, RUNS, pictures


class PicturesTests(SynchronousTestCase):
    """Those of ``bench`` and ``top``."""

    def setUp(self) -> None:
        """Read what the runs printed, and draw it."""
        self.measured = json.loads(MEASURED.read_text())
        self.drawn = pictures(self.measured)

    def test_eachFileHoldsTodaysDrawing(self) -> None:
        """``python -m tests.cli.pictures`` makes it so."""
        for name, text in self.drawn.items():
            self.assertEqual((PICTURES / name).read_text(), text, name)

    def test_theRunIsOfThisVersion(self) -> None:
        """After a new version, ``python -m tests.cli.pictures --measure`` runs the commands again."""
        self.assertEqual(self.measured["top"]["version"], fleximq.__version__)

    def test_thePageShowsEachPicture(self) -> None:
        """Each is a picture, and shown by the page."""
        page = (DOCS / "guides" / "command-line.rst").read_text()
        for name, text in self.drawn.items():
            self.assertTrue(ElementTree.fromstring(text).tag.endswith("svg"))
            self.assertIn(f".. image:: /pictures/{name}\n", page)

    def test_thePageShowsTheCommandOfTheRun(self) -> None:
        """So readers of the page can make the same picture."""
        page = (DOCS / "guides" / "command-line.rst").read_text()
        self.assertIn("fleximq " + " ".join(word for word in RUNS["bench"] if word != "--json"), page)
