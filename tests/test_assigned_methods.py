"""No code assigns a method to an object that it did not make: another behaviour is another class, chosen where objects
are made. A method here is a name that a class of ours defines with ``def``, and that no class of ours has as data.
"""

import ast
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

import fleximq

#: Objects of Twisted, which makes them itself, where it offers no other way: a port that accepts fewer connections,
#: wrappers and transports that report the end of input, and a connection that changes its protocol.
_OF_OTHERS = {
    ("dialects/connection/handover.py", "dataReceived connectionLost readConnectionLost writeConnectionLost"),
    ("services/network/listeners.py", "doRead"),
    ("services/network/node_listener.py", "getPeer loseConnection readConnectionLost writeConnectionLost"),
    ("services/network/proxy_protocol.py", "dataReceived readConnectionLost writeConnectionLost"),
}


def statementsOf(source: str) -> list[ast.AST]:
    """Return all statements of a source; their expressions are many more, and assign nothing."""
    found: list[ast.AST] = []
    waiting: list[ast.AST] = [ast.parse(source)]
    while waiting:
        node = waiting.pop()
        found.append(node)
        for part in ("body", "orelse", "finalbody", "handlers", "cases"):
            waiting += getattr(node, part, ())
    return found


def targetsOf(node: ast.AST) -> Iterator[ast.Attribute]:
    """Yield the attributes that a statement assigns."""
    targets = node.targets if isinstance(node, ast.Assign) else ()
    if isinstance(node, ast.AnnAssign | ast.AugAssign):
        targets = [node.target]
    for target in targets:
        for each in target.elts if isinstance(target, ast.Tuple) else [target]:
            if isinstance(each, ast.Attribute):
                yield each


def methodsOf(nodes: Iterable[ast.AST]) -> set[str]:
    """Return the names that are methods in a class, and data in none."""
    methods: set[str] = set()
    data: set[str] = set()
    for node in nodes:
        data |= {each.attr for each in targetsOf(node) if _own(each.value)}
        for part in node.body if isinstance(node, ast.ClassDef) else ():
            if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef):
                isProperty = any("property" in ast.unparse(each) for each in part.decorator_list)
                (data if isProperty else methods).add(part.name)
            elif isinstance(part, ast.AnnAssign):
                data.add(ast.unparse(part.target))
            elif isinstance(part, ast.Assign):
                data.update(each.id for each in part.targets if isinstance(each, ast.Name))
    return methods - data


def _own(value: ast.expr) -> bool:
    return isinstance(value, ast.Name) and value.id in ("self", "cls")


def assignedMethods(nodes: Sequence[ast.AST], methods: set[str]) -> Iterator[tuple[int, str]]:
    """Yield line and attribute of each method that is assigned to an object made elsewhere."""
    made = {
        ast.unparse(node.targets[0])
        for node in nodes
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
        if isinstance(node.value.func, ast.Name | ast.Attribute)
        if getattr(node.value.func, "attr", getattr(node.value.func, "id", "")).lstrip("_")[:1].isupper()
    }
    made |= {node.name for node in nodes if isinstance(node, ast.ClassDef)}
    for node in nodes:
        for each in targetsOf(node):
            if each.attr in methods and not _own(each.value) and ast.unparse(each.value) not in made:
                yield each.lineno, each.attr
        call = node.value if isinstance(node, ast.Expr) else None
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "setattr":
            changed, name, _ = call.args
            isData = isinstance(name, ast.Constant) and name.value not in methods
            if not isData and ast.unparse(changed) not in made:
                yield call.lineno, ast.unparse(name)


class AssignedMethodTests(SynchronousTestCase):
    """The sources, and small ones for the rule itself."""

    def test_noMethodIsAssignedToAnObjectMadeElsewhere(self) -> None:
        """This holds for objects of our classes, and those of others are named here."""
        folder = Path(fleximq.__file__).parent
        sources = {str(path.relative_to(folder)): statementsOf(path.read_text()) for path in folder.rglob("*.py")}
        methods = methodsOf(chain.from_iterable(sources.values()))
        permitted = {(name, each) for name, words in _OF_OTHERS for each in words.split()}
        found = {
            (name, each): line for name, nodes in sources.items() for line, each in assignedMethods(nodes, methods)
        }
        self.assertEqual({place: line for place, line in found.items() if place not in permitted}, {})
        self.assertEqual(permitted - found.keys(), set())

    def test_anAssignedMethodIsFound(self) -> None:
        """It is found however it is assigned, but not on an object that the same module makes."""
        owner = "class Broker:\n    topics: int\n    def publish(self): pass\n"
        for source, found in (
            ("broker.publish = print", 1),
            ("x.broker.publish, y = print, 1", 1),
            ("setattr(broker, name, print)", 1),
            ("setattr(broker, 'publish', print)", 1),
            ("setattr(parser, 'prefix', 1)", 0),
            ("broker.topics = 1", 0),
            ("broker = Broker()\nbroker.publish = print", 0),
        ):
            nodes, methods = statementsOf(source), methodsOf(statementsOf(owner))
            self.assertEqual(len([*assignedMethods(nodes, methods)]), found, source)
