"""Lines of JSON, and the real program that writes them."""

import io
import json
import os
import signal
import socket
import syslog
from typing import Any

from twisted.application.service import Application, MultiService
from twisted.internet.testing import MemoryReactorClock
from twisted.logger import FileLogObserver, FilteringLogObserver, ILogObserver, Logger, LogLevel
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from fleximq.config.option_values import LogFormat
from fleximq.services.process.log_lines import (
    LONGEST_LINE,
    LONGEST_VALUE,
    LoggingService,
    formatLine,
    formatText,
    limited,
    withLog,
)
from tests.broker_process import BrokerProcess


class LineTests(SynchronousTestCase):
    """One event."""

    def line(self, say: Any) -> dict[str, Any]:
        """Return what is written of what is said to a logger."""
        file = io.StringIO()
        say(Logger("a.b", observer=FileLogObserver(file, formatLine)))
        text = file.getvalue()
        self.assertEqual((text.count("\n"), text[-1]), (1, "\n"))
        found: dict[str, Any] = json.loads(text)
        return found

    def test_fields(self) -> None:
        """A line has the time, where it is from, the sentence, and the fields."""
        line = self.line(lambda log: log.warn("{who} left", who="x", number=3, part=0.5, yes=True, none=None))
        self.assertRegex(line.pop("time"), r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00")
        self.assertEqual(
            line,
            {
                "level": "warn", "logger": "a.b", "message": "x left", "who": "x", "number": 3, "part": 0.5,
                "yes": True, "none": None,
            },
        )  # fmt: skip

    def test_otherValues(self) -> None:
        """What JSON has no word for is text."""
        line = self.line(lambda log: log.info("x", one=b"y", two=float("inf"), three=(1, 2)))
        self.assertEqual((line["one"], line["two"], line["three"]), ("b'y'", "inf", "(1, 2)"))

    def test_ownNames(self) -> None:
        """A field does not take the place of what each line has."""
        line = self.line(lambda log: log.info("sentence", time="mine", message="mine", logger="mine"))
        self.assertEqual((line["message"], line["logger"]), ("sentence", "a.b"))

    def test_failure(self) -> None:
        """A failure comes with its traceback, in the same line."""
        line = self.line(lambda log: log.failure("it broke", Failure(ValueError("why"))))
        self.assertEqual((line["level"], line["message"]), ("critical", "it broke"))
        self.assertIn("ValueError: why", line["traceback"])

    def test_newLines(self) -> None:
        """A line end in a value is no line end."""
        self.assertEqual(self.line(lambda log: log.info("{x}", x="a\nb"))["message"], "a\nb")

    def test_controls(self) -> None:
        """Control characters and line ends that JSON does not escape by itself."""
        text = formatLine({"log_format": "{x}", "x": "\x1b\x7f\x9b\x85\u2028\u202e"})
        self.assertTrue(text.removesuffix("\n").isprintable())
        self.assertEqual(json.loads(text)["x"], "\x1b\x7f\x9b\x85\u2028\u202e")

    def test_longValues(self) -> None:
        """Texts and errors are cut, in the message as in the fields; a sentence of the broker itself is not."""
        long, cut = "x" * (LONGEST_VALUE + 7), "x" * LONGEST_VALUE + "... (7 more characters)"
        for value in (long, ValueError(long)):
            line = self.line(lambda log, value=value: log.info("{x} left", x=value))
            self.assertEqual((line["message"], line["x"]), (f"{cut} left", cut))
        self.assertEqual(self.line(lambda log: log.info(long))["message"], long)
        self.assertEqual(self.line(lambda log: log.info("{sentence}", sentence=long))["message"], long)
        self.assertIn(f" {cut} left\n", formatText({"log_format": "{x} left", "x": long, "log_time": 0.0}) or "")

    def test_longLines(self) -> None:
        """A line and a traceback are bounded, whatever they quote; the middle is left out."""
        long = "x" * LONGEST_LINE
        failure = Failure(ValueError(f"begin{long}end"))
        event = {"log_format": "{x}", "x": [long, long], "log_time": 0.0, "log_failure": failure}
        text, line = formatText(event) or "", formatLine(event)
        self.assertLess(len(text), 1.1 * LONGEST_LINE)
        self.assertTrue(text.rstrip().endswith("xend"), text[-20:])
        found = json.loads(line)
        self.assertIn(" characters left out) ...", found["traceback"])
        for each in ("message", "traceback", "x"):
            self.assertLess(len(found[each]), 1.1 * LONGEST_LINE)

    def test_legacy(self) -> None:
        """What old code logs has a message, too."""
        line = json.loads(formatLine({"log_format": "{log_text}", "log_text": "old", "log_time": 0.0, "system": "-",
                                      "log_level": LogLevel.info, "isError": 0, "message": ()}))  # fmt: skip
        self.assertEqual((line["message"], line["time"]), ("old", "1970-01-01T00:00:00.000+00:00"))


class TextTests(SynchronousTestCase):
    """One event as text."""

    def line(self, say: Any) -> str:
        """Return what is written of what is said to a logger, without the time."""
        file = io.StringIO()
        say(Logger("a.b", observer=FileLogObserver(file, formatText)))
        return file.getvalue().partition(" ")[2]

    def test_sentence(self) -> None:
        """A line is Twisted's."""
        self.assertEqual(self.line(lambda log: log.info("{x} left", x="a")), "[a.b#info] a left\n")

    def test_controls(self) -> None:
        """A value neither begins a line nor colours a terminal."""
        value = "x\n2026-11-22T00:00:00+0000 [-] forged\r\x1b[31m\x9b\x85\u2028\u202e\t"
        shown = r"x\x0a2026-11-22T00:00:00+0000 [-] forged\x0d\x1b[31m\x9b\x85\u2028\u202e\x09"
        self.assertEqual(self.line(lambda log: log.info("{x} left", x=value)), f"[a.b#info] {shown} left\n")

    def test_failure(self) -> None:
        """A traceback has lines, which begin with a tab; what a client sent in it is escaped."""
        found = self.line(lambda log: log.failure("it broke", Failure(ValueError("a\nb\x1b[1m"))))
        first, *others, end = found.split("\n")
        self.assertEqual((first, end), ("[a.b#critical] it broke", ""))
        self.assertTrue(others and all(each.startswith("\t") for each in others))
        self.assertIn(r"b\x1b[1m", found)

    def test_nothing(self) -> None:
        """An event without text is not written."""
        self.assertIsNone(formatText({}))


class PlaceTests(SynchronousTestCase):
    """Where the lines go."""

    def observer(self, **options: Any) -> Any:
        """Return what the application is given."""
        self.signals: dict[int, Any] = {}
        self.application = Application("x")
        self.service = LoggingService(formatLine, options, MemoryReactorClock(), self.signals.__setitem__)
        self.service.setServiceParent(self.application)
        return self.application.getComponent(ILogObserver)

    def written(self, path: str) -> list[dict[str, Any]]:
        """Return the lines of the file when the service has written all of them."""
        assert self.service.writer is not None
        self.service.writer.end()
        with open(path) as file:
            return [json.loads(line) for line in file]

    def test_standardOutput(self) -> None:
        """In the foreground they go to standard output, if no file is named; SIGUSR1 does not end the process."""
        for options in ({}, {"logfile": "-"}):
            self.assertIsInstance(self.observer(nodaemon=True, **options), FilteringLogObserver)
            self.assertIn(signal.SIGUSR1, self.signals)

    def test_unusable(self) -> None:
        """A file that cannot be opened is one sentence."""
        path = self.mktemp()
        os.mkdir(path)
        error = self.assertRaises(SystemExit, self.observer, nodaemon=True, logfile=path)
        self.assertEqual(str(error), f"fleximq: the log file {path} cannot be opened: is a directory")

    def test_file(self) -> None:
        """They go to a file, which SIGUSR1 rotates."""
        path = self.mktemp()
        observer = self.observer(nodaemon=True, logfile=path)
        Logger("a", observer=observer).info("here")
        self.assertEqual([line["message"] for line in self.written(path)], ["here"])
        self.assertIn(signal.SIGUSR1, self.signals)

    def test_debug(self) -> None:
        """Events at debug are not written."""
        path = self.mktemp()
        log = Logger("a", observer=self.observer(nodaemon=True, logfile=path))
        log.debug("hidden")
        log.info("shown")
        self.assertEqual([line["message"] for line in self.written(path)], ["shown"])

    def test_twisted(self) -> None:
        """Of the lines of one module of Twisted ten a second are written, the next with the number left out."""
        path = self.mktemp()
        observer = self.observer(nodaemon=True, logfile=path)
        for second in range(2):
            for _ in range(15):
                for namespace in ("twisted.protocols._sni", "fleximq.x"):
                    observer({"log_namespace": namespace, "log_level": LogLevel.warn, "log_format": "{what}",
                              "what": "word", "log_time": 5.0 + second})  # fmt: skip
        lines = self.written(path)
        self.assertEqual(sum(line["logger"] == "fleximq.x" for line in lines), 30)
        said = [line["message"] for line in lines if line["logger"] != "fleximq.x"]
        self.assertEqual(said, [*["word"] * 10, "word (5 more lines left out)", *["word"] * 9])

    def test_tracebacks(self) -> None:
        """Tracebacks are limited as well, of any module."""
        written: list[Any] = []
        observe: Any = limited(written.append)  # type: ignore[arg-type]
        for _ in range(15):
            observe({"log_namespace": "fleximq.x", "log_failure": Failure(ValueError("why")), "log_time": 5.0})
        self.assertEqual(len(written), 10)

    def test_syslog(self) -> None:
        """The system's log gets lines with their level, without a time of ours."""
        sent: list[tuple[int, str]] = []
        self.patch(syslog, "syslog", lambda priority, line: sent.append((priority, line)))
        application = Application("x")
        for form, line in ((LogFormat.TEXT, "[a#warn] x"), (LogFormat.JSON, '{"time": "')):
            service = withLog(MultiService(), form, {"syslog": True}, MemoryReactorClock(), onSignal=lambda *_: None)
            service.setServiceParent(application)
            Logger("a", observer=application.getComponent(ILogObserver)).warn("x")
            assert service.writer is not None
            service.writer.end()
            self.assertEqual(sent[-1][0], syslog.LOG_WARNING)
            self.assertTrue(sent[-1][1].startswith(line), sent)


class ProgramTests(SynchronousTestCase):
    """A real broker."""

    def test_forged(self) -> None:
        """The path of a peer on a UNIX socket does not forge a line of text."""
        path = f"/tmp/x{os.getpid()}\n2026-11-22T00:00:00+0000 [-] forged\x1b[1m"
        with BrokerProcess("--listen", "unix:s") as broker:
            self.addCleanup(os.unlink, path)
            with socket.socket(socket.AF_UNIX) as client:
                client.bind(path)
                client.connect(str(broker.folder / "s"))
                client.sendall(b"PING:\n")
                client.recv(6)
                broker.waitForOutput("joined")
        self.assertNotIn("\n2026-11-22T00:00:00+0000 [-] forged", broker.output)
        self.assertNotIn("\x1b", broker.output)

    def test_left(self) -> None:
        """All it prints is JSON; a client that leaves is told with its reason and what went over its connection."""
        with BrokerProcess("--log-format", "json") as broker:
            with socket.create_connection(broker.address) as client:
                client.sendall(b"PING:\n")
                self.assertEqual(client.recv(6), b"PONG:\n"[:6])
            broker.waitForOutput('"event": "left"')
            lines = [json.loads(line) for line in broker.output.splitlines()]
        (left,) = [line for line in lines if line.get("event") == "left"]
        (joined,) = [line for line in lines if line.get("event") == "joined"]
        self.assertEqual(
            {name: left[name] for name in ("dialect", "client", "client_id", "principal", "bytes_in", "messages_in")},
            {
                "dialect": "minimq", "client": "minimq-1000", "client_id": 1000, "principal": None, "bytes_in": 6,
                "messages_in": 1,
            },
        )  # fmt: skip
        self.assertEqual((left["reason"], joined["client_id"]), ("client closed", 1000))
        self.assertTrue(left["address"].startswith("127.0.0.1:"))
