"""Starts threads that leave the signals for the end of the process to its main thread.

A signal to a process is delivered to any thread that does not block it. While a reactor starts, its own handlers would
take it (:mod:`fleximq.services.process.signals` blocks it meanwhile in the main thread).
"""

import signal
from threading import Thread


def startWithoutSignals(thread: Thread) -> None:
    """Start a thread in which SIGTERM and SIGINT are blocked."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGINT))
    try:
        thread.start()  # it inherits the mask
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
