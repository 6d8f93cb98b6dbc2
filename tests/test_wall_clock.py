"""Every read of the system clock has a reason: durations are measured by clocks that nobody can set."""

from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

import fleximq
from tests.wall_clock import wallReads

_ROOM = Path(fleximq.__file__).parent
#: Why these files read the system clock; and why a client touches the timers of a reactor.
REASONS = {
    "broker/broker.py": "times of messages and journal, credentials and listings, by its argument wall",
    "cli/client_commands/doctor.py": "the end of a certificate, and how far two machines' clocks are apart",
    "cli/client_commands/operator_commands.py": "--older and --younger of dead letters, which carry times",
    "cli/client_commands/sub.py": "the time printed before a message, and --from 10m",
    "cli/cluster_commands/connection.py": "how far the clocks of nodes are apart",
    "cli/credential_files.py": "until when an old credential is valid",
    "client/loops/reactor.py": "the next turn of the reactor, which no step delays by more than the turn",
    "client/loops/steady_timers.py": "finds out whether a reactor's seconds are those of the system clock",
    "dialects/fleximq/replies.py": "the time in a PING",
    "integrations/kombu/channel.py": "whether the ETA of a message is in the future",
    "pipeline/command/java.py": "the age of a cached file",
    "pipeline/jobs/stats.py": "finds out which times of messages are in the future",
    "pipeline/jobs/upkeep.py": "the retention of a lake",
    "pipeline/lag/reporter.py": "the time of a report",
    "pipeline/lake/compaction.py": "the age of files",
    "pipeline/lake/upserts/state_following.py": "the age of replaced files",
    "pipeline/lake/delta_log.py": "the time of a Delta transaction",
    "pipeline/reader/stream_reader.py": "finds the records of the last minutes by their times",
    "security/checkers/hashed_secrets.py": "until when a credential is valid",
    "security/checkers/passwords.py": "until when a password is valid",
    "security/checkers/web_service.py": "until when a service's answer is valid",
    "services/audit_log.py": "the time of a line",
    "services/broker_service.py": "passed to the broker",
    "services/cluster_operator.py": "how far the clocks of nodes are apart",
    "services/cluster_service.py": "the time of a record",
    "services/compose.py": "passed to the broker",
    "services/journal_service.py": "the time of a record",
    "services/process/log_lines.py": "the time of a line",
    "wire/ulids.py": "the time in a ULID",
}


class GuardTests(SynchronousTestCase):
    """The sources of fleximq."""

    def test_reasons(self) -> None:
        """Only these files read the system clock, and each of them does."""
        found = {}
        for path in sorted(_ROOM.rglob("*.py*")):
            name = path.relative_to(_ROOM).as_posix()
            if path.suffix == ".py" and (reads := list(wallReads(path.read_text(), name.startswith("client/")))):
                found[name] = reads
            elif path.suffix == ".pyx":
                self.assertNotRegex(path.read_text(), r"\btime\(|\bdatetime\b", name)
        unknown = {name: reads for name, reads in found.items() if name not in REASONS}
        self.assertEqual(unknown, {}, "durations need time.monotonic or the given clock; other uses a reason here")
        self.assertEqual(REASONS.keys() - found.keys(), set())


class ReadsTests(SynchronousTestCase):
    """wallReads() on small sources."""

    def test_found(self) -> None:
        """Calls, functions that are passed on, and imported names."""
        for source in (
            "time.time()", "f(now=time.time)", "from time import monotonic, time", "x = time.time_ns() // 1000",
            "datetime.now(UTC)", "datetime.datetime.now()", "date.today()", "time.strftime('%H')", "time.gmtime()",
            "time.clock_gettime(time.CLOCK_REALTIME)", "runtime.seconds()",
            "from twisted.python.runtime import seconds",
        ):  # fmt: skip
            self.assertEqual(len(list(wallReads(source))), 1, source)

    def test_notFound(self) -> None:
        """Monotonic clocks, conversions of other times, and clocks that are passed in."""
        for source in (
            "time.monotonic()", "time.gmtime(5)", "time.strftime('%H', x)", "datetime.fromtimestamp(5, UTC)",
            "clock.seconds()", "from time import monotonic, sleep", "time.clock_gettime(_CLOCK)", "self.time()",
        ):  # fmt: skip
            self.assertEqual(list(wallReads(source)), [], source)

    def test_foreign(self) -> None:
        """On the reactor of another program timers are those of the system clock."""
        source = (
            "self._reactor.callLater(1, f)\nreactor.seconds()\nself._reactor.callFromThread(f)\nclock.callLater(1, f)"
        )
        self.assertEqual([line for line, _ in wallReads(source, isForeign=True)], [1, 2])
        self.assertEqual(list(wallReads(source)), [])
