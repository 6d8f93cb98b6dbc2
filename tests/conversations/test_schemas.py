"""A broker with ``--schema``: each dialect is told which field does not fit, and a reload takes another schema."""

import json
import os
import signal
from contextlib import ExitStack
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.broker_process import BrokerProcess
from tests.conversations.clients import BlipClient, FlexiClient, IdentityClient, MiniClient, Stream
from tests.schemas.installed import missing as skip  # noqa: F401

NUMBER = {"type": "object", "properties": {"total": {"type": "number"}}, "required": ["total"]}
TEXT = {"type": "object", "properties": {"total": {"type": "string"}}}
WORDS = "orders.total must be a number"


class SchemaTests(SynchronousTestCase):
    """Clients of a broker."""

    def setUp(self) -> None:
        things = ExitStack()
        self.addCleanup(things.close)
        self.broker = BrokerProcess("--schema", "orders=order.json", "--journal", "journal", "--durable", "orders")
        self.file = self.broker.folder / "order.json"
        self.file.write_text(json.dumps(NUMBER))
        things.enter_context(self.broker)
        self.enter = things.enter_context

    def http(self, path: str, body: bytes) -> bytes:
        """Return the answer to a POST."""
        with Stream(self.broker.address) as stream:
            stream.say(b"POST %s HTTP/1.0\r\nContent-Length: %d\r\n\r\n" % (path.encode(), len(body)) + body)
            return stream.readAll()

    def test_eachDialect(self) -> None:
        bad, good = {"total": "x"}, {"total": 5}
        flexi = self.enter(FlexiClient(Stream(self.broker.address))).join().subscribe("orders")
        flexi.barrier()
        flexi.publish("orders", bad)
        [told] = flexi.barrier()
        self.assertEqual((told.status, told.value), (422, WORDS))
        flexi.publish("orders", good)
        self.assertEqual([each.value for each in flexi.barrier()], [good])
        flexi.publish("orders", bad, queue=True)
        self.assertEqual([each.status for each in flexi.barrier()], [422])

        blip = self.enter(BlipClient(self.broker.address)).login()
        for qos in (0, 1):
            blip.publish("orders", json.dumps(bad).encode(), qos)
            self.assertEqual([(each.code, each.words) for each in blip.barrier()], [(400, WORDS)])
        mini = self.enter(MiniClient(self.broker.address))
        self.assertEqual(mini.produce("orders", "id-1", '{"total": "x"}'), f"ERROR:400:{WORDS}")
        self.assertEqual(mini.produce("orders", "id-1", '{"total": 5}'), "id-1")
        identity = self.enter(IdentityClient(self.broker.address)).subscribe("orders")
        identity.say('PUBLISH:orders:{"total": "x"}')
        self.assertEqual(identity.barrier(), [f"ERROR:422:{WORDS}"])

        answer = self.http("/topics/orders", json.dumps(bad).encode())
        self.assertEqual(answer[:12], b"HTTP/1.1 422")
        self.assertIn(WORDS.encode(), answer)
        self.assertEqual(self.http("/topics/orders", json.dumps(good).encode())[:12], b"HTTP/1.1 200")

    def test_reload(self) -> None:
        """A signal reads the file again; one that cannot be used changes nothing."""
        flexi = self.enter(FlexiClient(Stream(self.broker.address))).join()
        for schema, line, statuses in (
            (TEXT, "changed: schema", [422]),
            ({"type": "objct"}, "it is no JSON Schema", [422]),
            (NUMBER, "changed: schema(.|\\n)*changed: schema", []),
        ):
            self.file.write_text(json.dumps(schema))
            os.kill(self.broker.pid, signal.SIGHUP)
            self.broker.waitForOutput(line)
            flexi.publish("orders", {"total": 5})
            self.assertEqual([each.status for each in flexi.barrier()], statuses)


class StartTests(SynchronousTestCase):
    """A file that cannot be used."""

    def ended(self, content: Any) -> tuple[int | None, str]:
        """Return the exit code and the last line of a broker with this schema."""
        broker = BrokerProcess("--schema", "orders=order.json")
        if content is not None:
            (broker.folder / "order.json").write_text(content)
        self.addCleanup(broker.stop)
        broker.start()
        code = broker.wait()
        return code, broker.output.strip().splitlines()[-1]

    def test_oneSentence(self) -> None:
        for content, words in (
            (None, "schema orders=order.json: the schema order.json cannot be read: no such file or directory"),
            ('{"$ref": "http://127.0.0.1:9/"}', "cannot fetch http://127.0.0.1:9/"),
        ):
            code, line = self.ended(content)
            self.assertEqual(code, 1)
            self.assertIn(words, line)
