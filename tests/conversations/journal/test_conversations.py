"""A journal changes nothing in what is said: all dialects' conversations once more, with brokers that have one."""

from types import ModuleType

from tests.conversations import (
    test_across,
    test_bad_input,
    test_blipmq,
    test_fleximq,
    test_half_closed,
    test_identity,
    test_matrix,
    test_minimq,
)
from tests.conversations.case import SHARED, Place, SocketCase, inPlace

#: What BlipMQ and MiniMQ have is kept; besides that, everything is.
KEPT = Place("--journal", "journal")
ALL_KEPT = Place("--journal", "journal", "--durable", "#")
_MODULES = (
    test_across, test_bad_input, test_blipmq, test_fleximq, test_half_closed, test_identity, test_matrix, test_minimq
)  # fmt: skip


def _cases(module: ModuleType) -> list[type[SocketCase]]:
    cases = [each for each in vars(module).values() if isinstance(each, type) and issubclass(each, SocketCase)]
    return [each for each in cases if each.place is SHARED and each.__module__ == module.__name__]


for _module in _MODULES:
    globals().update(inPlace(KEPT, "WithJournal", *_cases(_module)))
    globals().update(inPlace(ALL_KEPT, "AllDurable", *_cases(_module)))
