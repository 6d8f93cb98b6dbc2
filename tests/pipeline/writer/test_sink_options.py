"""The sink's options and columns."""

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from fleximq.limits import MEBIBYTE
from fleximq.pipeline.errors import OptionRefused
from fleximq.pipeline.writer.sink_options import SinkOptions, checkColumns
from tests.pipeline.installed import missing as skip

if not skip:
    from pyspark.sql.datasource import CaseInsensitiveDict

URL = "tcp://localhost:7890"


class SinkOptionsTests(SynchronousTestCase):
    """Reading options."""

    def refuses(self, words: str, **options: str) -> None:
        """Check that options are refused."""
        with self.assertRaisesRegex(OptionRefused, words):
            SinkOptions.of({"url": URL, **options})

    def test_least(self) -> None:
        """A URL is enough."""
        found = SinkOptions.of({"url": URL})
        self.assertEqual((found.place.url, found.topic, found.exactlyOnce, found.packed), (URL, None, False, False))
        self.assertEqual((found.portion, found.query, found.batch), (MEBIBYTE, "", 0))

    def test_all(self) -> None:
        """Each is read, whatever its case where Spark gives it."""
        written: Any = CaseInsensitiveDict(
            URL=URL, TOPIC="t", requireexactlyonce="TRUE", VALUEFORMAT="MessagePack", portionbytes="2048",
            txnappid="q", txnversion="7",
        )  # fmt: skip
        found = SinkOptions.of(written)
        self.assertEqual(
            (found.topic, found.exactlyOnce, found.packed, found.portion, found.query, found.batch),
            ("t", True, True, 2048, "q", 7),
        )

    def test_severalBrokers(self) -> None:
        """Rows go to one broker, or to the nodes of one cluster."""
        self.assertEqual(SinkOptions.of({"url": f"{URL},b:1"}).place.addresses, 2)
        with self.assertRaisesRegex(OptionRefused, "several brokers"):
            SinkOptions.of({"url": f"{URL},{URL}"})

    def test_topic(self) -> None:
        """A topic has 1 to 1024 bytes."""
        self.assertEqual(SinkOptions.of({"url": URL, "topic": "x" * 1024}).topic, "x" * 1024)
        self.refuses("'topic'", topic="x" * 1025)
        self.refuses("'topic'", topic="")

    def test_choices(self) -> None:
        """What has no meaning is refused, and what has one is named."""
        self.refuses("'requireExactlyOnce' is 'yes', but must be true or false", requireExactlyOnce="yes")
        self.refuses("'valueFormat' is 'json', but must be bytes or messagepack or original", valueFormat="json")

    def test_original(self) -> None:
        """Original values are binary, and something has to say what they are."""
        self.assertTrue(SinkOptions.of({"url": URL, "valueFormat": "Original"}).original)
        types = {"topic": "string", "value": "binary"}
        for column, type in (("content", "integer"), ("dialect", "string")):
            checkColumns(types | {column: type}, None, original=True)
        for wrong in (types, types | {"content": "string"}, types | {"dialect": "string", "value": "string"}):
            self.assertRaises(OptionRefused, checkColumns, wrong, None, original=True)

    def test_portion(self) -> None:
        """At its limits, and beyond them."""
        for good in ("1024", str(8 * MEBIBYTE)):
            self.assertEqual(SinkOptions.of({"url": URL, "portionBytes": good}).portion, int(good))
        for bad in ("1023", str(8 * MEBIBYTE + 1), "x", "-1", "1.5", ""):
            self.refuses("'portionBytes'", portionBytes=bad)

    def test_transaction(self) -> None:
        """Name and version come together, and fit what the broker takes."""
        self.refuses("belong together", txnAppId="q")
        self.refuses("belong together", txnVersion="1")
        self.refuses("at most 256 bytes", txnAppId="q" * 257, txnVersion="1")
        self.assertEqual(SinkOptions.of({"url": URL, "txnAppId": "q" * 256, "txnVersion": "0"}).query, "q" * 256)
        most = (1 << 63) - 1
        self.assertEqual(SinkOptions.of({"url": URL, "txnAppId": "q", "txnVersion": str(most)}).batch, most)
        self.refuses("'txnVersion'", txnAppId="q", txnVersion=str(1 << 63))


class ColumnsTests(SynchronousTestCase):
    """Checking columns."""

    def refuses(self, words: str, types: dict[str, str], topic: str | None = None, packed: bool = False) -> None:
        """Check that columns are refused."""
        with self.assertRaisesRegex(OptionRefused, words):
            checkColumns(types, topic, packed)

    def test_good(self) -> None:
        """A value of any type, and a topic from somewhere."""
        for type in ("binary", "string", "struct", "map", "array", "long", "void"):
            checkColumns({"value": type}, "t")
        checkColumns({"topic": "string", "value": "binary", "key": "binary", "headers": "map", "offset": "long"}, None)
        checkColumns({"topic": "varchar", "value": "binary"}, None, packed=True)

    def test_missing(self) -> None:
        """Without a value or a topic there is nothing to publish."""
        self.refuses("a column 'value' is needed to publish rows, but there are only topic, vlaue",
                     {"topic": "string", "vlaue": "string"})  # fmt: skip
        self.refuses("rows need a column 'topic'", {"value": "string"})

    def test_types(self) -> None:
        """Each column is of a type that it can be."""
        self.refuses("'topic' is of type long, but must be a string", {"topic": "long", "value": "string"})
        self.refuses("'key' is of type long", {"key": "long", "value": "string"}, "t")
        self.refuses("'headers' is of type struct", {"headers": "struct", "value": "string"}, "t")
        self.refuses("'value' is of type string, but must be binary where", {"value": "string"}, "t", packed=True)
