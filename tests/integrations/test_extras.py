"""Without its framework, a module of the integrations says what to install."""

import subprocess
import sys

from twisted.trial.unittest import SynchronousTestCase

from tests.pages import ROOT

#: A module, the framework that it imports, and the extra.
MODULES = (
    ("channels", "channels", "channels"),
    ("dramatiq", "dramatiq", "dramatiq"),
    ("kombu", "kombu", "celery"),
    ("socketio", "socketio", "socketio"),
    ("taskiq", "taskiq", "taskiq"),
)


class ExtrasTests(SynchronousTestCase):
    """Where the frameworks cannot be imported."""

    def test_oneSentenceSaysWhatToInstall(self) -> None:
        """The module, and the name of the extra."""
        for module, framework, extra in MODULES:
            program = f"import sys; sys.modules[{framework!r}] = None; import fleximq.integrations.{module}"
            ended = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
            *_, last = ended.stderr.splitlines()
            self.assertRegex(last, rf'^ImportError: .+ needs? {framework}: pip install "fleximq\[{extra}\]"$')
