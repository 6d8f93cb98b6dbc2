"""The examples' own tests, which stand in their packages."""

from typing import Any

from twisted.trial.runner import TestLoader

from tests.plugins.examples import EXAMPLES, makeKnown


def testSuite() -> Any:
    """Return the tests of all examples; trial asks for them by this name."""
    makeKnown()
    return TestLoader().loadByNames(list(EXAMPLES.values()), recurse=True)
