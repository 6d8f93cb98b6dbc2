"""What checking a document can cost is known before; a fault is named where that cannot take long."""

import json
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.schemas.hostile import BRANCHES, PATTERN, REPEATED, VALUES
from tests.schemas.installed import missing as skip

if not skip:
    from fleximq.schemas.json_schema import MAX_WORK, JsonSchemaCodec, depthOf
    from fleximq.schemas.json_schema_cost import SchemaCost, patternWork
    from fleximq.schemas.misfit import Misfit

LEFT_AND_RIGHT = {"properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}}, "anyOf": [{"required": ["left"]}]}


class PatternTests(SynchronousTestCase):
    """The states of a pattern."""

    def test_work(self) -> None:
        for pattern, work in (
            ("", 0),
            ("abc", 3),
            ("^a|b$", 2),
            ("[a-z]{5}", 5),
            ("[]{5}]{2,7}", 7),
            (r"[\]{9}]{2,}", 2),
            ("(ab){10}", 30),
            ("((a{10}){10}b){10}", 1120),
            (r"\d{3}\p{Lu}{2}\{9\}", 8),
            ("a{0}b{,9}", 6),
            (")(", 1),
            ("[", 1),
            ("\\", 1),
        ):
            self.assertEqual(patternWork(pattern), work, pattern)


class CostTests(SynchronousTestCase):
    """The cost of a schema."""

    def test_work(self) -> None:
        """That at one value, the largest."""
        for schema, work in (
            (True, 1),
            ({"properties": {each: {"pattern": "a{9}"} for each in "abc"}}, 9),
            ({"patternProperties": {"a{9}": {}, "b": {}}}, 12),
            ({"enum": list(range(100))}, 1),
            ({"items": {"enum": [1, {"a": [1, 2]}]}}, 5),
            ({"allOf": [{"pattern": "a{9}"}, {"pattern": "a{9}"}]}, 18),
        ):
            self.assertEqual(SchemaCost(schema).work, work, schema)

    def test_checks(self) -> None:
        """Names of properties do not multiply them, alternatives do; without these the first error is the last."""
        for schema, depth, checks in (
            ({"properties": {"a": {"type": "number"}}}, 60, 1),
            ({"allOf": [{"properties": {"a": {"$ref": "#"}}}] * 2}, 60, 1),
            (LEFT_AND_RIGHT, 10, 32),
            (LEFT_AND_RIGHT, 20, 62),
            ({"anyOf": [{"type": "number"}, {"type": "string"}]}, 60, 3),
            ({"anyOf": [{"$ref": "#"}]}, 5, 3),
            ({"anyOf": [{"$ref": "https://example/x"}]}, 5, 1024),
            ({"anyOf": [{"$ref": "#/x"}]}, 5, 1024),
            ({"anyOf": [{"$ref": "#x"}], "$defs": {"a": {"$anchor": "x", "$id": "y"}}}, 5, 1024),
            ({"anyOf": [{"$ref": "#x"}], "$defs": {"a": {"$anchor": "x", "not": {}}}}, 5, 4),
            ({"anyOf": [{"$ref": "#/$defs/a~1b/0"}], "$defs": {"a/b": [{}]}}, 5, 3),
        ):
            self.assertEqual(SchemaCost(schema).checks(depth), checks, schema)
        self.assertGreater(SchemaCost(BRANCHES).checks(30), 2**30)
        self.assertGreater(SchemaCost(REPEATED).checks(30), 2**30)


class FaultTests(SynchronousTestCase):
    """The words for a document."""

    def fault(self, schema: Any, document: bytes) -> str | None:
        try:
            JsonSchemaCodec(json.dumps(schema)).read(document)
        except Misfit as misfit:
            return str(misfit)
        return None

    def test_alternatives(self) -> None:
        """The field is named if that does not take long."""
        total = {"properties": {"total": {"anyOf": [{"type": "number"}, {"type": "null"}]}}}
        words = "is not valid under any of the schemas listed in the 'anyOf' keyword"
        self.assertEqual(self.fault(total, b'{"total": "x"}'), f"'total' {words}")
        self.assertEqual(self.fault(BRANCHES, b'{"a": "x"}'), f"the payload {words}")
        for document in (b'{"a":' * 60 + b'"x"' + b"}" * 60, b"[" + b",".join([b"3"] * 100_000) + b"]"):
            self.assertEqual(
                self.fault(BRANCHES, document),
                "the payload does not fit its JSON Schema, and is too large to say where",
            )

    def test_withoutAlternativesEachFieldIsNamed(self) -> None:
        document = b'{"total": "x", "note": "%s"}' % (b"a" * 1_000_000)
        self.assertEqual(
            self.fault({"properties": {"total": {"type": "number"}}}, document), "'total' must be a number"
        )

    def test_largeDocuments(self) -> None:
        for schema in (PATTERN, VALUES):
            most = MAX_WORK // SchemaCost(schema).work
            self.assertIsNone(self.fault(schema, b"[" + b" " * (most - 2) + b"]"))
            self.assertIn(f"has more than {most:,} bytes", str(self.fault(schema, b"[" + b" " * (most - 1) + b"]")))

    def test_deepDocuments(self) -> None:
        """What is evaluated again and again is bounded by the depth."""
        self.assertIn("nested too deeply", str(self.fault(REPEATED, b'{"a":' * 60 + b"{}" + b"}" * 60)))
        self.assertIsNone(self.fault(REPEATED, b'{"b":{}}'))

    def test_depth(self) -> None:
        for value, depth in ((5, 0), ({}, 0), ([[]], 1), ({"a": [1, {"b": 2}]}, 3), ([[[[[1]]]]], 4)):
            self.assertEqual(depthOf(value, 3), depth)
