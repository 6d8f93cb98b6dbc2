"""docs/architecture.rst is true: its pictures, and the rooms and modules that it names."""

import re
import runpy
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

from twisted.trial.unittest import SynchronousTestCase

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "fleximq"
PICTURES = ROOT / "docs" / "pictures"
PAGE = (ROOT / "docs" / "architecture.rst").read_text()


def rooms() -> Iterator[str]:
    """Yield every package or module directly in ``fleximq/``."""
    for path in SOURCES.iterdir():
        if path.suffix == ".py" and path.stem not in ("__init__", "__main__") or (path / "__init__.py").exists():
            yield path.stem


def wings() -> Iterator[str]:
    """Yield every package in a room, as a path."""
    for path in SOURCES.glob("*/**/__init__.py"):
        if path.parent.parent != SOURCES:
            yield path.parent.relative_to(SOURCES).as_posix()


def isModule(name: str) -> bool:
    """Whether a path in ``fleximq/`` is a package or module."""
    return (SOURCES / name / "__init__.py").exists() or (SOURCES / f"{name}.py").exists()


class ArchitecturePageTests(SynchronousTestCase):
    """The page and its pictures."""

    def setUp(self) -> None:
        """Load the script that draws."""
        self.script = runpy.run_path(str(PICTURES / "draw_rooms.py"))

    def test_drawn(self) -> None:
        """The pictures are those that ``python docs/pictures/draw_rooms.py`` draws today, and the page shows them."""
        for name, text in self.script["pictures"]().items():
            self.assertEqual((PICTURES / name).read_text(), text, name)
            self.assertTrue(ElementTree.fromstring(text).tag.endswith("svg"), name)
            self.assertIn(f".. image:: /pictures/{name}\n", PAGE)

    def test_below(self) -> None:
        """The picture has every room once, in a row above all that it may import."""
        rows = self.script["levels"]()
        rowOf = {room: number for number, row in enumerate(rows) for room in row}
        self.assertEqual(sorted(room for row in rows for room in row), sorted(rooms()))
        for room, others in self.script["rooms"]().items():
            for other in others:
                self.assertLess(rowOf[other], rowOf[room], room)

    def test_way(self) -> None:
        """The modules on the path of a message exist."""
        self.assertEqual([module for module, _ in self.script["WAY"] if not isModule(module)], [])

    def test_everyRoomIsNamed(self) -> None:
        """So is every wing."""
        self.assertEqual([name for name in (*rooms(), *wings()) if f"``{name}``" not in PAGE], [])

    def test_everyNameExists(self) -> None:
        """A path on the page that begins with a room is a package or module."""
        named = re.findall(r"``([a-z_]+(?:/[a-z_]+)+)``", PAGE)
        inRooms = [name for name in named if name.split("/")[0] in set(rooms())]
        self.assertGreater(len(inRooms), 30)
        self.assertEqual([name for name in inRooms if not isModule(name)], [])
        self.assertEqual([name for name in named if not isModule(name) and not (ROOT / name).exists()], [])

    def test_short(self) -> None:
        """The page is read in one go."""
        self.assertLess(PAGE.count("\n"), 200)
