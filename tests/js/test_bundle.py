"""The file that the broker serves at /fleximq.js, the types, and the package of the JavaScript client."""

import gzip
import json
import re
import subprocess
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

import fleximq
from tests.js.workshop import PATIENCE, ROOT, SOURCES, node, workshop

_SERVED = ROOT / "fleximq" / "web" / "static" / "fleximq.js"
#: The most bytes of the served file, compressed as the broker does it.
_MOST = 9 * 1024


class ServedFileTests(SynchronousTestCase):
    """The file is the build of the sources."""

    def test_size(self) -> None:
        """It is small."""
        self.assertLessEqual(len(gzip.compress(_SERVED.read_bytes(), mtime=0)), _MOST)

    def test_isBuiltFromTheSources(self) -> None:
        """Building it again makes the same file."""
        folder = workshop()
        subprocess.run([node(), "build.js", "built"], cwd=folder / "js", check=True, timeout=PATIENCE)
        self.assertEqual((folder / "js" / "built" / "fleximq.js").read_bytes(), _SERVED.read_bytes())

    def test_evaluatesNoText(self) -> None:
        """A content security policy need not allow it."""
        self.assertNotRegex(_SERVED.read_text(), r"\beval\(|new Function|innerHTML|document\.write")


class PackageTests(SynchronousTestCase):
    """The package for npm."""

    def test_types(self) -> None:
        """The sources are checked strictly, and declarations are made of them, without internal names."""
        folder = workshop()
        checked = subprocess.run(
            [folder / "js" / "node_modules" / ".bin" / "tsc", "-p", "."],
            cwd=folder / "js",
            capture_output=True,
            text=True,
        )
        self.assertEqual((checked.stdout, checked.returncode), ("", 0))
        declared = (folder / "js" / "types" / "client.d.ts").read_text()
        self.assertIn(
            "export declare const connect: (url: string | string[], options?: Options) => Promise<Client>;", declared
        )
        self.assertNotIn("_send", declared)

    def test_typesOfPrograms(self) -> None:
        """A program that uses the package wrongly is refused, and one that uses it well is not."""
        folder = workshop()
        subprocess.run([folder / "js" / "node_modules" / ".bin" / "tsc", "-p", "."], cwd=folder / "js", check=True)
        program = folder / "program"
        program.mkdir(exist_ok=True)
        (program / "node_modules").mkdir(exist_ok=True)
        package = program / "node_modules" / "fleximq"
        if not package.exists():
            package.symlink_to(folder / "js")
        for line, errors in (
            ("for await (const m of await mq.subscribe('a', {from: 'first'})) m.value.x;", 0),
            ("await mq.subscribe('a', (m) => m.topic.length);", 0),
            ("const found: number = await mq.request('name', '/path', 5);", 0),
            ("await mq.publish(5, 1);", 1),
            ("await mq.subscribe('a', {from: 'middle'});", 1),
        ):
            source = f"import {{ connect }} from 'fleximq';\nconst mq = await connect('ws://localhost');\n{line}\n"
            (program / "program.ts").write_text(source)
            words = [
                "--noEmit",
                "--strict",
                "--module",
                "nodenext",
                "--target",
                "es2022",
                "--ignoreConfig",
                "--types",
                "",
            ]
            (program / "package.json").write_text('{"type": "module"}')
            checked = subprocess.run(
                [folder / "js" / "node_modules" / ".bin" / "tsc", *words, "program.ts"],
                cwd=program,
                capture_output=True,
                text=True,
            )
            self.assertEqual(len(re.findall(r"error TS", checked.stdout)), errors, checked.stdout)

    def test_version(self) -> None:
        """It is that of the broker."""
        package = json.loads((SOURCES / "package.json").read_text())
        lock = json.loads((SOURCES / "package-lock.json").read_text())
        self.assertEqual((package["version"], lock["version"]), (fleximq.__version__, fleximq.__version__))

    def test_dependencies(self) -> None:
        """It needs none; the lock file says of no package from where it comes."""
        package = json.loads((SOURCES / "package.json").read_text())
        self.assertNotIn("dependencies", package)
        self.assertNotIn("http", (SOURCES / "package-lock.json").read_text())

    def test_files(self) -> None:
        """Every file that the package exports is one of its sources."""
        package = json.loads((SOURCES / "package.json").read_text())
        for each in package["exports"].values():
            self.assertTrue((SOURCES / each["default"]).exists())
            self.assertEqual(Path(each["types"]).stem, Path(each["default"]).stem + ".d")
