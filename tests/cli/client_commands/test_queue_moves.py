"""``fleximq queues define``, ``pause``, ``resume`` and ``move``."""

from tests.cli.client_commands.commands import CommandCase, ran
from tests.cli.client_commands.test_operator_commands import rows


class QueueActionTests(CommandCase):
    """Actions on the queue "jobs"."""

    def test_define(self) -> None:
        """Keys as in the settings file; a different definition needs --replace."""
        keys = ("max_attempts=3", "retry.first=10", "sources=a,b.*", "durable=false")
        words = [word for key in keys for word in ("--set", key)]
        self.assertEqual(ran("queues", "define", "jobs", *words), (0, b"queue jobs is defined\n", ""))
        [found] = [each for each in self.client().queues() if each["queue"] == "jobs"]
        self.assertEqual((found["definition"]["max_attempts"], found["definition"]["sources"]), (3, ["a", "b.*"]))
        self.assertIn("409", ran("queues", "define", "jobs", "--set", "max_attempts=4").err)
        self.assertEqual(ran("queues", "define", "jobs", "--set", "max_attempts=4", "--replace").code, 0)
        self.assertIn("is not KEY=VALUE", ran("queues", "define", "jobs", "--set", "max_attempts").err)
        self.assertIn("takes no --set", ran("queues", "purge", "jobs", "--set", "a=1").err)

    def test_pause(self) -> None:
        """And resume."""
        ran("queues", "define", "jobs")
        self.assertEqual(ran("queues", "pause", "jobs").out, b"deliveries of jobs are paused\n")
        ran("enqueue", "jobs", "a", "--quiet")
        jobs = self.client().consume("jobs")
        self.assertIsNone(jobs.next(0))
        self.assertEqual(ran("queues", "resume", "jobs").out, b"deliveries of jobs are resumed\n")
        found = jobs.next(60)
        assert found is not None
        self.assertEqual(found.value, "a")

    def test_move(self) -> None:
        """Values and headers stay, in order."""
        client = self.client()
        for number in range(250):
            client.enqueue("jobs", number, headers={"own": number}, message_id=str(number))
        client.flush()
        found = ran("queues", "move", "jobs", "--to", "later", "--limit", "240")
        self.assertEqual((found.code, found.out), (0, b"messages of jobs moved to later: 240\n"), found.err)
        self.assertEqual({row["topic"]: row["messages"] for row in rows("queues")}, {"jobs": 10, "later": 240})
        with client.consume("later", 250) as jobs:
            moved = [(job.value, job.header["own"], job.message_id) for _, job in zip(range(240), jobs, strict=False)]
        self.assertEqual(moved, [(number, number, None) for number in range(240)])
        self.assertEqual(ran("queues", "move", "jobs", "--to", "later").out, b"messages of jobs moved to later: 10\n")
        self.assertIn("needs --to", ran("queues", "move", "jobs").err)


class ScheduleTests(CommandCase):
    """``fleximq schedules``."""

    def test_single(self) -> None:
        """It is listed, and removed once."""
        found = ran("schedules", "add", "news", "good morning", "--at", "2030-01-01T07:00+01:00")
        self.assertRegex(found.out.decode(), r"schedule \d+ publishes to news\n")
        id = found.out.decode().split()[1]
        [row] = rows("schedules", "ls")
        self.assertEqual((row["id"], row["topic"], row["due"]), (int(id), "news", 1_893_477_600_000))
        self.assertIn("news", ran("schedules", "ls").out.decode())
        self.assertEqual([ran("schedules", "rm", id).code for _ in range(2)], [0, 1])
        self.assertEqual(rows("schedules", "ls"), [])

    def test_recurring(self) -> None:
        """It has a name, and is paused, resumed and removed by it."""
        words = ("schedules", "add", "news", "tick", "--every", "3600")
        self.assertIn("needs --name", ran(*words).err)
        self.assertEqual(ran(*words, "--name", "hourly").out, b"schedule hourly publishes to news\n")
        self.assertIn("every 3600 s", ran("schedules", "ls").out.decode())
        self.assertEqual(ran("schedules", "pause", "hourly").code, 0)
        self.assertEqual([row["paused"] for row in rows("schedules", "ls")], [True])
        self.assertIn("paused", ran("schedules", "ls").out.decode())
        self.assertEqual(ran("schedules", "resume", "hourly").code, 0)
        self.assertEqual([ran("schedules", "rm", "hourly").code for _ in range(2)], [0, 1])
        self.assertIn("there is no schedule none", ran("schedules", "pause", "none").err)
        self.assertIn("takes no --name", ran("schedules", "add", "a", "b", "--delay", "1", "--name", "c").err)
