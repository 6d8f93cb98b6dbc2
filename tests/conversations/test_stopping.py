"""How a broker ends. How it does not begin is shown in tests.test_tap."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from twisted.trial.unittest import SynchronousTestCase

from tests.broker_process import BrokerProcess
from tests.conversations.clients import (
    BlipClient,
    Ended,
    FlexiClient,
    IdentityClient,
    MiniClient,
    Stream,
    WebSocketStream,
)


class StoppingTests(SynchronousTestCase):
    """Signals to a broker with connections of all dialects; what is told to whom, and how it ends."""

    def stop(self, number: int) -> None:
        """Send a signal and check what everybody sees."""
        listens = ("--listen", "tcp:0:interface=127.0.0.1", "--listen", "unix:broker.sock")
        with BrokerProcess(*listens, fresh=True) as broker:
            address = broker.address
            with (
                FlexiClient(Stream(address)) as flexi,
                FlexiClient(WebSocketStream(address)) as web,
                BlipClient(str(broker.folder / "broker.sock")) as blip,
                MiniClient(address) as mini,
                IdentityClient(address) as identity,
                Stream(address) as silent,
                Stream(address) as browser,
            ):
                flexi.join()
                web.join()
                blip.login()
                mini.produce("t", "i", "x")
                browser.say(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
                browser.read()
                self.assertTrue(broker.stop(number))
                self.assertEqual(broker.wait(), 0)
                for client in (flexi, web):
                    (told,) = client.untilEnd()
                    self.assertEqual((told.kind, told.sender, told.status), ("NOTIF", 1, 503))
                    self.assertEqual(told.header["routing"], [{"client_id": client.id, "path": "/broker/draining"}])
                self.assertEqual(web.carrier.code, 1012)
                self.assertRegex(identity.hear(), "^ERROR:503:")
                self.assertEqual(self.assertRaises(Ended, identity.hear).args, (1012,))
                for each in (blip, mini):
                    self.assertRaises(Ended, each.hear)
                self.assertEqual(silent.readAll(), b"")
        self.assertIn("left: broker stopped", broker.output)
        self.assertNotIn("Traceback", broker.output)

    def test_sigtermEndsAllConnectionsInOrder(self) -> None:
        """SIGTERM: all connections end in order, WebSockets by a close frame; the exit code is 0."""
        self.stop(signal.SIGTERM)

    def test_sigintEndsAllConnectionsInOrder(self) -> None:
        """SIGINT: the same."""
        self.stop(signal.SIGINT)

    def test_secondSignalEndsProcessAtOnceWhoeverIsStillThere(self) -> None:
        """A second signal ends the process at once, whoever is still there."""
        with BrokerProcess(fresh=True) as broker, FlexiClient(Stream(broker.address)) as flexi:
            flexi.join()
            os.kill(broker.pid, signal.SIGTERM)
            self.assertEqual(flexi.hear().status, 503)
            os.kill(broker.pid, signal.SIGINT)
            self.assertEqual(broker.wait(), -signal.SIGINT)  # and not 0, as behind an end in good order

    def test_goesOn(self) -> None:
        """A client that was told still gets what it publishes confirmed, and nobody new comes in."""
        with BrokerProcess(fresh=True) as broker, FlexiClient(Stream(broker.address)) as flexi:
            flexi.join()
            os.kill(broker.pid, signal.SIGTERM)
            self.assertEqual(flexi.hear().status, 503)
            self.assertRaises(ConnectionRefusedError, Stream, broker.address)
            self.assertEqual(flexi.publish("t", 1).barrier(), [])
            self.assertEqual((flexi.untilEnd(), broker.wait()), ([], 0))

    def daemon(self, folder: Path, *launch: str) -> int:
        """Start a daemon that serves ``folder / "s"``, send it SIGTERM as soon as it says it runs; how it ended.

        :param launch: the words that start ``twistd``, where it is not to be started by itself.
        """
        broker = BrokerProcess("--listen", f"unix:{folder}/s")
        self.addCleanup(broker.stop)  # which was not started, but has a folder
        words = broker.command
        words[words.index("-n") : words.index("fleximq")] = [f"--pidfile={folder}/pid", f"--logfile={folder}/log"]
        words[1:1] = launch
        # the launcher adopts the daemon, so that it can tell how that ended
        script = (
            "import ctypes, os, subprocess, sys; ctypes.CDLL(None).prctl(36, 1);"
            "subprocess.run(sys.argv[2:], check=True); pid = int(open(sys.argv[1]).read());"
            "os.kill(pid, 15); sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))"
        )
        command = [sys.executable, "-c", script, f"{folder}/pid", *words]
        return subprocess.run(command, timeout=300, env=broker.variables).returncode

    def test_daemonEndsWith0AsWellAndTakesItsPidFileAndSocketAlong(self) -> None:
        """A daemon ends with 0 as well, and takes its pid file and socket along."""
        with TemporaryDirectory() as folder:
            self.assertEqual(self.daemon(Path(folder)), 0)
            self.assertEqual(os.listdir(folder), ["log"])
            self.assertIn("Received SIGTERM: the broker stops", (Path(folder) / "log").read_text())

    def test_daemonAtOnce(self) -> None:
        """The same where the signal comes before the reactor runs, which takes half a second here."""
        late = (
            "import runpy, sys, time; from twisted.internet import reactor; run = reactor.run\n"
            "def late(*arguments, **more): time.sleep(0.5); run(*arguments, **more)\n"
            "reactor.run = late; del sys.argv[0]; runpy.run_path(sys.argv[0], run_name='__main__')"
        )
        with TemporaryDirectory() as folder:
            self.assertEqual(self.daemon(Path(folder), "-c", late), 0)
            self.assertEqual(os.listdir(folder), ["log"])

    def test_socketFile(self) -> None:
        """The file of a UNIX socket goes with its broker."""
        with TemporaryDirectory() as folder:
            path = Path(folder) / "s"
            with BrokerProcess("--listen", f"unix:{path}"), MiniClient(str(path)) as mini:
                self.assertEqual(mini.barrier(), [])  # now it minds signals
            self.assertEqual(list(Path(folder).iterdir()), [])
