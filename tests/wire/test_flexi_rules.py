"""The table of required, optional and forbidden fields, against a copy of the document's."""

from twisted.trial.unittest import SynchronousTestCase

from fleximq.wire.fleximq_header import RULES, MessageType
from tests.wire.flexi_frames import FIELDS, NAMES

#: FlexiMQ document 2.2.3: type, required, optional. What is in neither is forbidden.
TABLE = """
JOIN  -               auth
REQ   routing,reqrep  status
REP   routing,reqrep  status
NOTIF routing         status
BCAST -               status
PUB   topic           routing,status
SUB   topic           -
UNSUB topic           -
PING  keepalive       -
PONG  keepalive       -
"""


def documented() -> dict[str, tuple[frozenset[str], frozenset[str]]]:
    """Return for each type the fields that it requires and those that it forbids.

    ``reqrep`` of a JOIN is the one place where docs/reference/dialects.rst differs from the table: it is optional.
    """
    found = {}
    for line in TABLE.strip().splitlines():
        kind, required, optional = line.split()
        needed = frozenset(required.split(",")) - {"-"}
        allowed = frozenset(optional.split(",")) - {"-"} | ({"reqrep"} if kind == "JOIN" else frozenset())
        found[kind] = (needed, frozenset(FIELDS) - needed - allowed)
    return found


class TableTests(SynchronousTestCase):
    """Sections 2.2.3 and 3.1."""

    def test_eachTypeHasValueOfSection31(self) -> None:
        """Each type has the value of section 3.1."""
        self.assertEqual([kind.name for kind in sorted(MessageType)], list(NAMES))
        self.assertEqual(sorted(MessageType), list(range(10)))

    def test_fields(self) -> None:
        """Each type requires and forbids what the table says, and every type has its line."""
        self.assertEqual(
            {MessageType(kind).name: (frozenset(rule[0]), frozenset(rule[1])) for kind, rule in RULES.items()},
            documented(),
        )
