"""What becomes one table."""

from twisted.trial.unittest import SynchronousTestCase

from tests.pipeline.installed import missing as skip

if not skip:
    from fleximq.errors import SettingError
    from fleximq.pipeline.errors import OptionRefused
    from fleximq.pipeline.lake.table.table_spec import TableSpec, packed, tableOf, topicPatterns, unpacked


class WrittenTests(SynchronousTestCase):
    """How a table is written."""

    def test_textHasNamePatternsAndFormat(self) -> None:
        self.assertEqual(tableOf("table", "s=a.#, b:json"), TableSpec("s", ("a.#", "b"), "json"))
        self.assertEqual(tableOf("table", "s=a.*"), TableSpec("s", ("a.*",)))
        self.assertEqual(tableOf("table", "s=urn:x"), TableSpec("s", ("urn:x",)))

    def test_givenFormatIsToldFromTheDefault(self) -> None:
        for written, said in (("s=a", False), ("s=a:raw", True), ("s=urn:x", False), ("s=a:json", True)):
            self.assertIs(tableOf("table", written).isExplicit, said)
        self.assertIs(tableOf("table", {"name": "s", "decode": "raw"}).isExplicit, True)
        self.assertIs(tableOf("table", {"name": "s"}).isExplicit, False)

    def test_settingsFileMaySayMore(self) -> None:
        written = {"name": "s", "topics": "a", "decode": "json", "schema": "a INT", "identity-metadata": True}
        self.assertEqual(tableOf("table", written), TableSpec("s", ("a",), "json", "a INT", True))

    def test_wrongTablesAreRefused(self) -> None:
        for written, words in (
            ("x", "must be NAME=PATTERN"),
            ("x=", "must be NAME=PATTERN"),
            ("x=a.#:msgpack", "there is no format 'msgpack', only "),
            ("=a", "a table cannot be called ''"),
            ("../x=a", "a table cannot be called '../x'"),
            ({"topics": "a"}, "table has no name"),
            ({"name": "x", "topic": "a"}, "table has 'topic', but there are only name, topics"),
            ({"name": "x", "decode": "xml"}, "has payloads as 'xml'"),
            ({"name": "x", "schema": "a INT"}, "has a schema, which is only for messagepack and json"),
            ({"name": "x", "decode": "json", "schema": "a FOO"}, "FOO"),
            ({"name": "x", "topics": 5}, "table.topics is 5"),
            (5, "table is 5, but must be a text"),
            ("x=a,b-*", "table has 'b-*', but * and # are wildcards as levels of their own only"),
            ({"name": "x", "topics": ["a..b"]}, "table has 'a..b', but it has an empty level"),
        ):
            error = self.assertRaises((OptionRefused, SettingError), tableOf, "table", written)
            self.assertIn(words, str(error))


class SpecTests(SynchronousTestCase):
    """What is made of it."""

    def test_patternsOfAllTablesAreUnited(self) -> None:
        one, two = TableSpec("one", ("a", "b.#")), TableSpec("two", ("a",))
        self.assertEqual(topicPatterns([one, two]), ("a", "b.#"))
        self.assertEqual(topicPatterns([one, TableSpec("all")]), ())
        self.assertIn("b.x", one.wanted)
        self.assertNotIn("b.x", two.wanted)
        self.assertIn("$dead/x", TableSpec("all").wanted)
        self.assertNotIn("$sys/x", TableSpec("all").wanted)

    def test_specTravelsAsText(self) -> None:
        specs = [TableSpec("one", ("a",), "json", "a INT", True, True), TableSpec("two")]
        self.assertEqual(unpacked(packed(specs)), specs)

    def test_someColumnsAreKnownFromTheStart(self) -> None:
        for spec, names in (
            (TableSpec("x"), []),
            (TableSpec("x", decode="text"), ["text"]),
            (TableSpec("x", base64=True), ["body"]),
            (TableSpec("x", decode="json"), []),
            (TableSpec("x", decode="json", schema="b INT, a INT"), ["b", "a"]),
        ):
            self.assertEqual(spec.fields.names, names)
