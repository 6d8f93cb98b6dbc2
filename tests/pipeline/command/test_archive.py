"""The archive of Java's classes: who may have written it, when it is used, and when it is made."""

import os
import subprocess
import sys
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from fleximq.pipeline.command.archive import Archive, cacheFolder
from fleximq.pipeline.command.java import Java


class FolderTests(SynchronousTestCase):
    """It is code, so nobody else may write it."""

    def setUp(self) -> None:
        """Make a home."""
        self.home = Path(self.mktemp()).absolute()
        self.home.mkdir()

    def test_home(self) -> None:
        """It is in ``~/.cache``, or where XDG_CACHE_HOME says, and only for its user."""
        for environment, expected in (
            ({"HOME": str(self.home)}, self.home / ".cache" / "fleximq"),
            ({"HOME": "/x", "XDG_CACHE_HOME": f"{self.home}/c"}, self.home / "c" / "fleximq"),
            ({"HOME": str(self.home), "XDG_CACHE_HOME": "relative"}, self.home / ".cache" / "fleximq"),
        ):
            self.assertEqual(cacheFolder(environment), expected)
            self.assertEqual(expected.stat().st_mode & 0o777, 0o700)

    def test_none(self) -> None:
        """There is none without a home, where it cannot be made, or where Java would not understand the path."""
        (self.home / "file").write_text("")
        (self.home / "a b").mkdir()
        for environment in ({}, {"HOME": ""}, {"HOME": f"{self.home}/file"}, {"HOME": f"{self.home}/a b"}):
            self.assertIsNone(cacheFolder(environment), environment)

    def test_others(self) -> None:
        """A folder that others may write, or a link, is not taken."""
        folder = self.home / ".cache" / "fleximq"
        folder.mkdir(parents=True)
        for mode in (0o770, 0o707, 0o777):
            folder.chmod(mode)
            self.assertIsNone(cacheFolder({"HOME": str(self.home)}), oct(mode))
        folder.chmod(0o755)
        self.assertEqual(cacheFolder({"HOME": str(self.home)}), folder)
        folder.rmdir()
        folder.symlink_to("/tmp")
        self.assertIsNone(cacheFolder({"HOME": str(self.home)}))


class ArchiveTests(SynchronousTestCase):
    """Java's options, and what is kept."""

    def setUp(self) -> None:
        """Make the folder of archives."""
        self.folder = Path(self.mktemp()).absolute()
        self.folder.mkdir()

    def archive(self, version: int = 17, program: str = "/usr/bin/java") -> Archive:
        """Return the archive of a Java."""
        return Archive(self.folder, Java(program, version), "/spark")

    def test_recorded(self) -> None:
        """What Java writes at its end is there for the next run, under its own name only then."""
        archive = self.archive()
        options = archive.options(record=True).split()
        written = options[0].removeprefix("-XX:ArchiveClassesAtExit=")
        self.assertNotEqual(written, str(archive.path))
        program = subprocess.Popen([sys.executable, "-c", f"open({written!r}, 'w').write('classes')"])
        self.assertTrue(archive.keep(program, []))
        self.assertEqual(archive.path.read_text(), "classes")
        self.assertEqual(self.archive().options(record=True).split()[0], f"-XX:SharedArchiveFile={archive.path}")
        self.assertEqual(os.listdir(self.folder), [archive.path.name])

    def test_notWritten(self) -> None:
        """Nothing is kept of a Java that wrote nothing."""
        archive = self.archive()
        archive.options(record=True)
        self.assertFalse(archive.keep(subprocess.Popen([sys.executable, "-c", ""]), []))
        self.assertEqual(os.listdir(self.folder), [])

    def test_unasked(self) -> None:
        """It is not made by a run that may not take the time."""
        self.assertEqual(self.archive().options(record=False), "")

    def test_learnt(self) -> None:
        """A newer Java notes first, and another one makes the archive of that, with the same class path."""
        script = self.folder.parent / "java"
        script.write_text(
            "#!/bin/sh\n"
            "for word; do case $word in\n"
            "-XX:AOTCache=*) made=${word#*=};; -XX:AOTConfiguration=*) noted=${word#*=};; esac; done\n"
            '(cat "$noted"; echo "$@") > "$made"\n'
        )
        script.chmod(0o755)
        archive = self.archive(25, str(script))
        options = archive.options(record=True).split()
        self.assertEqual(options[0], "-XX:AOTMode=record")
        noted = options[1].removeprefix("-XX:AOTConfiguration=")
        program = subprocess.Popen([sys.executable, "-c", f"open({noted!r}, 'w').write('noted ')"])
        self.assertTrue(archive.keep(program, ["-cp", "a.jar", *options]))
        self.assertIn("noted -XX:AOTMode=create", archive.path.read_text())
        self.assertTrue(archive.path.read_text().endswith("-cp a.jar\n"))
        self.assertEqual(os.listdir(self.folder), [archive.path.name])
        self.assertEqual(self.archive(25, str(script)).options(True).split()[0], f"-XX:AOTCache={archive.path}")

    def test_other(self) -> None:
        """Another Java, another version and another Spark have archives of their own."""
        paths = {
            Archive(self.folder, Java(program, version), spark).path
            for program in ("/a", "/b")
            for version in (17, 25)
            for spark in ("/s", "/t")
        }
        self.assertEqual(len(paths), 8)

    def test_replaced(self) -> None:
        """What was replaced in its place gets another archive."""
        program = self.folder.parent / "program"
        program.write_text("")
        before = self.archive(17, str(program)).path
        self.assertEqual(self.archive(17, str(program)).path, before)
        os.utime(program, ns=(1, 1))
        self.assertNotEqual(self.archive(17, str(program)).path, before)

    def test_tidy(self) -> None:
        """What nobody has used for a month goes, and what was left unfinished an hour ago."""
        for name, age in (("spark-a.jsa", 31), ("spark-b.jsa", 29), ("spark-c.1.new", 1), ("other", 99)):
            (self.folder / name).write_text("")
            then = (self.folder / name).stat().st_mtime - age * 86_400
            os.utime(self.folder / name, (then, then))
        (self.folder / "spark-d.2.new").write_text("")
        self.archive().options(record=False)
        self.assertEqual(sorted(os.listdir(self.folder)), ["other", "spark-b.jsa", "spark-d.2.new"])
