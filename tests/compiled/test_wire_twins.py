"""The tests of ``wire`` over the compiled core."""

from tests.compiled.twins import overCompiled
from tests.wire import (
    test_blipmq_frame,
    test_fleximq_delivery_frame,
    test_fleximq_layout_b,
    test_fleximq_scanner,
    test_minimq_message,
    test_websocket_frame,
)

for module in (
    test_blipmq_frame, test_fleximq_delivery_frame, test_fleximq_layout_b, test_fleximq_scanner, test_minimq_message,
    test_websocket_frame,
):  # fmt: skip
    globals().update(overCompiled(module))
