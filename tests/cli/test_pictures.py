"""The pictures of the documentation are what the commands draw today."""

from xml.etree import ElementTree

from twisted.trial.unittest import SynchronousTestCase

from tests.cli.pictures import PICTURES, pictures


class PicturesTests(SynchronousTestCase):
    """Those of ``bench`` and ``top``."""

    def test_drawn(self) -> None:
        """Each file holds what is drawn; ``python -m tests.cli.pictures`` makes it so."""
        for name, text in pictures().items():
            self.assertEqual((PICTURES / name).read_text(), text, name)

    def test_shown(self) -> None:
        """Each is a picture, and shown by the page."""
        page = (PICTURES.parent / "guides" / "command-line.rst").read_text()
        for name, text in pictures().items():
            self.assertTrue(ElementTree.fromstring(text).tag.endswith("svg"))
            self.assertIn(f".. image:: /pictures/{name}\n", page)
