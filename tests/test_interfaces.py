"""Every class that declares an interface has its methods, with its signatures."""

import importlib
import pkgutil
from collections.abc import Iterator

from twisted.trial.unittest import SynchronousTestCase
from zope.interface import Interface, implementedBy, implementer
from zope.interface.exceptions import Invalid
from zope.interface.verify import verifyClass

import fleximq
from fleximq.dialects.fleximq.session import FlexiSession

#: The rooms that never meet Twisted or its interfaces, and whose modules load Spark and other frameworks.
_WITHOUT_INTERFACES = "fleximq.pipeline", "fleximq.integrations"


def classes() -> Iterator[type]:
    """Yield the classes that fleximq defines."""
    for found in pkgutil.walk_packages(fleximq.__path__, "fleximq.", onerror=_fail):
        if found.name.startswith(_WITHOUT_INTERFACES) or found.name.endswith("__main__"):
            continue
        module = importlib.import_module(found.name)
        for value in vars(module).values():
            if isinstance(value, type) and value.__module__ == found.name:
                yield value


def _fail(name: str) -> None:
    if not name.startswith(_WITHOUT_INTERFACES):  # its packages may need what is not installed
        raise ImportError(name)


#: Slots that hold the methods of another object, since a call in between would cost a delivery half its time.
_SLOTS = ("deliver", "forward", "receiveBroadcast")


def breaches(one: type) -> Iterator[str]:
    """Yield a sentence for each interface that a class of fleximq declares and does not have."""
    foreign = [base for base in one.__mro__ if not base.__module__.startswith(("fleximq.", __name__))]
    for interface in implementedBy(one):
        if interface is Interface or any(interface.implementedBy(base) for base in foreign):
            continue
        try:
            verifyClass(interface, _withMethods(one))
        except Invalid as error:
            yield f"{one.__module__}.{one.__qualname__}: {error}"


def _withMethods(one: type) -> type:
    """Return a class in which the slots that hold methods are properties, which verifyClass passes over."""
    isSession = issubclass(one, FlexiSession)
    return type(one.__name__, (one,), {name: property() for name in _SLOTS}) if isSession else one


class InterfaceTests(SynchronousTestCase):
    """All rooms but the pipeline."""

    def test_everyImplementerHasTheMethodsOfItsInterfaces(self) -> None:
        found = [one for one in classes() if list(implementedBy(one))]
        self.assertEqual([sentence for one in found for sentence in breaches(one)], [])
        self.assertGreater(len(found), 60)

    def test_aMissingMethodIsFound(self) -> None:
        """One that appears on each object while it is made is missing."""

        class IOpened(Interface):
            def read() -> bytes:
                """Read."""

        @implementer(IOpened)
        class Late:
            def __init__(self) -> None:
                self.read = lambda: b""

        self.assertEqual(len(list(breaches(Late))), 1)
