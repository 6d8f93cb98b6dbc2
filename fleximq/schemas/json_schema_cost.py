"""Bounds the cost of checking a document by a JSON Schema.

Whether a document fits is decided in time proportional to its bytes and to the largest *work* at one value: the states
of a pattern are compared with each byte of a text, the members of an ``enum`` with each value. To say why a document
does not fit costs more: the library builds the errors of all alternatives (``anyOf``, ``oneOf``), with those of the
alternatives inside, so the number of errors is a power of the depth. :meth:`SchemaCost.checks` bounds it. So is that of
checks with ``unevaluatedProperties``, which the library does not remember.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from math import log10
from typing import Any

#: Schemas with a check of the same value; of a value inside, one of each name; of a value inside, all.
_SAME = ("allOf", "anyOf", "oneOf", "if", "then", "else", "not", "dependentSchemas", "dependencies")
_ONE = ("properties", "prefixItems")
_ALL = (
    *("patternProperties", "additionalProperties", "unevaluatedProperties", "propertyNames"),
    *("items", "additionalItems", "unevaluatedItems", "contains"),
)
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_UNEVALUATED = ("unevaluatedProperties", "unevaluatedItems")
#: More than any bound of a caller, the maximum number of schemas that are counted, and the factor of a level otherwise.
_MANY, _MAX_STEPS, _FACTOR = 1 << 40, 50_000, 4
#: The work of a division by a fraction, besides that for its digits.
_FRACTION = 25
#: So many checks take as long as a comparison with each byte of a value, about 20 ns.
_CHECKS = 4
_COUNT = re.compile(r"\{(\d+)(?:,(\d*))?\}")


class _Uncountable(Exception):
    """The schema has a reference that cannot be followed here, or is too large to count."""


class SchemaCost:
    """The cost of one schema, which the library has accepted, with ``others`` that it refers to."""

    def __init__(self, schema: Any, others: Iterable[Any] = ()) -> None:
        self._root = schema
        schemas = list(_mappings(schema))
        own = len(schemas)
        schemas += [inner for each in others for inner in _mappings(each)]
        self._hasAlternatives = any(key in each for each in schemas for key in ("anyOf", "oneOf", "contains"))
        #: Whether deciding that a document fits can take as many checks as building its errors.
        self.isRepeated = any(key in each for each in schemas for key in _UNEVALUATED)
        #: Whether names of references could mean something else than in the whole file.
        self._isBundle = len(schemas) > own or any(
            isinstance(each.get("$id", each.get("id")), str) for each in schemas[1:]
        )
        self._anchors: dict[str, list[Any]] = {}
        for each in schemas:
            for name in {each[key] for key in ("$anchor", "$dynamicAnchor") if isinstance(each.get(key), str)}:
                self._anchors.setdefault(name, []).append(each)
        self._checks: dict[int, int] = {}
        #: The work at one value for each of its bytes: at least 1, that of a comparison. Checks take less.
        try:
            self.work = max(1, self._decisions(schema, {}, set()) // _CHECKS)
        except (_Uncountable, RecursionError):
            self.work = max(map(self._workAt, schemas), default=1)

    def checks(self, depth: int) -> int:
        """Return how many checks building the errors of a value of a document can take, if the document is nested so
        deep; 1 if it ends with the first error, and an estimate if they cannot be counted.
        """
        if not self._hasAlternatives and not self.isRepeated and not self._isBundle:
            return 1
        if depth not in self._checks:
            try:
                self._checks[depth] = _Count(self).at(self._root, depth)
            except (_Uncountable, RecursionError):
                self._checks[depth] = _FACTOR**depth
        return self._checks[depth]

    def targets(self, schema: Mapping[str, Any]) -> Iterator[Any]:
        """Yield the schemas to which the references of a schema may point."""
        for key in _REFERENCES:
            reference = schema.get(key)
            if isinstance(reference, str):
                if self._isBundle or not reference.startswith("#"):
                    raise _Uncountable
                name = reference[1:]
                found = [self._pointed(name)] if not name or name[0] == "/" else self._anchors.get(name)
                if not found:
                    raise _Uncountable
                yield from found

    def _pointed(self, pointer: str) -> Any:
        found = self._root
        for step in pointer.split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            try:
                found = found[int(name)] if isinstance(found, list) else found[name]
            except (LookupError, ValueError, TypeError):
                raise _Uncountable from None
        return found

    def _decisions(self, schema: Any, known: dict[int, int], around: set[int]) -> int:
        """Return how many checks decide whether a value fits a schema, with those of the values inside; a comparison
        counts as :data:`_CHECKS`. The library remembers its decision by schemas that refer to themselves, which are
        ``around`` this one.
        """
        if not isinstance(schema, Mapping) or id(schema) in around:
            return 1
        if id(schema) not in known:
            if len(known) >= _MAX_STEPS:
                raise _Uncountable
            around.add(id(schema))
            inner = [each for name in (*_SAME, *_ALL) for each in _schemasIn(schema, name)]
            count = 1 + _CHECKS * (_ownWork(schema) - 1)
            count += sum(self._decisions(each, known, around) for each in (*inner, *self.targets(schema)))
            one = (self._decisions(each, known, around) for name in _ONE for each in _schemasIn(schema, name))
            known[id(schema)] = min(_MANY, count + max(one, default=0))
            around.remove(id(schema))
        return known[id(schema)]

    def _workAt(self, schema: Mapping[str, Any]) -> int:
        """Return the work at one value that a schema checks, without references."""
        work = _ownWork(schema)
        for key in _SAME:
            if isinstance(each := schema.get(key), Mapping | list):
                work += len(each)
        return work + sum(self._workAt(each) for key in _SAME for each in _schemasIn(schema, key))


def _ownWork(schema: Mapping[str, Any]) -> int:
    """Return the work of the comparisons of a schema itself."""
    work = 1 + sum(map(_sizeOf, (schema.get("enum"), [schema.get("const")])))
    if isinstance(schema.get("pattern"), str):
        work += patternWork(schema["pattern"])
    for key in ("patternProperties", "dependentRequired"):
        if isinstance(each := schema.get(key), Mapping | list):
            work += len(each)
    if isinstance(patterns := schema.get("patternProperties"), Mapping):
        work += sum(map(patternWork, patterns))
    if isinstance(step := schema.get("multipleOf"), float):
        work += _FRACTION + int(1.5 * abs(log10(step or 1)))
    return work


class _Count:
    """One count of checks: ``at`` a schema, for values nested so deep."""

    def __init__(self, cost: SchemaCost) -> None:
        self._cost = cost
        self._known: dict[tuple[int, int], int] = {}

    def at(self, schema: Any, depth: int) -> int:
        if not isinstance(schema, Mapping):
            return 1
        key = id(schema), depth
        if key not in self._known:
            if len(self._known) >= _MAX_STEPS:
                raise _Uncountable
            # A schema that refers to itself for the same value is checked once.
            self._known[key] = 1
            self._known[key] = min(_MANY, self._sum(schema, depth))
        return self._known[key]

    def _sum(self, schema: Mapping[str, Any], depth: int) -> int:
        same = sum(self.at(each, depth) for name in _SAME for each in _schemasIn(schema, name))
        same += sum(self.at(each, depth) for each in self._cost.targets(schema))
        if any(key in schema for key in _UNEVALUATED):
            # The evaluated properties are found by evaluating them again.
            same *= 2
        if not depth:
            return 1 + same
        one = max((self.at(each, depth - 1) for name in _ONE for each in _schemasIn(schema, name)), default=0)
        return 1 + same + one + sum(self.at(each, depth - 1) for name in _ALL for each in _schemasIn(schema, name))


def patternWork(pattern: str) -> int:
    """Return about how many states a pattern has: counted repetitions multiply those of their content."""
    groups, last, place = [0], 0, 0
    while place < len(pattern):
        sign = pattern[place]
        counted = _COUNT.match(pattern, place)
        if counted is not None:
            times = max(int(counted[1]), int(counted[2] or 1), 1)
            groups[-1] += last * (times - 1)
            place, last = counted.end(), last * times
            continue
        end = place + 1
        if sign == "(":
            groups.append(0)
        elif sign == ")" and len(groups) > 1:
            last = groups.pop() + 1
            groups[-1] += last
        elif sign not in "*+?|^$":
            end = _atomEnd(pattern, place)
            last = 1
            groups[-1] += 1
        place = end
    return sum(groups)


def _atomEnd(pattern: str, place: int) -> int:
    """Return the place after a character, an escape or a class."""
    if pattern[place] == "\\":
        named = re.compile(r"\\[pPuxk][{<][^}>]*[}>]").match(pattern, place)
        return named.end() if named is not None else place + 2
    if pattern[place] == "[":
        ended = re.compile(r"\[\^?\]?(?:\\.|[^\\\]])*\]", re.DOTALL).match(pattern, place)
        return ended.end() if ended is not None else place + 1
    return place + 1


def _schemasIn(schema: Mapping[str, Any], key: str) -> Iterator[Any]:
    """Yield the schemas at a keyword: one, or those of an array or of a map by names."""
    found = schema.get(key)
    if isinstance(found, list):
        yield from (each for each in found if isinstance(each, Mapping))
    elif isinstance(found, Mapping):
        named = key in ("properties", "patternProperties", "dependentSchemas", "dependencies")
        yield from (each for each in found.values() if isinstance(each, Mapping)) if named else (found,)


def _mappings(value: Any) -> Iterator[Mapping[str, Any]]:
    """Yield all maps in a value, the outermost first."""
    if isinstance(value, Mapping):
        yield value
    for inner in value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ():
        yield from _mappings(inner)


def _sizeOf(values: Any) -> int:
    """Return the number of values in an ``enum`` with maps or arrays; one of single values is looked up."""
    if not isinstance(values, list) or not any(isinstance(each, Mapping | list) for each in values):
        return 0
    left, count = list(values), 0
    while left:
        each = left.pop()
        count += 1
        left += each.values() if isinstance(each, Mapping) else each if isinstance(each, list) else ()
    return count
