"""The broker under systemd: what the service manager is told, and that the units in docs/systemd do what they say."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable
from pathlib import Path

from twisted.trial.unittest import SkipTest, SynchronousTestCase

from tests.broker_process import BrokerProcess
from tests.certificates import Made, makeCertificate
from tests.conversations.all_dialects import converse
from tests.conversations.clients import PATIENCE, BlipClient, FlexiClient, IdentityClient, MiniClient, Stream
from tests.notify_socket import FakeManager

UNITS = Path(__file__).parents[2] / "docs" / "systemd"
OPERATING = UNITS.parent / "guides" / "operating.rst"
HANGING = str(Path(__file__).with_name("hanging_broker.py"))
JOURNAL = ("--journal", "journal", "--durable", "#")
#: What systemd-socket-activate lets through to the broker.
PASSED = ("PATH", "PYTHONPATH", "PYTHONUNBUFFERED", "NOTIFY_SOCKET")
#: Microseconds that the watchdog waits in tests.
USUAL = "500000"


class SystemdCase(SynchronousTestCase):
    """A test with a service manager."""

    def setUp(self) -> None:
        """Have it listen."""
        self.manager = FakeManager()
        self.addCleanup(self.manager.close)

    def starting(self, *arguments: str, watchdog: str = "") -> BrokerProcess:
        """Return a broker, begun but not waited for, that hangs where its folder says so."""
        variables = {"NOTIFY_SOCKET": self.manager.name, **({"WATCHDOG_USEC": watchdog} if watchdog else {})}
        broker = BrokerProcess(*arguments, environment=variables, launcher=(sys.executable, HANGING))
        self.addCleanup(broker.stop)
        return broker

    def hang(self, broker: BrokerProcess, what: str) -> Path:
        """Let it hang there until the file that is returned is removed."""
        path = broker.folder / f"hang-{what}"
        path.touch()
        return path


class ReadinessTests(SystemdCase):
    """READY and STOPPING."""

    def test_readyIsToldOnceWithStatus(self) -> None:
        """Ready is told once, with a status; and the end, before anything is closed."""
        broker = self.starting()
        broker.start()
        self.manager.waitFor("READY=1")
        self.assertEqual(self.manager.look(), ["READY=1", "STATUS=serving on 1 listener"])
        broker.waitFor(lambda: broker.listeners, "the port in its log")
        with MiniClient(broker.address) as mini:
            mini.barrier()
        broker.stop()
        self.assertEqual(self.manager.look()[2:], ["STOPPING=1", "STATUS=ending connections"])

    def test_brokerIsNotReadyWhileJournalIsRecovered(self) -> None:
        """Not while the journal is recovered, though connections wait already."""
        broker = self.starting(*JOURNAL)
        hung = self.hang(broker, "start")
        broker.start()
        broker.waitForOutput("hanging: hang-start")
        self.assertEqual(self.manager.look(), [])
        hung.unlink()
        self.manager.waitFor("READY=1")
        broker.waitForOutput("(?s)The journal is ready.*Listening on")

    def test_neverReady(self) -> None:
        """A broker that cannot listen is not ready, nor stopping: it has failed."""
        with socket.create_server(("127.0.0.1", 0)) as other:
            broker = self.starting("--listen", f"tcp:{other.getsockname()[1]}:interface=127.0.0.1")
            broker.start()
            self.assertEqual(broker.wait(), 1)
        self.assertEqual(self.manager.look(), [])

    def test_socketThatIsInNoFolderIsToldAsWell(self) -> None:
        """A socket that is in no folder is told as well."""
        with FakeManager(abstract=True) as manager:
            with BrokerProcess(environment={"NOTIFY_SOCKET": manager.name}):
                manager.waitFor("READY=1")


class WatchdogTests(SystemdCase):
    """WATCHDOG, every 250 ms at least, while there is nothing to complain of."""

    def fed(self) -> int:
        """Return how often it was fed so far."""
        return self.manager.look().count("WATCHDOG=1")

    def assertStarves(self) -> None:
        """See that it is not fed for two seconds, eight times as long as it should take."""
        before = self.fed()
        end = time.monotonic() + 2
        while (left := end - time.monotonic()) > 0:
            self.manager.look(left)
        self.assertEqual(self.fed(), before)

    def running(self, *arguments: str) -> BrokerProcess:
        """Return a broker that has fed its watchdog twice."""
        broker = self.starting(*arguments, watchdog=USUAL)
        broker.start()
        self.manager.waitFor("WATCHDOG=1", 2)
        return broker

    def test_watchdogIsFedWithAndWithoutJournal(self) -> None:
        """With and without a journal."""
        for arguments in ((), JOURNAL):
            self.running(*arguments).stop()
            self.manager.told.clear()

    def test_writerHangs(self) -> None:
        """Not while the journal's writer hangs on the disk, though the reactor turns; again when it goes on."""
        broker = self.running(*JOURNAL)
        hung = self.hang(broker, "writer")
        with MiniClient(broker.address) as mini:
            mini.line("PRODUCE:id-1:::t:::kept::::::")
            broker.waitForOutput("hanging: hang-writer")
            broker.waitForOutput("The thread that writes the journal has not answered .*: the watchdog is not fed")
            self.assertStarves()
            with FlexiClient(Stream(broker.address)) as flexi:
                flexi.join()
            fed = self.fed()
            hung.unlink()
            self.assertEqual(mini.hear(), "id-1")
        self.manager.waitFor("WATCHDOG=1", fed + 2)

    def test_reactorHangs(self) -> None:
        """Not while the reactor hangs, though the writer would answer; again when it turns."""
        broker = self.running(*JOURNAL)
        hung = self.hang(broker, "reactor")
        os.kill(broker.pid, signal.SIGUSR2)
        broker.waitForOutput("hanging: hang-reactor")
        self.assertStarves()
        fed = self.fed()
        hung.unlink()
        self.manager.waitFor("WATCHDOG=1", fed + 2)

    def test_notOurs(self) -> None:
        """A watchdog that waits for another process is not fed."""
        variables = {"NOTIFY_SOCKET": self.manager.name, "WATCHDOG_USEC": USUAL, "WATCHDOG_PID": "1"}
        with BrokerProcess(environment=variables):
            self.manager.waitFor("READY=1")
            self.assertStarves()
        self.assertEqual(self.fed(), 0)


def unit(name: str) -> dict[str, list[str]]:
    """Return what a unit says: all values of each key, lines that go on joined."""
    said: dict[str, list[str]] = {}
    for line in (UNITS / name).read_text().replace("\\\n", " ").splitlines():
        key, separator, value = line.partition("=")
        if separator and not line.startswith("#"):
            said.setdefault(key, []).append(value)
    return said


class Activated(BrokerProcess):
    """A broker that systemd-socket-activate starts, with the sockets of fleximq.socket as paths in a folder."""

    fresh = True

    def __init__(self, arguments: list[str], sockets: list[Path], **more: str) -> None:
        super().__init__(*arguments, environment=more)
        self._sockets = sockets

    @property
    def command(self) -> list[str]:
        """The words with which it is started."""
        listening = [word for path in self._sockets for word in ("-l", str(path))]
        names = ":".join(["fleximq.socket"] * len(self._sockets))
        passed = [f"--setenv={name}" for name in PASSED]
        return ["systemd-socket-activate", *listening, f"--fdname={names}", *passed, *super().command]


class UnitsTests(SystemdCase):
    """The example units."""

    def setUp(self) -> None:
        """A folder whose name is short enough for sockets, with what the units expect in it."""
        super().setUp()
        folder = tempfile.TemporaryDirectory(prefix="fx-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def needed(self, program: str) -> str:
        """Return the path of a program, or skip."""
        path = shutil.which(program)
        if path is None:
            raise SkipTest(f"there is no {program}")
        return path

    def copied(self) -> list[str]:
        """Return paths of the units, which start a program that is there."""
        paths = []
        for name in ("fleximq.service", "fleximq.socket", "fleximq-node@.service", "nats-server.service"):
            path = self.folder / name.replace("@", "@main")
            program = re.compile("/opt/fleximq/bin/(twistd|nats-server)")
            path.write_text(program.sub(sys.executable, (UNITS / name).read_text()))
            paths.append(str(path))
        return paths

    def analyzed(self, *words: str) -> str:
        """Return what systemd-analyze says, which must not be an error."""
        command = [self.needed("systemd-analyze"), "--no-pager", *words]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=300)
        said = ended.stdout + ended.stderr
        if ended.returncode and re.search("Unknown|unrecognized|bus|Failed to connect", said):
            raise SkipTest(f"this systemd-analyze cannot do it: {said.splitlines()[-1]}")
        self.assertEqual(ended.returncode, 0, said)
        return said

    def test_systemdFindsNothingWrongWithThem(self) -> None:
        """systemd finds nothing wrong with them."""
        self.assertEqual(self.analyzed("verify", "--man=no", *self.copied()), "")

    def test_exposureIsOneThatPageOnOperatingTells(self) -> None:
        """The exposure is the one that the page on operating tells."""
        service = next(path for path in self.copied() if path.endswith(".service"))
        said = self.analyzed("security", "--offline=true", service)
        found = re.search(r"Overall exposure level for fleximq.service: ([0-9.]+) ([A-Z]+)", said)
        assert found is not None, said
        told = re.search(r"Overall exposure level for fleximq.service: ([0-9.]+) ([A-Z]+)", OPERATING.read_text())
        assert told is not None
        self.assertEqual(found[2], told[2])
        self.assertLessEqual(float(found[1]), float(told[1]), said)

    def test_unitOfNodeHasSameRestrictionsButForThoseOfNetwork(self) -> None:
        """The unit of a node has the same restrictions, but for those of the network; no unit writes core files."""
        service, node = unit("fleximq.service"), unit("fleximq-node@.service")
        names = "Protect|Proc|Private|Restrict|System|Lock|Capability|Ambient|NoNew|Keyring|RemoveIPC|Device|Limit"
        networked = {"PrivateNetwork", "RestrictAddressFamilies"}
        wanted = {name: lines for name, lines in service.items() if re.match(names, name) and name not in networked}
        self.assertEqual({name: node.get(name) for name in wanted}, wanted)
        self.assertGreater(len(wanted), 20)
        self.assertEqual((service["LimitCORE"], node["LimitCORE"]), (["0"], ["0"]))

    def test_whatServiceIsGivenIsWhatItsCommandLineAsksFor(self) -> None:
        """What the service is given is what its command line asks for."""
        service, sockets = unit("fleximq.service"), unit("fleximq.socket")
        (command,) = service["ExecStart"]
        given = {each.partition(":")[0] for each in service["LoadCredential"]}
        text = (UNITS / "fleximq.toml").read_text()
        inSettings = re.findall(r"/run/credentials/fleximq.service/([\w.]+)", text)
        self.assertEqual({*re.findall(r"%d/([\w.]+)", command), *inSettings}, given)
        self.assertEqual(tomllib.loads(text)["journal"], f"/var/lib/{service['StateDirectory'][0]}")
        self.assertEqual(
            [int(number) for number in re.findall(r"index=(\d+)", command)], list(range(len(sockets["ListenStream"])))
        )

    def test_everyDialect(self) -> None:
        """The service's own command line serves every dialect on the activated sockets, and inside TLS."""
        self.needed("systemd-socket-activate")
        made = makeCertificate(self.folder)
        for source, name in ((made.certificate, "tls.crt"), (made.key, "tls.key")):
            shutil.copy(source, self.folder / name)
        (self.folder / "fleximq.toml").write_text("keepalive = 60\n")
        number = len(unit("fleximq.socket")["ListenStream"])
        sockets = [self.folder / f"s{n}" for n in range(number)]
        broker = Activated(self.arguments(), sockets, NOTIFY_SOCKET=self.manager.name)
        self.addCleanup(broker.stop)
        broker.start()
        broker.waitForOutput(f"Listening on {re.escape(str(sockets[-1]))} as ")
        connects = [connector(path, made if n else None) for n, path in enumerate(sockets)]
        converse(connects[0])
        self.manager.waitFor("READY=1")
        self.assertIn(f"STATUS=serving on {number} listeners", self.manager.told)
        converse(connects[1])
        with (
            FlexiClient(Stream(connects[2]())) as flexi,
            BlipClient(connects[3]()) as blip,
            MiniClient(connects[4]()) as mini,
            IdentityClient(connects[5]()) as identity,
        ):
            flexi.join()
            blip.login()
            mini.barrier()
            identity.subscribe("here")

    def arguments(self) -> list[str]:
        """Return the broker's arguments of the service, with paths that are here."""
        (command,) = unit("fleximq.service")["ExecStart"]
        here = command.replace("%d", str(self.folder)).replace("domain=INET", "domain=UNIX")
        words = [word.replace("\\\\", "\\") for word in here.split()]
        return words[words.index("fleximq") + 1 :]


def connector(path: Path, made: Made | None) -> Callable[[], socket.socket]:
    """Return what connects to a UNIX socket, inside TLS if there is a certificate."""

    def connect() -> socket.socket:
        connected = socket.socket(socket.AF_UNIX)
        connected.settimeout(PATIENCE)
        connected.connect(str(path))
        return connected if made is None else made.trusting().wrap_socket(connected, server_hostname="localhost")

    return connect
