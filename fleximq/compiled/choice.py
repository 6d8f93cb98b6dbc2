"""Chooses the compiled core where all of it was built, unless the environment variable ``FLEXIMQ_PURE`` is 1.

Users say ``choice.NAME`` at each call, so that tests can replace a name.
"""

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from importlib import import_module
from typing import Any

from fleximq.values import message_cost, message_loops
from fleximq.values.message import Message
from fleximq.values.records import Blobs
from fleximq.wire import (
    blipmq_frame,
    fleximq_delivery_frame,
    fleximq_layout_b,
    fleximq_scanner,
    minimq_message,
    websocket_frame,
)


def _compiled() -> Any:
    """Return the compiled modules; Nones if they were not built or must not be used."""
    names = ("fleximq_frames", "queue_deliveries", "queue_frames", "websocket_frames")
    if os.environ.get("FLEXIMQ_PURE") == "1":
        return [None for _ in names]
    try:
        return [import_module(f"fleximq.compiled.{name}") for name in names]
    except ImportError:
        return [None for _ in names]


_fleximq, _deliveries, _queues, _websocket = _compiled()

#: The implementation in use, in words for operators.
IMPLEMENTATION = "pure Python" if _fleximq is None else "compiled"

FlexiScanner: type[fleximq_scanner.FlexiScanner] = (_fleximq or fleximq_scanner).FlexiScanner
joinedPayloads: Callable[[bytes | memoryview, int], list[bytes] | Blobs]
joinedPayloads = (_fleximq or fleximq_scanner).joinedPayloads
payloads: Callable[[bytes, int], list[bytes]] = (_deliveries or fleximq_scanner).payloads
framesOf: Callable[[bytes, Any, Sequence[Any]], bytes | None] = (_deliveries or fleximq_delivery_frame).framesOf
runFrames: Callable[[bytes, range, list[bytes]], bytes] = (_deliveries or fleximq_delivery_frame).runFrames
message_cost.compiled = None if _deliveries is None else _deliveries.measure
if _deliveries is not None:
    message_loops.use(_deliveries)
fromLayoutB: Callable[[bytes, int], bytes] = (_fleximq or fleximq_layout_b).fromLayoutB
toLayoutB: Callable[[bytes], bytes] = (_fleximq or fleximq_layout_b).toLayoutB

#: Delivers known publications of a read at once and returns the spans of all other frames; None in pure Python. Its
#: arguments: scanner, input, known envelopes, the form of the frames, the traffic to count in, and ``alone``.
deliverKnown: Callable[[Any, bytes, dict[bytes, Any], object, Any, object], Iterator[fleximq_scanner.Span]] | None
deliverKnown = None if _fleximq is None else _fleximq.deliverKnown

BlipScanner: type[blipmq_frame.BlipScanner] = (_queues or blipmq_frame).BlipScanner
encodeRun: Callable[[bytes, Sequence[int], Sequence[bytes]], bytes] = (_queues or blipmq_frame).encodeRun

readProduces: Callable[[list[bytes], int, bytes], list[Message]] = (_queues or minimq_message).readProduces

readSmallFrames: Callable[[bytes, int, Collection[int], int, bool, Callable[[bytes], object]], int]
readSmallFrames = (_websocket or websocket_frame).readSmallFrames
encodeTexts: Callable[[bytes, Sequence[bytes]], bytes] = (_websocket or websocket_frame).encodeTexts
