"""The tests of ``wire`` over the compiled core."""

from tests.compiled.twins import overCompiled
from tests.wire import test_blipmq_frame, test_fleximq_layout_b, test_fleximq_scanner, test_websocket_frame

for module in (test_blipmq_frame, test_fleximq_layout_b, test_fleximq_scanner, test_websocket_frame):
    globals().update(overCompiled(module))
