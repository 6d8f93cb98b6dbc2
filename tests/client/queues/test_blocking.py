"""The loop in a thread of its own."""

import os

from twisted.trial.unittest import SynchronousTestCase

from fleximq.client.errors import ConnectionLost
from fleximq.client.queues.blocking import LoopThread, inThread, loopThread


class LoopThreadTests(SynchronousTestCase):
    """Waiting for it, from here and there."""

    def test_one(self) -> None:
        """A process has one."""
        self.assertIs(loopThread(), loopThread())
        self.assertTrue(loopThread().isMine)

    def test_run(self) -> None:
        """Results and errors come back, also those of a function in a thread of its own."""
        self.assertEqual(loopThread().call(divmod, 7, 2), (3, 1))
        self.assertRaises(ZeroDivisionError, loopThread().call, divmod, 7, 0)
        self.assertEqual(loopThread().run(inThread(str.upper, "a")), "A")
        self.assertRaises(TypeError, loopThread().run, inThread(str.upper, 1))

    def test_callback(self) -> None:
        """A callback that waits for its own thread is told, and does not hang."""
        error = self.assertRaises(RuntimeError, loopThread().call, lambda: loopThread().call(int))
        self.assertIn("another thread", str(error))

    def test_fork(self) -> None:
        """A child has one of its own, and that of its parent is of no use there."""
        parents = loopThread()
        child = os.fork()
        if not child:
            code = 1
            try:
                parents.call(int)
            except ConnectionLost:
                code = 0 if loopThread() is not parents and loopThread().call(int) == 0 else 2
            finally:
                os._exit(code)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)

    def test_mine(self) -> None:
        """It tells where it was made."""
        other = LoopThread()
        other._pid = -1
        self.assertFalse(other.isMine)
        self.assertRaises(ConnectionLost, other.call, int)
