"""``fleximq enqueue`` and ``fleximq work``."""

import json
import signal
from typing import Any

from tests.cli.client_commands.commands import PATIENCE, CommandCase, ran


class WorkTests(CommandCase):
    """A queue "jobs", and its commands."""

    options = ("--journal", "journal", "--durable", "#")

    def left(self, queue: str = "jobs") -> list[Any]:
        """Return the values that wait in a queue."""
        found = ran("queues", "peek", queue, "--json")
        return [json.loads(line)["value"] for line in found.lines]

    def test_exitCodesSettle(self) -> None:
        """0 acknowledges, 75 retries, others reject with the last line of standard error."""
        self.assertEqual(ran("enqueue", "jobs", "--quiet", input=b"0\n75\n3\n"), (0, b"", ""))
        command = 'read c; test $c = 75 -a $FLEXIMQ_ATTEMPT = 2 && exit 0; echo "code $c" >&2; exit $c'
        found = ran("work", "jobs", "--count", "4", "--json", "--", command)
        self.assertEqual(found.code, 0, found.err)
        told = [json.loads(line) for line in found.lines]
        self.assertEqual(sorted((each["code"], each["attempt"]) for each in told), [(0, 1), (0, 2), (3, 1), (75, 1)])
        self.assertIn("code 3", found.err)
        self.assertEqual((self.left(), self.left("$dead/jobs")), ([], ["3"]))

    def test_argumentsRunWithoutTheShell(self) -> None:
        """As they are; the options of enqueue are those of the client."""
        words = ("--priority", "9", "--key", "k", "--message-id", "m", "--expires", "60")
        self.assertEqual(ran("enqueue", "jobs", "a b", *words).code, 0)
        found = ran("work", "jobs", "--count", "1", "--", "sh", "-c", 'test "$FLEXIMQ_KEY$FLEXIMQ_MESSAGE_ID" = km')
        self.assertEqual((found.code, self.left(), self.left("$dead/jobs")), (0, [], []))

    def test_aCommandThatCannotRunEndsTheWorker(self) -> None:
        """Its job stays."""
        ran("enqueue", "jobs", "a", "--quiet")
        self.assertIn("there is no command 'no-such'", ran("work", "jobs", "--", "no-such", "x").err)
        found = ran("work", "jobs", "--", "no-such-command")
        self.assertEqual((found.code, self.left()), (1, ["a"]))
        self.assertIn("cannot run, so its job is in the queue again", found.err)

    def test_aCommandOverItsLimitIsKilled(self) -> None:
        """And its job is delivered again."""
        ran("enqueue", "jobs", "a", "--quiet")
        found = ran("work", "jobs", "--count", "2", "--limit", "0.1", "--", "test $FLEXIMQ_ATTEMPT = 2 || sleep 300")
        self.assertEqual((found.code, self.left()), (0, []))

    def test_aSignalEndsItAfterTheJob(self) -> None:
        """Which is not interrupted."""
        ran("enqueue", "jobs", "a", "--quiet")
        process = self.start("work", "jobs", "--", "echo begun; cat - >/dev/null; echo done")
        assert process.stdout is not None
        self.assertEqual(process.stdout.readline(), b"begun\n")
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=PATIENCE)
        self.assertEqual((out, process.returncode, self.left()), (b"done\n", 0, []))

    def test_aLaterJobIsWithdrawnByItsSchedule(self) -> None:
        """Whose id is told; the job has the other options."""
        words = ("--delay", "3600", "--priority", "9", "--key", "k", "--expires", "60", "--json")
        number = json.loads(ran("enqueue", "jobs", "a", *words).out)["schedule"]
        self.assertIn(f", schedule {number + 1}", ran("enqueue", "jobs", "b", "--delay", "7200").err)
        self.assertEqual([ran("schedules", "rm", str(number)).code for _ in range(2)], [0, 1])
        self.assertEqual(ran("schedules", "rm", str(number + 1)).code, 0)

    def test_aRepeatedIdIsScheduledOnce(self) -> None:
        """A job with an id is dropped if it is repeated, so it has no schedule of its own."""
        for _ in range(2):
            ran("enqueue", "jobs", "a", "--delay", "3600", "--message-id", "m")
        self.assertEqual(len(ran("schedules", "ls", "--json").lines), 1)

    def test_wrongOptions(self) -> None:
        """One sentence each."""
        both = ran("enqueue", "jobs", "a", "--delay", "1", "--at", "2030-01-01T00:00")
        self.assertIn("give --delay or --at", both.err)
        self.assertIn("is not a time", ran("enqueue", "jobs", "a", "--at", "tomorrow").err)
        self.assertEqual(ran("work", "jobs").code, 1)
