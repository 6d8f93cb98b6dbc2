"""The sources keep to the order of the rooms, and the rules that say so can fail."""

import subprocess
import sys
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.import_rules import (
    KNOW_TWISTED,
    MAY_IMPORT,
    MAY_KNOW,
    OWNERS,
    STEPS,
    breachesOfLadder,
    breachesOfOutside,
    cyclesOf,
    importsOf,
    roomOf,
    undocumented,
)

ROOT = Path(__file__).parents[1]
PLUGIN = ROOT / "twisted" / "plugins" / "fleximq_plugin.py"
DIALECTS = ROOT / "twisted" / "plugins" / "fleximq_dialects.py"
CHECKERS = ROOT / "twisted" / "plugins" / "fleximq_checkers.py"
EXAMPLES = sorted((ROOT / "plugins").glob("*/twisted/plugins/*.py"))


def sources() -> list[tuple[str, str, bool]]:
    """Return the dotted name, the text and whether it is a package, of every source below ``fleximq/``."""
    found = []
    for path in sorted((ROOT / "fleximq").rglob("*.py")):
        parts = list(path.relative_to(ROOT).with_suffix("").parts)
        isPackage = parts[-1] == "__init__"
        found.append((".".join(parts[: -1 if isPackage else None]), path.read_text(), isPackage))
    return found


class SourcesTests(SynchronousTestCase):
    """The files of ``fleximq/`` and ``twisted/`` today."""

    def test_noSourceBreaksARule(self) -> None:
        """Imports inside fleximq point down, others are where they may be, and all that is public is explained."""
        for breaches in (breachesOfLadder, breachesOfOutside, undocumented):
            self.assertEqual([breach for source in sources() for breach in breaches(*source)], [])

    def test_everyRoomIsKnown(self) -> None:
        """Every room has a place in the table: a new one has to be given one."""
        self.assertEqual({roomOf(name) for name, _, _ in sources()} - {"", *MAY_IMPORT}, set())

    def test_noModulesImportEachOtherInACircle(self) -> None:
        """A circle of imports inside a room is a missing interface."""
        self.assertEqual(cyclesOf(sources()), [])

    def test_everyNameInTheTablesExists(self) -> None:
        """Each is a module or a package."""
        known = {name.removeprefix("fleximq.") for name, _, _ in sources()}
        steps = {each for room in STEPS.values() for step in room for each in step}
        allowed = {each for table in (MAY_IMPORT, OWNERS) for names in table.values() for each in names}
        self.assertEqual(({*MAY_IMPORT, *MAY_KNOW, *KNOW_TWISTED} | steps | allowed) - known, set())

    def test_twistedStaysTwisted(self) -> None:
        """No package marker stands in our ``twisted/``: it would hide Twisted itself."""
        self.assertEqual([str(path) for path in (ROOT / "twisted").rglob("__init__.py*")], [])

    def test_plugInFileHoldsNamesOnly(self) -> None:
        """Reading the plug-in file, as every ``twistd --help`` does, imports nothing of fleximq."""
        self.assertEqual(_importedBy(PLUGIN), [])

    def test_dialectsFileImportsTheirNamesOnly(self) -> None:
        """Reading the file of the dialects imports what names are made of, and no dialect; so does that of checkers."""
        light = ["fleximq", "fleximq.interfaces", "fleximq.plugin", "fleximq.values", "fleximq.values.message"]
        self.assertEqual(_importedBy(DIALECTS), light)
        self.assertEqual(_importedBy(CHECKERS), light)
        for path in EXAMPLES:
            self.assertEqual(_importedBy(path), sorted([*light, "fleximq.api"]), path)

    def test_plugInFileNamesTheTap(self) -> None:
        """The plug-in file names the module and the word behind ``twistd``."""
        names: dict[str, object] = {}
        exec(compile(PLUGIN.read_text(), str(PLUGIN), "exec"), names)
        maker = names["fleximq"]
        self.assertEqual((maker.module, maker.tapname), ("fleximq.tap", "fleximq"))  # type: ignore[attr-defined]


def _importedBy(path: Path) -> list[str]:
    """Run a file in a new interpreter and return the modules of fleximq that are loaded afterwards."""
    program = (
        "import runpy, sys; runpy.run_path(sys.argv[1]);"
        "print(*sorted(name for name in sys.modules if name.split('.')[0] == 'fleximq'))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program, path], cwd=ROOT, check=True, capture_output=True, timeout=300
    )
    return ended.stdout.decode().split()


#: A module, an import in it, and whether that is a breach of the ladder.
LADDER = [
    ("wire.x", "fleximq.values", False),
    ("wire.x", "fleximq.broker", True),
    ("broker.x", "fleximq.wire", True),
    ("journal.x", "fleximq.security", True),
    ("security.x", "fleximq.errors", False),
    ("status", "fleximq.tap", True),
    ("web.x", "fleximq.services", True),
    ("config.x", "fleximq.startup.options", True),
    ("dialects.x", "fleximq.wire", False),
    ("dialects.x", "fleximq.broker", False),
    ("dialects.x", "fleximq.services", True),
    ("cli.x", "fleximq.startup", False),
    ("cli.x", "fleximq.broker", True),
    # Steps inside a room.
    ("journal.files.x", "fleximq.journal.writing.commit", True),
    ("journal.files.x", "fleximq.journal.format.frame", False),
    ("journal.journal_folder", "fleximq.journal.writing.commit", False),
    # Parts of a room.
    ("pipeline.x", "fleximq.journal.files.frame_scan", False),
    ("pipeline.x", "fleximq.journal.writing.commit", True),
    # The client's modules for Twisted.
    ("client.asyncio", "fleximq.client.twisted", True),
    ("client.asyncio", "fleximq.client.loops.reactor.ReactorLoop", True),
    ("client.twisted", "fleximq.client.loops.connection.Loop", False),
]
#: The same for packages from outside.
OUTSIDE = [
    *((f"{room}.x", name, True) for room in ("wire", "broker", "journal") for name in ("twisted", "autobahn.x", "six")),
    *(("wire.x", name, False) for name in ("struct", "zope.interface", "msgpack", "ulid.ULID", "zlib_ng.zlib_ng")),
    ("dialects.x", "twisted", False),
    ("client.twisted", "twisted", False),
    ("client.asyncio", "twisted", True),
    *(("journal.x", name, True) for name in ("pyspark.sql", "pyarrow.compute", "numpy")),
    *(("services.x", name, True) for name in ("pyspark.sql", "pyarrow.compute", "numpy")),
    *(("pipeline.x", name, False) for name in ("pyspark", "pyarrow", "numpy", "msgpack", "json")),
    *(("pipeline.x", name, True) for name in ("twisted.internet", "pandas")),
    *(("cluster.x", name, True) for name in ("nats", "nats.js.api", "fleximq.cluster.nats.store.NatsCluster")),
    *(("cluster.nats.x", name, False) for name in ("nats", "nats.js.api", "fleximq.cluster.nats.store.NatsCluster")),
    ("cluster.x", "natsort", False),
    ("services.x", "twisted.internet.reactor", True),
    ("tap", "twisted.internet.reactor", False),
    ("web.x", "twisted.internet.defer", False),
]


class RuleTests(SynchronousTestCase):
    """The rules on made-up sources."""

    def test_ladder(self) -> None:
        """Each import is judged as the table says."""
        for module, name, isBreach in LADDER:
            self.assertEqual(len(breachesOfLadder(f"fleximq.{module}", f"import {name}")), isBreach, (module, name))

    def test_outside(self) -> None:
        """So is each import from outside."""
        for module, name, isBreach in OUTSIDE:
            self.assertEqual(len(breachesOfOutside(f"fleximq.{module}", f"import {name}")), isBreach, (module, name))

    def test_breachNamesPlaceAndRoom(self) -> None:
        """The sentence has the line, wherever in a file it is."""
        self.assertEqual(
            breachesOfLadder("fleximq.wire.x", "\ndef f():\n from ..broker.topics import Topic"),
            ["fleximq.wire.x:3 imports fleximq.broker.topics.Topic, which wire must not"],
        )
        self.assertEqual(
            breachesOfOutside("fleximq.web.x", "from twisted.internet import defer, reactor"),
            ["fleximq.web.x:1 imports twisted.internet.reactor, which only tap may"],
        )

    def test_packageItselfImportsNoRoom(self) -> None:
        """Any room may import its version."""
        self.assertEqual(len(breachesOfLadder("fleximq", "from fleximq.tap import makeService", True)), 1)
        self.assertEqual(breachesOfLadder("fleximq.wire.x", "from fleximq import __version__"), [])

    def test_importsAreFoundInEveryForm(self) -> None:
        """In functions, branches and blocks for types, and relative to a module or to a package."""
        for source, wanted in (
            ("import a.b, c\nfrom d import e, f as g", ["a.b", "c", "d.e", "d.f"]),
            ("if TYPE_CHECKING:\n import a\ndef f():\n try:\n  import b\n except E:\n  import c", ["a", "b", "c"]),
            ("from . import two", ["fleximq.wire.two"]),
            ("from .two import x", ["fleximq.wire.two.x"]),
            ("from ..broker import x", ["fleximq.broker.x"]),
        ):
            self.assertEqual(sorted(name for _, name in importsOf("fleximq.wire.one", source)), wanted)
        self.assertEqual([*importsOf("fleximq.wire", "from .two import x", True)], [(1, "fleximq.wire.two.x")])

    def test_circleIsFound(self) -> None:
        """Modules that import each other are named together, also through a third one; a module may name itself."""
        made = [
            ("fleximq.a", "import fleximq.b", False),
            ("fleximq.b", "def f():\n from fleximq.c import x", False),
            ("fleximq.c", "from fleximq import a", False),
            ("fleximq.d", "import fleximq.a, fleximq.d", False),
        ]
        self.assertEqual(cyclesOf(made), [("fleximq.a", "fleximq.b", "fleximq.c")])
        self.assertEqual(cyclesOf([("fleximq.a", "import fleximq.b", False), ("fleximq.b", "import sys", False)]), [])

    def test_missingDocstringsAreFound(self) -> None:
        """Only what is private, and methods of classes that may inherit their documentation, go without."""
        for source, wanted in (
            ("class A:\n def f(self): pass\nasync def g(): pass", ["m", "m.A", "m.A.f", "m.g"]),
            ('"""M."""\nclass A:\n "A."\n def f(self):\n  "F."\ndef g():\n "G."', []),
            ('"""M."""\ndef _f(): pass\nclass _A:\n def f(self): pass', []),
            (
                '"""M."""\nclass A(B):\n def f(self): pass\n@implementer(I)\nclass C:\n "C."\n def f(self): pass',
                ["m.A"],
            ),
            *(
                (f'"""M."""\n{head}\n "A."\n def f(): pass', ["m.A.f"])
                for head in ("class A(Interface):", "class A(NamedTuple):", "@dataclass\nclass A:")
            ),
        ):
            self.assertEqual(undocumented("m", source), [f"{name} has no docstring" for name in wanted])

    def test_importedModulesAreSeen(self) -> None:
        """A plug-in file that imports a value of fleximq is found out."""
        path = Path(self.mktemp())
        path.write_text("from fleximq.status import Status\n")
        self.assertEqual(_importedBy(path.absolute()), ["fleximq", "fleximq.status"])
