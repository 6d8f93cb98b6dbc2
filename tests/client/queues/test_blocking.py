"""The loop in a thread of its own."""

import os

from twisted.trial.unittest import SynchronousTestCase

from fleximq.client.errors import ConnectionLost
from fleximq.client.queues.blocking import LoopThread, inThread, loopThread


class LoopThreadTests(SynchronousTestCase):
    """Waiting for it, from here and there."""

    def test_processHasOneLoop(self) -> None:
        """In a thread."""
        self.assertIs(loopThread(), loopThread())
        self.assertTrue(loopThread().isMine)

    def test_resultsAndErrorsAreReturned(self) -> None:
        """Also of a function in its own thread."""
        self.assertEqual(loopThread().call(divmod, 7, 2), (3, 1))
        self.assertRaises(ZeroDivisionError, loopThread().call, divmod, 7, 0)
        self.assertEqual(loopThread().run(inThread(str.upper, "a")), "A")
        self.assertRaises(TypeError, loopThread().run, inThread(str.upper, 1))

    def test_callbackMustNotWait(self) -> None:
        """For its own thread; the error says so."""
        error = self.assertRaises(RuntimeError, loopThread().call, lambda: loopThread().call(int))
        self.assertIn("another thread", str(error))

    def test_childHasALoopOfItsOwn(self) -> None:
        """That of its parent is closed there."""
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

    def test_loopKnowsItsProcess(self) -> None:
        """By its number."""
        other = LoopThread()
        other._pid = -1
        self.assertFalse(other.isMine)
        self.assertRaises(ConnectionLost, other.call, int)
