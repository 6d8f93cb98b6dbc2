"""Runs the tests of ``wire``, which name the reference, over the compiled core as well."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import module_from_spec, spec_from_file_location
from types import ModuleType
from typing import Any
from unittest import TestCase
from unittest.mock import patch

from fleximq.compiled import choice
from fleximq.values import message_cost, message_loops
from fleximq.wire import (
    blipmq_frame,
    fleximq_delivery_frame,
    fleximq_layout_b,
    fleximq_scanner,
    minimq_message,
    websocket_frame,
)

#: Whether there is a compiled core to compare with.
COMPILED = choice.IMPLEMENTATION == "compiled"
#: The reason that trial prints without one.
REASON = "the compiled core was not built, or FLEXIMQ_PURE is set"
#: The names of :mod:`fleximq.compiled.choice` in pure Python.
REFERENCE: dict[str, Any] = {
    "BlipScanner": blipmq_frame.BlipScanner,
    "FlexiScanner": fleximq_scanner.FlexiScanner,
    "encodeRun": blipmq_frame.encodeRun,
    "encodeTexts": websocket_frame.encodeTexts,
    "framesOf": fleximq_delivery_frame.framesOf,
    "joinedPayloads": fleximq_scanner.joinedPayloads,
    "deliverKnown": None,
    "fromLayoutB": fleximq_layout_b.fromLayoutB,
    "payloads": fleximq_scanner.payloads,
    "runFrames": fleximq_delivery_frame.runFrames,
    "readProduces": minimq_message.readProduces,
    "readSmallFrames": websocket_frame.readSmallFrames,
    "toLayoutB": fleximq_layout_b.toLayoutB,
}


@contextmanager
def reference() -> Iterator[None]:
    """Use the reference in a block."""
    loops = patch.multiple(message_loops, **message_loops.REFERENCE)
    with patch.multiple(choice, **REFERENCE), patch.object(message_cost, "compiled", None), loops:
        yield


def overCompiled(module: ModuleType) -> dict[str, type[TestCase]]:
    """Return the cases of a second copy of a module of tests, in which the names of the reference are compiled ones."""
    name = module.__name__.rpartition("test_")[2]
    spec = spec_from_file_location(f"tests.compiled.{name}", module.__file__)
    assert spec is not None and spec.loader is not None
    copy = module_from_spec(spec)
    spec.loader.exec_module(copy)
    cases = {
        f"Compiled{name.title().replace('_', '')}{case.__name__}": case
        for case in vars(copy).values()
        if isinstance(case, type) and issubclass(case, TestCase) and case.__module__ == copy.__name__
    }
    for each in REFERENCE.keys() & vars(copy).keys():
        setattr(copy, each, getattr(choice, each))
    for title, case in cases.items():
        case.__module__, case.__name__, case.__qualname__ = __name__, title, title
        if not COMPILED:
            case.skip = REASON  # type: ignore[attr-defined]
    return cases
