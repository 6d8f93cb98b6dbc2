"""Every door, every deed, and everybody: who shows nothing, something wrong, the right thing, or may not do it.

Each deed of tests.conversations.permission_table becomes a test for each of them, and for those from whom the
permission is taken, or to whom it is given, while they are connected.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from fleximq.dialects.session import LINGER
from tests.conversations.doors import ALICE, BOB, CALLERS, NONE, RIGHT, WRONG, Caller, Doors
from tests.conversations.permission_table import DEEDS, GRANTS, Deed


def without(permission: str) -> Mapping[str, Any]:
    """Return all grants but one."""
    return {action: granted for action, granted in GRANTS.items() if action != permission}


class DoorsCase(SynchronousTestCase):
    """Callers of a broker in memory."""

    def doors(self, grants: Mapping[str, Any] = GRANTS, **settings: Any) -> Doors:
        """Return a broker where alice is granted this."""
        folder = Path(self.mktemp())
        folder.mkdir()
        doors = Doors(folder, {ALICE: grants, BOB: GRANTS}, **settings)
        self.addCleanup(doors.stop)
        return doors

    def arrived(self, doors: Doors, door: str, name: str = ALICE) -> Any:
        """Return somebody who has come in."""
        caller = CALLERS[door](doors, RIGHT, name)
        self.assertEqual(caller.comeIn(), caller.wayIn[RIGHT])
        return caller


class MatrixTests(DoorsCase):
    """One test for each; they are made below."""

    def notLetIn(self, door: str, deed: Deed, shows: str) -> None:
        """Who is not let in hears the same whatever it does, and does nothing."""
        doors = self.doors()
        witness = self.witness(doors)
        caller = CALLERS[door](doors, shows)
        self.assertEqual(caller.comeIn(), caller.wayIn[shows])
        heard = deed.does(caller)
        self.assertTrue(all(each.split()[1:2] == ["401"] for each in heard), heard)
        if not caller.mayTryAgain:
            doors.reactor.advance(LINGER)
            self.assertTrue(caller.peer.closed)
        self.assertEqual(witness.request("/broker/topics"), ["REP 200"])
        self.assertNotIn(b"m.a", witness.raw)

    def permitted(self, door: str, deed: Deed) -> None:
        """Who may do it does it."""
        caller = self.arrived(self.doors(), door)
        self.prepare(deed, caller)
        self.assertEqual(list(deed.does(caller)), list(deed.may))

    def notPermitted(self, door: str, deed: Deed) -> None:
        """Who may do all but this is refused in the dialect's words, again and again, and may do the rest."""
        doors = self.doors(without(deed.permission))
        caller, witness = self.arrived(doors, door), self.witness(doors)
        self.prepare(deed, caller)
        for _ in range(2):
            self.assertEqual(list(deed.does(caller)), list(deed.mayNot))
        self.assertEqual(witness.heard(), [])
        for other in DEEDS[door].values():
            if other.permission != deed.permission and other.first is None:
                self.assertEqual(list(other.does(caller)), list(other.may), other)

    def taken(self, door: str, deed: Deed) -> None:
        """Who may do it no more is refused from then on, whatever was remembered of it; and may again."""
        doors = self.doors()
        caller = self.arrived(doors, door)
        self.prepare(deed, caller)
        self.assertEqual(list(deed.does(caller)), list(deed.may))
        doors.change({ALICE: without(deed.permission), BOB: GRANTS})
        self.assertEqual(caller.heard(), list(deed.lost))
        for _ in range(2):
            self.assertEqual(list(deed.does(caller)), list(deed.mayNot))
        doors.change({ALICE: GRANTS, BOB: GRANTS})
        self.prepare(deed, caller)
        self.assertEqual(list(deed.does(caller)), list(deed.may))

    def given(self, door: str, deed: Deed) -> None:
        """Who was refused may do it as soon as that is permitted."""
        doors = self.doors(without(deed.permission))
        caller = self.arrived(doors, door)
        self.prepare(deed, caller)
        self.assertEqual(list(deed.does(caller)), list(deed.mayNot))
        doors.change({ALICE: GRANTS, BOB: GRANTS})
        self.assertEqual(caller.heard(), [])
        self.assertEqual(list(deed.does(caller)), list(deed.may))

    def witness(self, doors: Doors) -> Any:
        """Return somebody who hears all that is published, and all broadcasts."""
        witness = self.arrived(doors, "fleximq", BOB)
        self.assertEqual(witness.send("SUB", {"topic": "m.#"}), [])
        return witness

    def prepare(self, deed: Deed, caller: Caller) -> None:
        """Do what comes before a deed."""
        if deed.first is not None:
            deed.first(caller)


def _testsOf(door: str, deed: Deed) -> Mapping[str, Callable[[MatrixTests], None]]:
    tests: dict[str, Callable[[MatrixTests], None]] = {
        "permitted": lambda case: case.permitted(door, deed),
        "taken": lambda case: case.taken(door, deed),
    }
    if not deed.onlyLost:
        tests |= {
            "showsNothing": lambda case: case.notLetIn(door, deed, NONE),
            "showsSomethingWrong": lambda case: case.notLetIn(door, deed, WRONG),
            "notPermitted": lambda case: case.notPermitted(door, deed),
            "given": lambda case: case.given(door, deed),
        }
    return tests


for _door, _deeds in DEEDS.items():
    for _name, _deed in _deeds.items():
        for _who, _test in _testsOf(_door, _deed).items():
            setattr(MatrixTests, f"test_{_name}_at_{_door}_{_who}", _test)
