"""Threads that block the signals for the end of the process."""

import signal
from queue import SimpleQueue
from threading import Thread

from twisted.trial.unittest import SynchronousTestCase

from fleximq.values.background_thread import startWithoutSignals

STOP = {signal.SIGTERM, signal.SIGINT}


class StartTests(SynchronousTestCase):
    """startWithoutSignals()."""

    def test_theThreadBlocksWhatTheCallerDoesNot(self) -> None:
        """The mask of the caller stays as it was."""
        before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        masks: SimpleQueue[set[int]] = SimpleQueue()
        startWithoutSignals(Thread(target=lambda: masks.put(set(signal.pthread_sigmask(signal.SIG_BLOCK, ())))))
        self.assertEqual(masks.get() & STOP, STOP)
        self.assertEqual(signal.pthread_sigmask(signal.SIG_BLOCK, ()), before)
