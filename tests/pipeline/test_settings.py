"""What is chosen for a job: the command line, the settings file, and what the job says itself."""

from argparse import Namespace
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from fleximq.config import option_values
from fleximq.config.argument_parser import CommandParser
from fleximq.errors import SettingError
from fleximq.pipeline.command.job import addSource, flag, option, sourceOptions
from fleximq.pipeline.errors import OptionRefused
from fleximq.pipeline.main import JOBS, _addCommon, jobOf, mergeSettings
from tests.pipeline.installed import missing


class SettingsCase(SynchronousTestCase):
    """A job with an option of each kind."""

    def parser(self) -> CommandParser:
        """Return the job's parser."""
        parser = CommandParser(prog="job")
        addSource(parser)
        option(parser, "--most", read=option_values.size, default=7)
        option(parser, "--table", read=option_values.text, action="append")
        option(parser, "--kind", read=option_values.text, choices=("a", "b", "c"))
        flag(parser, "--once", "no value")
        _addCommon(parser)
        return parser

    def choose(self, *words: str) -> Namespace:
        """Return what is chosen by words of the command line."""
        return mergeSettings(self.parser(), "job", ("job", "other"), words)

    def file(self, text: str) -> tuple[str, str]:
        """Write a settings file, and return the words that name it."""
        path = Path(self.mktemp())
        path.write_text(text)
        return "--config", str(path)


class EmptyTests(SettingsCase):
    """Empty texts, mostly of a variable that is not set."""

    if missing:
        skip = missing

    def test_noOptionOfAJobMayBeEmpty(self) -> None:
        for job in JOBS:
            parser = CommandParser(prog=job)
            jobOf(job).prepare(parser)
            _addCommon(parser)
            for action in parser._actions:
                if action.nargs != 0 and action.option_strings:
                    error = self.assertRaises(SystemExit, parser.parse_args, [action.option_strings[-1], ""])
                    self.assertIn(action.option_strings[-1], str(error))

    def test_noSettingOfAFileMayBeEmpty(self) -> None:
        for name in ("token", "journal", "subscribe"):
            error = self.assertRaises(SettingError, self.choose, *self.file(f'source.{name} = ""\n'))
            self.assertIn(f": {name} is empty, but must be ", str(error))


class ChosenTests(SettingsCase):
    """What comes before what."""

    def test_defaultsAreThoseOfTheJob(self) -> None:
        chosen = self.choose()
        self.assertEqual((chosen.most, chosen.table, chosen.kind, chosen.once), (7, None, None, False))
        self.assertEqual((chosen.master, chosen.conf, chosen.journal, chosen.config), (None, None, None, None))

    def test_commandLineIsReadByType(self) -> None:
        chosen = self.choose("--most", "2KiB", "--table", "x", "--table=y", "--once", "--conf", "spark.a=b=c")
        self.assertEqual((chosen.most, chosen.table, chosen.once), (2048, ["x", "y"], True))
        self.assertEqual(chosen.conf, ["spark.a=b=c"])

    def test_fileHasTheSameNamesInTables(self) -> None:
        """The file has the same names, in tables of the job, of what is read and of Spark; others are for others."""
        chosen = self.choose(
            *self.file(
                'job.most = "1MiB"\njob.table = ["x", "y"]\njob.once = true\njob.kind = "b"\n'
                'source.journal = "j"\nsource.ca-file = "ca"\n[other]\nunknown = 1\n'
                '[spark]\nmaster = "local[1]"\nverbose = true\nno-cache = true\n'
                'conf = { "spark.a" = 1, "spark.b" = true, "spark.c" = "d" }\n'
            )
        )
        self.assertEqual((chosen.most, chosen.table, chosen.once, chosen.kind), (1 << 20, ["x", "y"], True, "b"))
        self.assertEqual((chosen.journal, chosen.ca_file), (["j"], "ca"))
        self.assertEqual((chosen.master, chosen.verbose, chosen.no_cache), ("local[1]", True, True))
        self.assertEqual(chosen.conf, ["spark.a=1", "spark.b=true", "spark.c=d"])

    def test_commandLineComesBeforeTheFile(self) -> None:
        """The command line comes before the file, also with lists, and with what is read instead of each other."""
        words = self.file('source.journal = "j"\nsource.topics = ["a", "b"]\njob.most = 5\njob.table = ["x"]\n')
        chosen = self.choose(*words, "--most", "6", "--table", "y", "--url", "tcp://a:1", "--subscribe", "c")
        self.assertEqual((chosen.most, chosen.table), (6, ["y"]))
        self.assertEqual(
            (chosen.journal, chosen.url, chosen.topics, chosen.subscribe), (None, ["tcp://a:1"], None, ["c"])
        )


class RefusedTests(SettingsCase):
    """What is wrong with a file is one sentence that names it."""

    def refused(self, text: str, sentence: str) -> None:
        """Check the sentence that a file leads to."""
        words = self.file(text)
        error = self.assertRaises(SettingError, self.choose, *words)
        self.assertEqual(str(error), f"{words[1]}{sentence}")

    def test_unknownNamesAreRefused(self) -> None:
        self.refused("job.mots = 1", ": [job] has no setting 'mots'")
        self.refused("[source]\nfolder = 1", ": [source] has no setting 'folder'")
        self.refused("[jobs]\n", ": there is no setting 'jobs'")
        self.refused("[job]\njournal = 'j'", ": [job] has no setting 'journal'")

    def test_wrongTypesAndChoicesAreRefused(self) -> None:
        size = "but must be a number of bytes, e.g. 65536, 64KiB, 16MiB or 1GiB"
        self.refused("job.most = true", f": most is True, {size}")
        self.refused("job.once = 1", ": once is 1, but must be true or false")
        self.refused("job.table = [1]", ": table is 1, but must be a text")
        self.refused("job.kind = 'd'", ": kind is 'd', but must be a, b or c")
        self.refused("job = 1", ": job is 1, but must be a table, e.g. [job]")
        self.refused(
            "spark.conf = ['x']", ": conf is 'x', but must be NAME=VALUE with a name of Spark, e.g. spark.ui.port=4040"
        )

    def test_missingFileAndWrongTomlAreRefused(self) -> None:
        error = self.assertRaises(SettingError, self.choose, "--config", "/not/there")
        self.assertEqual(str(error), "/not/there cannot be read: no such file or directory")
        self.refused("job", " is not TOML: expected '=' after a key in a key/value pair (at end of document)")

    def test_wrongCommandLineIsOneSentence(self) -> None:
        for words, sentence in (
            (("--most", "x"), "most is 'x', but must be a number of bytes"),
            (("--what",), "unrecognized arguments: --what"),
            (("--kind", "d"), "invalid choice: 'd'"),
        ):
            error = self.assertRaises(SystemExit, self.choose, *words)
            self.assertIn(sentence, str(error.code))
            self.assertNotIn("\n", str(error.code))


class SourceTests(SettingsCase):
    """What is chosen, as options of the source."""

    def options(self, *words: str) -> dict[str, str]:
        """Return the options for a command line."""
        return sourceOptions(self.choose(*words))

    def test_foldersAreAPathOrJson(self) -> None:
        self.assertEqual(self.options("--journal", "a*"), {"path": "a*"})
        self.assertEqual(self.options("--journal", "a", "--journal", "b"), {"path": '["a", "b"]'})

    def test_brokersHaveUrlsAndCredentials(self) -> None:
        brokers = "--url tcp://u:1 --url tcp://v:1 --token t --ca-file c --cert-file d --key-file k".split()
        self.assertEqual(
            self.options(*brokers, "--subscribe", "x", "--subscribe", "y"),
            {
                "url": "tcp://u:1,tcp://v:1",
                "token": "t",
                "caFile": "c",
                "certFile": "d",
                "keyFile": "k",
                "subscribe": "x,y",
            },
        )
        options = self.options("--url", "tcp://u:1", "--topics", "a.*")
        self.assertEqual(options, {"url": "tcp://u:1", "topics": "a.*"})

    def test_missingAndExcludingSourcesAreRefused(self) -> None:
        for words, sentence in (
            ([], "--journal FOLDER or --url URL is needed: the source to read"),
            (["--journal", "a", "--url", "tcp://b:1"], "--journal and --url exclude each other"),
            (["--journal", "a", "--topics", "b", "--subscribe", "c"], "--subscribe and --topics exclude each other"),
        ):
            self.assertEqual(str(self.assertRaises(OptionRefused, self.options, *words)), sentence)
