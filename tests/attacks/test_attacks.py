"""Floods, trickles and bombs, one for each limit."""

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from fleximq.dialects.connection.connection_rate import PAUSED
from fleximq.services.network.connection_limit import TOO_MANY_NEW, TOO_MANY_THERE, TOO_MANY_WAIT
from tests.attacks.case import AttackCase
from tests.certificates import makeCertificate
from tests.nightly import nightly

_LOOPBACK = "tcp:0:interface=127.0.0.1"
_ONLY_HERE = ("--listen", _LOOPBACK, "--allow-anonymous")
#: Small enough that a second reaches them.
_LIMITS = (
    "--max-topics", "2000", "--max-queues", "500", "--max-subscriptions", "2000", "--queue-messages", "10000",
    "--queue-bytes", "1MiB", "--outbox-bytes", "4MiB", "--max-message", "1MiB", "--max-line", "1MiB",
    "--max-text", "1MiB", "--handshake-timeout", "1", "--max-waiting", "200",
)  # fmt: skip


@nightly
class ConnectionTests(AttackCase):
    """At the door: connections from another machine, which a proxy tells of."""

    options = (
        *_ONLY_HERE, "--listen", f"haproxy:{_LOOPBACK}", "--max-clients-per-address", "100", *_LIMITS,
    )  # fmt: skip

    def test_oneAddressHasNoMoreConnectionsThanItMay(self) -> None:
        """One address has no more connections than it may."""
        self.attack("crowd")
        self.assertGreater(self.counted(TOO_MANY_THERE), 0)

    def test_silence(self) -> None:
        """Those who say nothing at all are no more than may wait, and are closed in time."""
        self.attack("silence")
        self.assertGreater(self.counted(TOO_MANY_WAIT), 0)


@nightly
class RateTests(AttackCase):
    """How often an address may come."""

    options = (
        *_ONLY_HERE, "--listen", f"haproxy:{_LOOPBACK}", "--max-connect-rate", "20,100", "--max-join-rate", "5,20",
        *_LIMITS,
    )  # fmt: skip

    def test_connectionsAboveRateAreClosedAtOnce(self) -> None:
        """Connections above the rate are closed at once."""
        self.attack("connects")
        self.assertGreater(self.counted(TOO_MANY_NEW), 0)

    def test_attemptsToJoinAboveRateAreRefused(self) -> None:
        """So are attempts to join."""
        self.attack("joins")

    def test_bombsAndPagesAboveRateAreRefused(self) -> None:
        """So are the connections of those who send compressed bombs, or ask for one page after the other."""
        for name in ("bombs:proxied", "requests:proxied"):
            refused = self.counted(TOO_MANY_NEW)
            self.attack(name)
            self.assertGreater(self.counted(TOO_MANY_NEW), refused)


@nightly
class SenderTests(AttackCase):
    """What one client may send."""

    options = (
        *_ONLY_HERE, *_LIMITS, "--max-message-rate", "500,1000", "--max-byte-rate", "1MiB,2MiB",
        "--max-subscribe-rate", "200,400",
    )  # fmt: skip
    port = 0

    def test_floodOfSubscriptions(self) -> None:
        """A flood of subscriptions."""
        self.attack("subscriptions")
        self.assertGreater(self.counted(PAUSED), 0)

    def test_floodOfTopics(self) -> None:
        """A flood of topics."""
        self.attack("topics")
        self.assertGreater(self.counted(PAUSED), 0)

    def test_floodOfSmallMessages(self) -> None:
        """A flood of small messages."""
        self.attack("publishes")
        self.assertGreater(self.counted(PAUSED), 0)

    def test_floodOfLargeOnes(self) -> None:
        """A flood of large ones."""
        self.attack("bytes")
        self.assertGreater(self.counted(PAUSED), 0)

    def test_floodOfQueues(self) -> None:
        """A flood of queues."""
        self.attack("queues")


@nightly
class BoundTests(AttackCase):
    """Memory without any rates: what is bounded is bounded however fast it comes."""

    options: ClassVar[tuple[str, ...]] = (*_ONLY_HERE, *_LIMITS)
    port = 0

    def grows(self, name: str) -> None:
        """See that memory keeps within its budget; a single client may take what the processor has."""
        self.patch(__import__("tests.attacks.case", fromlist=["x"]), "SLACK", 1.0)
        self.attack(name)

    def test_topicsSubscriptionsMessagesAndQueues(self) -> None:
        """Topics, subscriptions, messages and queues."""
        for name in ("topics", "subscriptions", "publishes", "bytes", "queues"):
            self.grows(name)

    def test_queuesOfFlexiMQ(self) -> None:
        """Settlements, held deliveries, large prefetches, long headers, definitions, priorities."""
        for name in ("settles", "extensions", "prefetch", "headers", "definitions", "priorities"):
            self.grows(name)

    def test_requestsOfHttpThatStay(self) -> None:
        """Waiting takes, and readers of events that do not read."""
        for name in ("takes", "streams"):
            self.grows(name)

    def test_schedules(self) -> None:
        """Messages for later, and recurring ones."""
        for name in ("schedules", "repeats"):
            self.grows(name)


@nightly
class BoundOnDiskTests(BoundTests):
    """The same with a journal, in which queues and schedules are."""

    options = (
        *BoundTests.options, "--journal", "journal", "--durable", "d.#", "--journal-segment", "1MiB",
        "--journal-max-bytes", "64MiB",
    )  # fmt: skip


@nightly
class SlowTests(AttackCase):
    """Connections that never come to the point, in every dialect, and bombs."""

    options = (*_ONLY_HERE, *_LIMITS)
    port = 0

    def test_byteAtTimeInAllDialectsAtSameTime(self) -> None:
        """A byte at a time, in all dialects at the same time."""
        self.attack(*(f"trickle:{each}" for each in ("fleximq", "blipmq", "minimq")))
        self.attack(*(f"trickle:{each}" for each in ("identity", "fleximq-ws", "http")))

    def test_compressedMessagesThatInflateToMoreThanIsAllowed(self) -> None:
        """Compressed messages that inflate to more than is allowed."""
        self.attack("bombs")

    def test_floodOfRequestsForPages(self) -> None:
        """A flood of requests for pages."""
        self.attack("requests")


@nightly
class SecureTests(AttackCase):
    """Behind TLS."""

    options = (*_ONLY_HERE, *_LIMITS)

    def more(self) -> Sequence[str]:
        """Make a certificate."""
        folder = Path(tempfile.mkdtemp(prefix="attack-"))
        self.addCleanup(shutil.rmtree, folder)
        made = makeCertificate(folder)
        return (
            "--listen", "tls://127.0.0.1:0", "--tls-certificate", str(made.certificate), "--tls-key", str(made.key),
        )  # fmt: skip

    def test_halfOpen(self) -> None:
        """Handshakes that never end are closed in time, and are no more than may wait."""
        self.attack("trickle:tls", "silence")
        self.assertGreater(self.counted(TOO_MANY_WAIT), 0)
