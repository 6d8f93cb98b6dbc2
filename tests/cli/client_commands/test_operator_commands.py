"""``fleximq queues``, ``dead-letters``, ``clients``, ``topics``, ``produce`` and ``consume``."""

import json
import os
from typing import Any

from fleximq.cli.client_commands import sub
from fleximq.cli.client_commands.operator_commands import NOUNS
from fleximq.client.blipmq.blocking import connect as blipmq
from tests.cli.client_commands.commands import PATIENCE, CommandCase, ran


def rows(*words: str) -> list[Any]:
    """Return the objects that a command prints."""
    found = ran(*words, "--json")
    assert found.code == 0, found.err
    return [json.loads(line) for line in found.lines]


class QueueTests(CommandCase):
    """Action queues, and the messages in them."""

    options = ("--max-deliveries", "1", "--redelivery", "0.1")

    def test_queues(self) -> None:
        """What is produced is listed, looked at, taken and discarded."""
        self.assertEqual(ran("produce", "jobs", "sweep", "--quiet"), (0, b"", ""))
        self.assertIn("published 3 to jobs", ran("produce", "jobs", input=b"a\nb\nc\n").err)
        self.assertEqual([(row["topic"], row["messages"]) for row in rows("queues")], [("jobs", 4)])
        self.assertEqual([row["messages"] for row in rows("queues", "info", "jobs")], [4])
        shown = [(row["value"], row["deliveries"]) for row in rows("queues", "peek", "jobs", "--limit", "2")]
        self.assertEqual(shown, [("sweep", 0), ("a", 0)])
        self.assertEqual(ran("consume", "jobs", "--count", "2"), (0, b"sweep\na\n", ""))
        self.assertEqual([row["content"] for row in rows("consume", "jobs", "--count", "1")], ["b"])
        self.assertEqual(ran("queues", "purge", "jobs"), (0, b"messages of jobs discarded: 1\n", ""))
        self.assertEqual(ran("queues", "delete", "jobs"), (0, b"queue jobs is deleted, with messages: 0\n", ""))
        self.assertIn("there is no queue", ran("queues", "delete", "jobs").err)
        over = "fleximq: the time of --for is over after 0 of 1 messages\n"
        self.assertEqual(ran("consume", "jobs", "--for", "0.1", "--count", "1"), (1, b"", over))

    def test_subscriptions(self) -> None:
        """BlipMQ subscriptions are listed after the queues, with their numbers in a column of their own."""
        self.assertNotIn("subscription", ran("queues").out.decode())
        client = blipmq(self.url)
        self.addCleanup(client.close)
        client.subscribe("news")
        ran("produce", "jobs", "sweep", "--quiet")
        found = [(row["topic"], row.get("subscription"), row["messages"]) for row in rows("queues")]
        self.assertEqual(found, [("jobs", None, 1), ("news", 1, 0)])
        self.assertIn("subscription", ran("queues").out.decode())

    def test_waiting(self) -> None:
        """An empty queue is told after a while, unless --for ends the command."""
        said: list[str] = []
        client = self.client()

        def say(sentence: str) -> None:
            if sentence.startswith("waiting"):
                said.append(sentence)
                client.publish("jobs", b"sweep")

        self.patch(sub, "_SILENCE", 0.1)
        self.patch(sub, "say", say)
        ran("consume", "jobs", "--for", "0.3")
        self.assertEqual(said, [])
        self.assertEqual(ran("consume", "jobs", "--count", "1"), (0, b"sweep\n", ""))
        self.assertEqual(said, ["waiting for messages of jobs; --for SECONDS ends it"])

    def test_deadLetters(self) -> None:
        """A message that nobody acknowledges is shown with its story, and goes back to its queue."""
        ran("produce", "jobs", "sweep", "--quiet")
        self.assertEqual(ran("consume", "jobs", "--count", "1", "--no-ack").out, b"sweep\n")
        while not rows("dead-letters"):
            pass
        self.assertEqual([row["topic"] for row in rows("dead-letters", "ls")], ["jobs"])
        shown = rows("dead-letters", "show", "jobs")
        story = [(row["value"], row["reason"], row["attempts"], row["queue"]) for row in shown]
        self.assertEqual(story, [("sweep", "attempts", 1, "jobs")])
        columns = ["value", "id", "reason", "attempts", "died", "consumer", "words"]
        self.assertEqual(ran("dead-letters", "show", "jobs").lines[1].split(), columns)
        for other in (("--reason", "rejected"), ("--older", "1000"), ("--consumer", "x"), ("--words", "x")):
            self.assertEqual(rows("dead-letters", "show", "jobs", *other), [])
        self.assertIn("takes no --reason", ran("dead-letters", "ls", "--reason", "rejected").err)
        columns = ["topic", "messages", "in", "flight", "consumers", "memory", "durable"]
        self.assertEqual(ran("dead-letters").lines[1].split(), columns)
        returned = b"dead letters returned to the queue jobs: 1\n"
        found = ran("dead-letters", "return", "jobs", "--id", shown[0]["message_id"], "--younger", "1000")
        self.assertEqual(found, (0, returned, ""))
        self.assertEqual([row["messages"] for row in rows("dead-letters")], [0])
        self.assertEqual(ran("consume", "jobs", "--count", "1").out, b"sweep\n")

    def test_clients(self) -> None:
        """Clients and topics are listed, also in tables, and a client is disconnected."""
        client = self.client()
        client.publish("t", {"a": 1})
        client.flush()
        self.assertIn(client.id, [row["client_id"] for row in rows("clients")])
        self.assertEqual([row["client_id"] for row in rows("clients", "info", str(client.id))], [client.id])
        self.assertEqual([(row["topic"], row["published"]) for row in rows("topics")], [("t", 1)])
        self.assertIn(f"  {client.id}   fleximq ", ran("clients").out.decode())
        told = f"client {client.id} disconnected\n".encode()
        self.assertEqual(ran("clients", "disconnect", str(client.id)), (0, told, ""))

    def test_closedPipe(self) -> None:
        """A reader of a table that goes away ends the command without a word."""
        reading, writing = os.pipe()
        os.close(reading)
        process = self.start("topics", stdout=writing)
        os.close(writing)
        assert process.stderr is not None
        self.assertEqual((process.wait(PATIENCE), process.stderr.read()), (141, b""))

    def test_wrong(self) -> None:
        """Each mistake is one sentence with exit code 1."""
        for words, sentence in (
            (("queues", "info", "none"), "there is no queue of 'none'"),
            (("queues", "purge", "none"), "404 not found: there is no queue of 'none'"),
            (("queues", "purge"), "queues purge needs the TOPIC"),
            (("queues", "ls", "jobs"), "queues ls takes no TOPIC"),
            (("queues", "purge", "jobs", "--limit", "1"), "queues purge takes no --limit"),
            (("dead-letters", "show", "none"), "404 not found: there are no dead letters of 'none'"),
            (("dead-letters", "return", "none"), "404 not found: there are no dead letters of 'none'"),
            (("queues", "purge", "$dead/none"), "404 not found: there are no dead letters of 'none'"),
            (
                ("consume", "#", "--strict"),
                "'#' is an ordinary topic here: wildcards are for FlexiMQ subscriptions only",
            ),
            (("clients", "disconnect", "999"), "there is no client 999"),
            (("clients", "info", "999"), "there is no client 999"),
            (("clients", "info", "all"), "'all' is not the id of a client; fleximq clients shows the ids"),
            (("produce", "a", "x\ny"), "a content cannot contain a line break; encode it, e.g. as JSON"),
        ):
            self.assertEqual(ran(*words), (1, b"", f"fleximq: {sentence}\n"), words)
        found = ran("produce", "a", "x", "--token", "t")
        self.assertIn("MiniMQ has no credentials but a client certificate", found.err)

    def test_paths(self) -> None:
        """Every path of the table is one of the broker's, also for a reader who may do nothing else."""
        client = self.client()
        for path in {action.path for _, _, works in NOUNS.values() for action in works.values()}:
            error = self.failureOf(client.ask, path)
            self.assertNotIn("has no path", error)

    def failureOf(self, call: Any, *arguments: Any) -> str:
        """Return the text of the error of a call, "" without one."""
        try:
            call(*arguments)
        except Exception as error:
            return str(error)
        return ""
