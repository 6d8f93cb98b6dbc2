"""Chooses between the short tests of ``tox`` and the long campaigns of ``tox -e nightly``.

The environment variable ``FLEXIMQ_NIGHTLY`` selects the long form. A campaign that only the long form runs is marked
with :func:`nightly`; one that both run takes its length from :func:`repetitions`.
"""

import os
from typing import TypeVar

#: Whether the long campaigns run.
NIGHTLY = bool(os.environ.get("FLEXIMQ_NIGHTLY"))
#: The reason that trial prints for a skipped campaign.
REASON = "a long campaign: tox -e nightly"

T = TypeVar("T")


def nightly(test: T) -> T:
    """Decorate a test method or a class of tests: without ``FLEXIMQ_NIGHTLY`` it is skipped."""
    if not NIGHTLY:
        test.skip = REASON  # type: ignore[attr-defined]
    return test


def repetitions(short: int, long: int) -> int:
    """Return how many repetitions a campaign makes: ``long`` under ``FLEXIMQ_NIGHTLY``, else ``short``."""
    return long if NIGHTLY else short
