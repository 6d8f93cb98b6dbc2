"""The sources keep to the order of the rooms, and the rules that say so can fail."""

import subprocess
import sys
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests import import_rules
from tests.import_rules import (
    MAY_IMPORT,
    breachesOfLadder,
    breachesOfNats,
    breachesOfPurity,
    breachesOfReactor,
    breachesOfSpark,
    cyclesOf,
    importsOf,
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
    """What stands in ``fleximq/`` and ``twisted/`` today."""

    def test_ladder(self) -> None:
        """Every import inside fleximq points down."""
        self.assertEqual([breach for source in sources() for breach in breachesOfLadder(*source)], [])

    def test_everyRoomIsKnown(self) -> None:
        """Every room has a place in the table: a new one has to be given one."""
        self.assertEqual({import_rules.roomOf(name) for name, _, _ in sources()} - {"", *MAY_IMPORT}, set())

    def test_cycles(self) -> None:
        """No modules import each other in a circle."""
        self.assertEqual(cyclesOf(sources()), [])

    def test_everyPrefixExists(self) -> None:
        """Each name in the tables of the ladder is a module or a package."""
        known = {name.removeprefix("fleximq.") for name, _, _ in sources()}
        steps = {each for room in import_rules.STEPS.values() for step in room for each in step}
        allowed = {each for names in MAY_IMPORT.values() for each in names}
        self.assertEqual(({*MAY_IMPORT} | steps | allowed | {*import_rules.KNOW_TWISTED}) - known, set())

    def test_purity(self) -> None:
        """wire, broker and journal, and the values below them, know neither Twisted nor Autobahn."""
        self.assertEqual([breach for source in sources() for breach in breachesOfPurity(*source)], [])

    def test_reactor(self) -> None:
        """Only the tap file imports the global reactor."""
        self.assertEqual([breach for source in sources() for breach in breachesOfReactor(*source)], [])

    def test_spark(self) -> None:
        """Only the pipeline knows Spark, and it knows no Twisted."""
        self.assertEqual([breach for source in sources() for breach in breachesOfSpark(*source)], [])

    def test_nats(self) -> None:
        """Only the cluster's wing for NATS knows nats-py, so a single broker never loads it."""
        self.assertEqual([breach for source in sources() for breach in breachesOfNats(*source)], [])

    def test_docstrings(self) -> None:
        """Whatever is public says what it does."""
        self.assertEqual([gap for source in sources() for gap in undocumented(*source)], [])

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


class PlugInRuleTests(SynchronousTestCase):
    """The rule about the plug-in file, on a file that breaks it."""

    def test_breach(self) -> None:
        """A plug-in file that imports a value of fleximq is found out."""
        path = Path(self.mktemp())
        path.write_text("from fleximq.status import Status\n")
        self.assertEqual(_importedBy(path.absolute()), ["fleximq", "fleximq.status"])


class ImportsOfTests(SynchronousTestCase):
    """How imports are found."""

    def names(self, source: str, module: str = "fleximq.wire.one", isPackage: bool = False) -> list[str]:
        """Return what is imported, without the lines."""
        return [name for _, name in importsOf(module, source, isPackage)]

    def test_bothForms(self) -> None:
        """``import`` gives the module, ``from`` gives each name with its origin."""
        self.assertEqual(self.names("import a.b, c\nfrom d import e, f as g"), ["a.b", "c", "d.e", "d.f"])

    def test_relative(self) -> None:
        """Dots are resolved against the module that says them."""
        self.assertEqual(self.names("from . import two"), ["fleximq.wire.two"])
        self.assertEqual(self.names("from .two import x"), ["fleximq.wire.two.x"])
        self.assertEqual(self.names("from ..broker import x"), ["fleximq.broker.x"])

    def test_relativeInPackage(self) -> None:
        """In a package's own file one dot is the package."""
        self.assertEqual(self.names("from .two import x", "fleximq.wire", True), ["fleximq.wire.two.x"])

    def test_everywhere(self) -> None:
        """Imports in functions, branches and ``TYPE_CHECKING`` blocks are found."""
        source = "if TYPE_CHECKING:\n import a\ndef f():\n try:\n  import b\n except E:\n  import c"
        self.assertEqual(sorted(self.names(source)), ["a", "b", "c"])


class LadderRuleTests(SynchronousTestCase):
    """The order of the rooms, on made-up sources."""

    def allows(self, room: str, *names: str) -> set[str]:
        """Return those of the names that a module of the room may import."""
        return {name for name in names if not breachesOfLadder(f"fleximq.{room}.x", f"import fleximq.{name}")}

    def test_coreRoomsAreStrangers(self) -> None:
        """wire, broker, journal and security know the values, and nothing of each other."""
        rooms = ["wire", "broker", "journal", "security"]
        for room in rooms:
            self.assertEqual(self.allows(room, *rooms, "values", "errors", "services"),
                             {room, "values", "errors"})  # fmt: skip

    def test_neverUp(self) -> None:
        """No room knows one above it."""
        above = ["tap", "services", "startup.options"]
        for room in ["wire", "broker", "dialects", "endpoints", "web", "config", "interfaces", "status"]:
            self.assertEqual(self.allows(room, *above), set(), room)

    def test_dialectsKnowBoth(self) -> None:
        """dialects is where wire and broker meet."""
        self.assertEqual(self.allows("dialects", "wire", "broker", "services"), {"wire", "broker"})

    def test_commandsKnowNoBroker(self) -> None:
        """The command ``fleximq`` reads settings and finds plug-ins, but never runs a broker itself."""
        below, above = {"config", "startup", "endpoints"}, {"broker", "services", "tap", "web"}
        self.assertEqual(self.allows("cli", *below, *above), below)

    def test_sentence(self) -> None:
        """A breach names the place and both rooms."""
        self.assertEqual(
            breachesOfLadder("fleximq.wire.x", "\nfrom fleximq.broker.topics.topic_table import Topic"),
            ["fleximq.wire.x:2 imports fleximq.broker.topics.topic_table.Topic, which wire must not"],
        )

    def test_steps(self) -> None:
        """Inside a room no module imports one of a later step; the facade imports all steps before it."""
        upward, downward = "import fleximq.journal.writing.commit", "import fleximq.journal.format.frame"
        self.assertEqual(len(breachesOfLadder("fleximq.journal.files.x", upward)), 1)
        self.assertEqual(breachesOfLadder("fleximq.journal.files.x", downward), [])
        self.assertEqual(breachesOfLadder("fleximq.journal.journal_folder", upward), [])

    def test_partsOfARoom(self) -> None:
        """Where the table allows a part of a room, its other parts are refused."""
        self.assertEqual(breachesOfLadder("fleximq.pipeline.x", "import fleximq.journal.files.frame_scan"), [])
        self.assertEqual(len(breachesOfLadder("fleximq.pipeline.x", "import fleximq.journal.writing.commit")), 1)

    def test_hiddenImports(self) -> None:
        """An import in a function or only for types breaks the ladder as any other."""
        for source in [
            "def f():\n from fleximq import services",
            "if TYPE_CHECKING:\n from fleximq.tap import makeService",
            "from ..services import compose",
        ]:
            self.assertEqual(len(breachesOfLadder("fleximq.wire.x", source)), 1, source)

    def test_version(self) -> None:
        """Every room may know the version of the package."""
        self.assertEqual(breachesOfLadder("fleximq.wire.x", "from fleximq import __version__"), [])

    def test_packageItself(self) -> None:
        """``fleximq/__init__.py`` imports no room."""
        self.assertEqual(len(breachesOfLadder("fleximq", "from fleximq.tap import makeService", True)), 1)


class CycleTests(SynchronousTestCase):
    """How circles of imports are found."""

    def test_circle(self) -> None:
        """Modules that import each other are named together, also where the circle goes through a third one."""
        made = [
            ("fleximq.a", "import fleximq.b", False),
            ("fleximq.b", "def f():\n from fleximq.c import x", False),
            ("fleximq.c", "from fleximq import a", False),
            ("fleximq.d", "import fleximq.a", False),
        ]
        self.assertEqual(cyclesOf(made), [("fleximq.a", "fleximq.b", "fleximq.c")])

    def test_none(self) -> None:
        """Imports that only point down make no circle, and neither does a module that names itself."""
        made = [("fleximq.a", "import fleximq.b, fleximq.a", False), ("fleximq.b", "import sys", False)]
        self.assertEqual(cyclesOf(made), [])


class PurityRuleTests(SynchronousTestCase):
    """What the pure rooms may import from outside."""

    def test_breaches(self) -> None:
        """Twisted, Autobahn and any other stranger is named, in whatever form it is imported."""
        for source in [
            "import twisted",
            "from twisted.internet import defer",
            "import autobahn.websocket",
            "import six",
        ]:
            for room in ["wire", "broker", "journal"]:
                self.assertEqual(len(breachesOfPurity(f"fleximq.{room}.x", source)), 1, source)

    def test_allowed(self) -> None:
        """The standard library, zope.interface, msgpack, ulid and zlib-ng are welcome."""
        strangers = ("from zope.interface import implementer", "import msgpack", "from ulid import ULID")
        source = "\n".join(("import struct", *strangers, "from zlib_ng.zlib_ng import crc32"))
        self.assertEqual(breachesOfPurity("fleximq.wire.x", source), [])

    def test_others(self) -> None:
        """The rooms above may use Twisted."""
        self.assertEqual(breachesOfPurity("fleximq.dialects.x", "import twisted"), [])

    def test_apart(self) -> None:
        """The client's modules for Twisted may know Twisted, and the rest of the client must not know those modules."""
        self.assertEqual(breachesOfPurity("fleximq.client.twisted", "import twisted"), [])
        self.assertEqual(len(breachesOfPurity("fleximq.client.asyncio", "import twisted")), 1)
        for source in ("import fleximq.client.twisted", "from fleximq.client.loops.reactor import ReactorLoop"):
            self.assertEqual(len(breachesOfLadder("fleximq.client.asyncio", source)), 1, source)
        self.assertEqual(
            breachesOfLadder("fleximq.client.twisted", "from fleximq.client.loops.connection import Loop"), []
        )


class SparkRuleTests(SynchronousTestCase):
    """Who may import what belongs to Spark."""

    def test_outside(self) -> None:
        """No other room may, in whatever form, also in functions."""
        for source in ["import pyspark.sql", "from pyarrow import compute", "def f():\n import numpy as np"]:
            self.assertEqual(len(breachesOfSpark("fleximq.journal.x", source)), 1, source)

    def test_inside(self) -> None:
        """The pipeline may, but neither Twisted nor any other stranger."""
        self.assertEqual(breachesOfSpark("fleximq.pipeline.x", "import pyspark, pyarrow, numpy, msgpack, json"), [])
        for source in ["import twisted.internet", "import pandas"]:
            self.assertEqual(len(breachesOfSpark("fleximq.pipeline.x", source)), 1, source)


class NatsRuleTests(SynchronousTestCase):
    """Who may import nats-py."""

    def test_breaches(self) -> None:
        """Neither nats-py nor the wing that knows it, but the wing itself may both."""
        for source in ["import nats", "from nats.js import api", "from fleximq.cluster.nats.store import NatsCluster"]:
            self.assertEqual(len(breachesOfNats("fleximq.cluster.copy", source)), 1, source)
            self.assertEqual(breachesOfNats("fleximq.cluster.nats.feed", source), [])
        self.assertEqual(breachesOfNats("fleximq.cluster.copy", "import natsort"), [])


class ReactorRuleTests(SynchronousTestCase):
    """Who may import the global reactor."""

    def test_breaches(self) -> None:
        """Both ways of importing it are found, in functions too."""
        for source in ["from twisted.internet import defer, reactor", "def f():\n import twisted.internet.reactor"]:
            self.assertEqual(len(breachesOfReactor("fleximq.services.x", source)), 1, source)

    def test_allowed(self) -> None:
        """The tap file may, and other things of the same package are no reactor."""
        self.assertEqual(breachesOfReactor("fleximq.tap", "from twisted.internet import reactor"), [])
        self.assertEqual(breachesOfReactor("fleximq.web.x", "from twisted.internet import defer"), [])


class DocstringRuleTests(SynchronousTestCase):
    """Who has to have a docstring."""

    def test_missing(self) -> None:
        """A module, a class, a function and a method without one are each named."""
        source = "class A:\n def f(self): pass\nasync def g(): pass"
        self.assertEqual(
            undocumented("m", source),
            ["m has no docstring", "m.A has no docstring", "m.A.f has no docstring", "m.g has no docstring"],
        )

    def test_present(self) -> None:
        """Nothing is said where all have one."""
        self.assertEqual(undocumented("m", '"""M."""\nclass A:\n "A."\n def f(self):\n  "F."\ndef g():\n "G."'), [])

    def test_private(self) -> None:
        """What begins with an underscore may go without, and all inside it."""
        self.assertEqual(undocumented("m", '"""M."""\ndef _f(): pass\nclass _A:\n def f(self): pass'), [])

    def test_inherited(self) -> None:
        """A method of a class with bases or an interface may be documented there; the class itself has to be."""
        source = '"""M."""\nclass A(B):\n def f(self): pass\n@implementer(I)\nclass C:\n "C."\n def f(self): pass'
        self.assertEqual(undocumented("m", source), ["m.A has no docstring"])

    def test_inheritsNothing(self) -> None:
        """An interface, a value or a data class has nowhere else to document its methods."""
        for head in ["class A(Interface):", "class A(NamedTuple):", "@dataclass\nclass A:"]:
            self.assertEqual(undocumented("m", f'"""M."""\n{head}\n "A."\n def f(): pass'), ["m.A.f has no docstring"])
