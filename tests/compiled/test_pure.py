"""The broker in pure Python, where all other tests run over the compiled core."""

import os
import subprocess
import sys
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.compiled.twins import COMPILED, REASON
from tests.nightly import NIGHTLY

ROOT = Path(__file__).parents[2]
#: The modules that run the code which chooses between the two; the long form runs all tests of the dialects.
CHOOSING = [
    f"tests.dialects.{name}"
    for name in (
        "fleximq.test_session", "fleximq.test_runs", "fleximq.test_variants", "blipmq.test_session",
        "blipmq.test_messages", "minimq.test_protocol.RunTests", "identity.test_form",
        "websocket.test_session_protocol",
    )
]  # fmt: skip

#: The models of queues, which otherwise run over the compiled core.
MODELS = ["tests.broker.consumers.test_named_queue_model", "tests.broker.queues.test_settling_model"]


class PureTests(SynchronousTestCase):
    """``FLEXIMQ_PURE=1`` in another process."""

    if not COMPILED:
        skip = REASON

    def test_dialects(self) -> None:
        """The tests of the dialects pass."""
        self.passes(["tests.dialects"] if NIGHTLY else CHOOSING)

    def test_queues(self) -> None:
        """Queues are like their models."""
        self.passes(MODELS)

    def passes(self, tests: list[str]) -> None:
        """Check that these tests pass."""
        command = [sys.executable, "-m", "tests.run", "--temp-directory", os.path.abspath(self.mktemp()), *tests]
        variables = {**os.environ, "FLEXIMQ_PURE": "1"}
        ended = subprocess.run(
            command, cwd=ROOT, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=900
        )
        self.assertEqual(ended.returncode, 0, ended.stdout[-8000:])
