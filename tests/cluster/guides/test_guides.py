"""docs/guides/cluster.rst and cluster-machines.rst, followed to the letter on machines in namespaces.

Only ``pip install`` is left out, which tests.installation has, and systemd: a small service manager reads the units.
"""

import time
from concurrent.futures import ThreadPoolExecutor

from twisted.trial.unittest import SynchronousTestCase

from tests.cluster.guides.commands import Step, commands, isSame, section, shape, steps, unmarked
from tests.cluster.guides.machines import ROOT, Machines, missing
from tests.nightly import nightly

PAGE = (ROOT / "docs" / "guides" / "cluster-machines.rst").read_text()
CLUSTER = (ROOT / "docs" / "guides" / "cluster.rst").read_text()
EACH = ("east-1", "east-2", "east-3")
#: Seconds until a command prints what the page says.
_PATIENCE = 60.0


class GuideCase(SynchronousTestCase):
    """The reader's own machine, the three of the page, and a fourth one."""

    def setUp(self) -> None:
        if reason := missing():
            self.skipTest(reason)
        self.machines = Machines()
        self.addCleanup(self.machines.end)
        self.machines.add("yours", "10.0.0.100")
        self.done("yours", f"cd {ROOT}")
        for index, name in enumerate((*EACH, "east-4")):
            self.machines.add(name, f"10.0.0.{index + 1}")

    def follow(self, page: str, part: str | None = None) -> None:
        """Take all steps of a page, or of a part of it."""
        for step in steps(page, part):
            if step.printed is None:
                names = EACH if step.where == "each" else (step.where,)
                with ThreadPoolExecutor(len(names)) as threads:
                    list(threads.map(lambda name, step=step: self.script(name, numbered(step.command, name)), names))
            else:
                self.compare(step)

    def script(self, name: str, code: str) -> None:
        """Run lines of a shell, of which each must succeed."""
        for command in commands(code):
            self.done(name, command)

    def done(self, name: str, command: str) -> str:
        """Run a command that must succeed, that for a status in time; return what it prints."""
        end = time.monotonic() + _PATIENCE
        while (
            (result := self.machines.run(name, command))[0] and " cluster status " in command and time.monotonic() < end
        ):
            time.sleep(0.5)
        self.assertEqual(result[0], 0, f"{name}: {command}{result[1]}\n{self.machines.logs()}")
        return result[1]

    def compare(self, step: Step) -> None:
        """Run a command until it prints what the page says."""
        end = time.monotonic() + _PATIENCE
        wanted = step.printed or ""
        while not isSame(printed := self.machines.run(step.where, step.command)[1], wanted):
            if time.monotonic() > end:
                self.assertEqual(shape(printed), shape(wanted), f"{step.where}: {step.command}\n{self.machines.logs()}")
            time.sleep(0.5)


def numbered(code: str, name: str) -> str:
    """Return code for a machine, with its number in place of that of the first one."""
    return code.replace("n=1\n", f"n={name[-1]}\n")


class PagesTests(SynchronousTestCase):
    """All commands are run."""

    def test_marked(self) -> None:
        """No command of the pages but those of an installation is left out."""
        self.assertEqual(unmarked(PAGE), ["python3 -m venv /opt/fleximq"])
        self.assertEqual(unmarked(CLUSTER), ["pip install '.[cluster]'"])


class GuidesTests(GuideCase):
    """The pages, in their order."""

    @nightly
    def test_machines(self) -> None:
        """Three machines: the cluster, one more on its NATS servers, a NATS server at another address, a node less."""
        beginning, rest = PAGE.split("Upgrading\n---", 1)
        self.follow(PAGE, beginning)
        self.follow(CLUSTER, section(CLUSTER, "Several clusters on the same NATS servers"))
        self.follow(PAGE, rest.partition("From one machine to three\n")[0])

    def test_trial(self) -> None:
        """The page on clusters, with the programs in the path of each shell."""
        for name in ("yours", *EACH):
            self.done(name, "PATH=/opt/fleximq/bin:$PATH")
        self.follow(CLUSTER, CLUSTER.partition(".. _cluster-several:")[0])
        self.follow(CLUSTER, section(CLUSTER, "Operating"))

    @nightly
    def test_oneToThree(self) -> None:
        """A node with one NATS server becomes one of three, with its journal."""
        beginning, rest = PAGE.split("Start\n---", 1)
        self.follow(PAGE, beginning)
        self.done("east-1", "cp -rp /etc/nats /etc/fleximq /root")
        self.done("east-1", "sed -i '/^cluster {/,$d' /etc/nats/nats-server.conf")
        self.done("east-1", "sed -i 's/^\\(cluster = .*4222\"\\), .*, .*/\\1]/' /etc/fleximq/main.toml")
        start, look, _, *publish = steps(PAGE, rest)[:5]
        self.script("east-1", start.command)
        for step in publish:
            self.compare(step)
        stop, refill = steps(PAGE, section(PAGE, "From one machine to three"))
        self.script("east-1", stop.command)
        self.done("east-1", "cp -rp /root/nats /root/fleximq /etc")
        with ThreadPoolExecutor(3) as threads:
            list(threads.map(lambda name: self.script(name, start.command), EACH))
        self.compare(refill)
        self.compare(look)
        (*_, all) = steps(PAGE, section(PAGE, "A NATS server at another address"))
        self.compare(all)
