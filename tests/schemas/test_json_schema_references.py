"""A reference of a JSON Schema is followed to the schema by which the library checks it."""

import json
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.schemas.installed import missing as skip

if not skip:
    from fleximq.schemas.json_schema import JsonSchemaCodec
    from fleximq.schemas.json_schema_references import References
    from fleximq.schemas.misfit import Misfit

SEVEN, FOUR, NINETEEN = (
    "http://json-schema.org/draft-07/schema#",
    "http://json-schema.org/draft-04/schema#",
    "https://json-schema.org/draft/2019-09/schema",
)
#: Schemas whose property ``a`` must be one that has the title "found": an integer of 7 or more.
FOUND = {"title": "found", "type": "integer", "minimum": 7}
OTHER = {"type": "string"}


def referring(reference: Any, **more: Any) -> dict[str, Any]:
    """Return a schema with a property that has a reference."""
    return {"properties": {"a": {"$ref": reference}}, **more}


FOLLOWED = [
    referring("#found", **{"$defs": {"x": OTHER, "y": {"$anchor": "found", **FOUND}}}),
    referring("#/$defs/a%20b~1c", **{"$defs": {"a b/c": FOUND}}),
    referring("#/$defs/x/allOf/1", **{"$defs": {"x": {"allOf": [OTHER, FOUND]}}}),
    referring("y", **{"$id": "http://x/z", "$defs": {"x": OTHER, "y": {"$id": "y", **FOUND}}}),
    referring("http://x/y", **{"$id": "http://x/z", "$defs": {"y": {"$id": "y", **FOUND}}}),
    referring("urn:a:b", **{"$id": "urn:c:d", "$defs": {"y": {"$id": "urn:a:b", **FOUND}}}),
    referring("urn:a:b#f", **{"$id": "urn:c:d", "$defs": {"y": {"$id": "urn:a:b", "not": {"$anchor": "f", **FOUND}}}}),
    # A pointer and an anchor are those of the schema with the nearest id.
    {
        "$id": "http://x/z",
        "$defs": {"n": OTHER, "m": {"$anchor": "m", **OTHER}},
        "properties": {
            "a": {"$id": "in", "$ref": "#/$defs/n", "$defs": {"n": {"$ref": "#m"}, "m": {"$anchor": "m", **FOUND}}}
        },
    },
    # The names in values, and names of properties, are no names of schemas.
    {
        **referring("#m", **{"$defs": {"z": {"$anchor": "m", **FOUND}}}),
        "enum": [{"$anchor": "m"}, {"a": 7}],
        "const": {"a": 7},
        "default": {"$id": "b", "$anchor": "m"},
    },
    referring("#/properties/const", **{"$defs": {}})
    | {"properties": {"const": FOUND, "a": {"$ref": "#m"}}}
    | {"dependentSchemas": {"b": {"properties": {"const": {"$anchor": "m", **FOUND}}}}},
    # Older drafts.
    referring("#m", **{"$schema": SEVEN, "definitions": {"x": OTHER, "y": {"$id": "#m", **FOUND}}}),
    referring("http://x/d#m", **{"$schema": SEVEN, "$id": "http://x/d", "definitions": {"y": {"$id": "#m", **FOUND}}}),
    referring("y", **{"$schema": FOUR, "id": "http://x/z", "definitions": {"y": {"id": "y", **FOUND}}}),
    referring("#m", **{"$schema": FOUR, "definitions": {"y": {"id": "#m", **FOUND}}}),
    {
        "$schema": SEVEN,
        "$id": "http://x/z",
        "definitions": {"f": FOUND},
        "properties": {"a": {"$id": "http://x/y", "$ref": "#/definitions/f"}},
    },
    # Dynamic references.
    {"properties": {"a": {"$dynamicRef": "#m"}}, "$defs": {"y": {"$dynamicAnchor": "m", **FOUND}}},
    {"properties": {"a": {"$dynamicRef": "#m"}}, "$defs": {"y": {"$anchor": "m", **FOUND}}},
    {"properties": {"a": {"$dynamicRef": "#/$defs/y"}}, "$defs": {"y": FOUND}},
]


def _titleAt(schema: dict[str, Any]) -> Any:
    """Return the title of the property's schema, with all references followed."""
    references, found = References(schema), schema["properties"]["a"]
    for _ in range(3):
        found = found if found is None or "title" in found else references.targetOf(found)
    return None if found is None else found["title"]


class ReferencesTests(SynchronousTestCase):
    """Each kind of reference."""

    def test_asTheLibraryDoes(self) -> None:
        for schema in FOLLOWED:
            codec = JsonSchemaCodec(json.dumps(schema))
            self.assertEqual(codec.read(b'{"a": 7}'), {"a": 7}, schema)
            for document in (b'{"a": 6}', b'{"a": "x"}'):
                self.assertRaises(Misfit, codec.read, document)
            self.assertEqual(_titleAt(schema), "found", schema)

    def test_ofTheRoot(self) -> None:
        """A schema that extends a recursive one is the target of its dynamic references."""
        tree: dict[str, Any] = {"$id": "tree", "$dynamicAnchor": "n", "properties": {"child": {"$dynamicRef": "#n"}}}
        strict: dict[str, Any] = {
            "$id": "http://x/strict",
            "$dynamicAnchor": "n",
            "$ref": "tree",
            "$defs": {"tree": tree},
        }
        child = tree["properties"]["child"]
        self.assertIs(References(strict).targetOf(child), strict)
        old: dict[str, Any] = {"$id": "tree", "$recursiveAnchor": True, "properties": {"child": {"$recursiveRef": "#"}}}
        child = old["properties"]["child"]
        self.assertIs(References(old).targetOf(child), old)
        strict = {"$schema": NINETEEN, "$id": "http://x/s", "$ref": "tree", "$defs": {"tree": old}}
        self.assertIs(References(strict).targetOf(child), old)
        strict["$recursiveAnchor"] = True
        self.assertIs(References(strict).targetOf(child), strict)

    def test_unknown(self) -> None:
        """A target outside, or that depends on the way to the reference, is none."""
        two = {each: {"$id": each, "$dynamicAnchor": "m"} for each in "bc"}
        dynamic: dict[str, Any] = {"$id": "d", "properties": {"a": {"$dynamicRef": "#m"}}, "$dynamicAnchor": "m"}
        for schema in (
            referring("#m"),
            referring("#/a/0"),
            referring("#/properties/a/$ref/x"),
            referring("https://json-schema.org/draft/2020-12/schema"),
            referring("#m", const={"$anchor": "m"}),
        ):
            self.assertIsNone(References(schema).targetOf(schema["properties"]["a"]), schema)
        child = dynamic["properties"]["a"]
        self.assertIsNone(References({"$defs": {"d": dynamic, **two}}).targetOf(child))

    def test_others(self) -> None:
        """Other schemas have names that are relative to that of the first one, and names of their own."""
        other: dict[str, Any] = {
            "$id": "http://y/own",
            "$defs": {"f": {"$anchor": "m", **FOUND}},
            "properties": {"a": {"$ref": "#m"}},
        }
        for reference in ("other.json#/$defs/f", "http://x/other.json#/$defs/f", "http://y/own#m"):
            schema = {"$id": "http://x/first", **referring(reference)}
            references = References(schema, {"other.json": other})
            self.assertEqual(references.targetOf(schema["properties"]["a"])["title"], "found", reference)
            self.assertEqual(references.targetOf(other["properties"]["a"])["title"], "found")
