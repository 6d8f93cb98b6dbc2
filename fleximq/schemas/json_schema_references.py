"""The schemas to which the references of a JSON Schema point, by URIs, pointers and anchors.

The targets are in the schema itself or in others that the caller passes; none is fetched. A ``$dynamicRef`` and a
``$recursiveRef`` are followed if they have the same target in each validation.
"""

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote, urljoin

#: Keywords with values in place of schemas, and keywords whose value has schemas by free names.
_VALUES = ("const", "default", "enum", "examples")
_NAMED = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies")
#: Drafts in which a reference hides the keywords beside it, and the one with ``id`` in place of ``$id``.
_OLD, _OLDEST = ("draft-04", "draft-06", "draft-07"), "draft-04"


class References:
    """The names in a schema, and in ``others`` by the URIs that it has for them."""

    def __init__(self, root: Any, others: Mapping[str, Any] | None = None) -> None:
        self._root = root
        #: Whether the schema is of a draft in which a reference hides the keywords beside it.
        self.isOld = bool(_draftOf(root))
        self._schemas: dict[str, Any] = {"": root}
        self._bases: dict[int, str] = {}
        self._dynamic: dict[str, dict[str, Any]] = {}
        self._walk(root, "", False, _draftOf(root))
        for uri, schema in placed(root, others or {}):
            self._schemas.setdefault(uri, schema)
            self._walk(schema, uri, False, _draftOf(schema))

    def targetOf(self, schema: Mapping[str, Any]) -> Any:
        """Return the schema to which the reference of a schema points; None if it is unknown, or depends on the way to
        the reference.
        """
        base = self._bases.get(id(schema), "")
        if isinstance(reference := schema.get("$ref"), str):
            return self._at(base, reference)
        if isinstance(reference := schema.get("$dynamicRef"), str):
            found, name = self._at(base, reference), reference.partition("#")[2]
            isDynamic = isinstance(found, Mapping) and found.get("$dynamicAnchor") == name
            return self._outermost(name) if isDynamic else found
        found = self._at(base, "#")
        isDynamic = isinstance(found, Mapping) and found.get("$recursiveAnchor") is True
        return self._outermost("") if isDynamic else found

    def _outermost(self, name: str) -> Any:
        """Return the schema that has this dynamic anchor in the root, else the only one that has it, else None."""
        found = self._dynamic.get(name, {})
        return found.get(self._bases.get(id(self._root), "")) or (
            next(iter(found.values())) if len(found) == 1 else None
        )

    def _at(self, base: str, reference: str) -> Any:
        uri, _, fragment = _joined(base, reference).partition("#")
        fragment = unquote(fragment)
        if fragment and fragment[0] != "/":
            return self._schemas.get(f"{uri}#{fragment}")
        found = self._schemas.get(uri)
        for step in fragment.split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            if isinstance(found, list):
                found = found[int(name)] if name.isdecimal() and int(name) < len(found) else None
            else:
                found = found.get(name) if isinstance(found, Mapping) else None
        return found

    def _walk(self, value: Any, base: str, isNames: bool, draft: str) -> None:
        if isinstance(value, list):
            for each in value:
                self._walk(each, base, False, draft)
        elif isinstance(value, Mapping):
            if not isNames and not ("$ref" in value and draft):
                base = self._named(value, base, "id" if draft == _OLDEST else "$id")
            self._bases[id(value)] = base
            for key, inner in value.items():
                if isNames or key not in _VALUES:
                    self._walk(inner, base, not isNames and key in _NAMED, draft)

    def _named(self, schema: Mapping[str, Any], base: str, key: str) -> str:
        """Add the names of a schema; return the URI to which the references in it are relative."""
        if isinstance(name := schema.get(key), str):
            uri, _, anchor = _joined(base, name).partition("#")
            if anchor:
                self._schemas.setdefault(f"{uri}#{anchor}", schema)
            else:
                self._schemas[uri], base = schema, uri
        for key in ("$anchor", "$dynamicAnchor"):
            if isinstance(name := schema.get(key), str):
                self._schemas.setdefault(f"{base}#{name}", schema)
        if isinstance(name := schema.get("$dynamicAnchor"), str):
            self._dynamic.setdefault(name, {})[base] = schema
        if schema.get("$recursiveAnchor") is True:
            self._dynamic.setdefault("", {})[base] = schema
        return base


def placed(root: Any, others: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield other schemas by the URIs that references to them have: relative to that of a schema, or as they are."""
    own = root.get("id" if _draftOf(root) == _OLDEST else "$id") if isinstance(root, Mapping) else None
    for name, schema in others.items():
        yield name, schema
        if isinstance(own, str) and (uri := _joined(own, name)) != name:
            yield uri, schema


def refers(schema: Mapping[str, Any]) -> bool:
    """Tell whether a schema has a reference."""
    return any(isinstance(schema.get(key), str) for key in ("$ref", "$dynamicRef", "$recursiveRef"))


def _draftOf(schema: Any) -> str:
    """Return the name of an old draft, an empty text for others."""
    named = str(schema.get("$schema")) if isinstance(schema, Mapping) else ""
    return next((each for each in _OLD if each in named), "")


def _joined(base: str, reference: str) -> str:
    # urljoin() does not support the scheme urn.
    return base + reference if reference.startswith("#") else urljoin(base, reference)
