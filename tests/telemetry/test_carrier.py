"""The trace context in FlexiMQ frames."""

from typing import Any

import msgpack
from twisted.trial.unittest import SynchronousTestCase

from fleximq.dialects.fleximq.forms import FlexiSource
from fleximq.telemetry.service import contextIn
from fleximq.wire.fleximq_frame import encodeFrame
from fleximq.wire.fleximq_header import MessageType, checkHeader, peek
from fleximq.wire.fleximq_scanner import FIXED_BYTES

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def found(payload: bytes = b"\x01", **fields: Any) -> dict[str, str]:
    """Return what is found in a PUB with these header keys."""
    header = msgpack.packb({"topic": "a", **fields})
    frame = encodeFrame(MessageType.PUB, 1000, header, payload)
    source = FlexiSource(FIXED_BYTES + len(header), checkHeader(MessageType.PUB, peek(header)))
    return dict(contextIn(source, frame))


class CarrierTests(SynchronousTestCase):
    """What is taken, and what is not."""

    def test_both(self) -> None:
        """Both keys are taken, nothing else."""
        self.assertEqual(
            found(traceparent=PARENT, tracestate="x=1", other=2), {"traceparent": PARENT, "tracestate": "x=1"}
        )

    def test_none(self) -> None:
        """A header without them has no context, not even if the word stands in the payload."""
        self.assertEqual(found(), {})
        self.assertEqual(found(msgpack.packb("traceparent")), {})

    def test_noText(self) -> None:
        """A value that is no text is none."""
        self.assertEqual(found(traceparent=5), {})
