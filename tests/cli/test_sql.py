"""The command ``fleximq sql``, in a process of its own."""

import subprocess
import sys
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.pages import ROOT
from tests.pipeline.local_query.needed import missing as skip
from tests.pipeline.written import Written

_HIDDEN = """
import sys
from importlib.abc import MetaPathFinder

class Hidden(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == "duckdb":
            raise ModuleNotFoundError("No module named 'duckdb'", name=name)

sys.meta_path.insert(0, Hidden())
from fleximq.cli.main import main
sys.exit(main(sys.argv[1:]))
"""
_LISTED = """
import sys
from fleximq.cli.main import main
main(sys.argv[1:])
print(*sorted({"twisted", "pyspark", "pandas", "cryptography", "fleximq.client"} & set(sys.modules)))
"""


class SqlTests(SynchronousTestCase):
    """The command, over a journal with three records."""

    if skip:
        skip = skip

    def setUp(self) -> None:
        """Write it."""
        self.folder = Path(self.mktemp()).absolute()
        Written(str(self.folder)).kept("news", b"\xa1a", b"\xa1b", b"\xa1c")

    def ran(self, *words: str, code: str = "") -> tuple[int, str, str]:
        """Return the exit code and both outputs."""
        command = [sys.executable, *(["-c", code] if code else ["-m", "fleximq"]), "sql", *words]
        ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        return ended.returncode, ended.stdout, ended.stderr

    def test_eachForm(self) -> None:
        query = ("select topic, count(*) as messages from messages group by 1", "--journal", str(self.folder))
        self.assertEqual(self.ran(*query), (0, "topic  messages\n-----  --------\nnews          3\n(1 row)\n", ""))
        self.assertEqual(self.ran(*query, "--json"), (0, '{"topic":"news","messages":3}\n', ""))
        self.assertEqual(self.ran(*query, "--csv"), (0, "topic,messages\nnews,3\n", ""))

    def test_errorsAreOneSentenceAndOne(self) -> None:
        journal = ("--journal", str(self.folder))
        self.assertEqual(self.ran("selec 1", *journal), (1, "", 'fleximq: syntax error at or near "selec"\n'))
        self.assertEqual(
            self.ran("select 1", *journal, "--json", "--csv")[0::2],
            (1, "fleximq: --json and --csv exclude each other\n"),
        )
        self.assertIn("'0' is not a number of rows: at least 1", self.ran("select 1", *journal, "--limit", "0")[2])
        nowhere = ("--journal", f"{self.folder}/none")
        error = f"fleximq: {self.folder}/none is no journal: it has no file identity\n"
        self.assertEqual(self.ran("select 1", *nowhere), (1, "", error))

    def test_withoutDuckdbOneSentenceNamesTheExtra(self) -> None:
        code, shown, error = self.ran("select 1", "--journal", str(self.folder), code=_HIDDEN)
        self.assertEqual((code, shown), (1, ""))
        self.assertEqual(
            error,
            "fleximq: DuckDB or pyarrow is not installed (No module named 'duckdb'): pip install '.[sql]' in a clone "
            "of FlexiMQ\n",
        )

    def test_nothingIsImportedThatTheCommandDoesNotNeed(self) -> None:
        _, shown, error = self.ran("select 1 as one", "--json", "--journal", str(self.folder), code=_LISTED)
        self.assertEqual((shown, error), ('{"one":1}\n\n', ""))
