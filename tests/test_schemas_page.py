"""The examples of docs/guides/schemas.rst do what the page says, against a running broker and without Spark."""

import re

from twisted.trial.unittest import SynchronousTestCase

from tests import readme
from tests.broker_process import BrokerProcess
from tests.conversations.clients import FlexiClient, Stream
from tests.pages import ROOT
from tests.schemas.installed import missing as skip  # noqa: F401

PAGE = (ROOT / "docs" / "guides" / "schemas.rst").read_text()


class ExamplesTests(SynchronousTestCase):
    """The file and the command."""

    def test_refused(self) -> None:
        """The broker of the page refuses a text as a total in the words of the page."""
        command = re.search(r"twistd -n fleximq (--schema) '([^']+)'", PAGE)
        assert command is not None
        broker = BrokerProcess(*command.groups())
        (broker.folder / "order.json").write_text(readme.saved(PAGE, "order.json"))
        with broker, FlexiClient(Stream(broker.address)) as client:
            client.join()
            client.publish("orders.eu", {"id": 1, "total": "x"})
            [told] = client.barrier()
            self.assertEqual((told.status, told.value), (422, readme.saved(PAGE, "refused").strip()))
            client.publish("orders.eu", {"id": 1, "total": 21.5, "at": "2026-01-31T12:00:00Z"})
            client.publish("others", {"total": "x"})
            self.assertEqual(client.barrier(), [])
