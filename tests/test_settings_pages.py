"""The settings that the pages and the packages show are good ones, and those who are granted something can do it."""

import json
import re
import tomllib
from argparse import ArgumentParser
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from twisted.trial.unittest import SynchronousTestCase

from fleximq.cli.check_config import tomlValue
from fleximq.cli.credential_files import setSecret
from fleximq.client.blocking import Client, connect
from fleximq.client.errors import Answered
from fleximq.config.option_table import OPTIONS, TABLES
from fleximq.dialects.registry import installed
from fleximq.pipeline.broker_link import BrokerAddress, BrokerLink
from fleximq.pipeline.errors import BrokerRefused
from fleximq.pipeline.main import JOBS, jobOf, mergeSettings
from fleximq.pipeline.reader.broker_journal import RemoteJournal
from fleximq.startup.configuration_check import faults
from fleximq.status import Status
from tests.broker_process import PATIENCE, BrokerProcess

ROOT = Path(__file__).parents[1]
_BLOCK = re.compile(r"(?m)(?:^(?: {4}.*)?\n)+")
_KNOWN = {each.name for each in (*OPTIONS, *TABLES)}


def blocksIn(path: Path) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield what a file, or each indented block of a page that is TOML, says, and its text."""
    text = path.read_text()
    for block in [text] if path.suffix == ".toml" else _BLOCK.findall(text):
        block = re.sub("(?m)^ {4}", "", block)
        try:
            yield tomllib.loads(block), block
        except tomllib.TOMLDecodeError:
            continue


def settingsIn(path: Path) -> Iterator[dict[str, Any]]:
    """Yield those that are settings of a broker."""
    for found, _ in blocksIn(path):
        if found and found.keys() <= _KNOWN:
            yield found


PAGES = sorted([*(ROOT / "docs").rglob("*.rst"), ROOT / "README.rst", ROOT / "SECURITY.rst"])
FILES = sorted([*(ROOT / "docs").rglob("*.toml"), ROOT / "debian" / "fleximq.toml"])


def tablesOf(page: str, name: str) -> dict[str, Any]:
    """Return the block of a page in docs/guides that has a table, e.g. ``roles.pipeline``."""
    kind, _, table = name.partition(".")
    return next(each for each in settingsIn(ROOT / "docs" / "guides" / page) if table in each.get(kind, {}))


class CheckTests(SynchronousTestCase):
    """Each file and block is checked as by check-config."""

    def faultsOf(self, settings: dict[str, Any]) -> list[str]:
        """Return its faults; files of this machine that it names do not exist, but need not."""
        return [each for each in faults(settings, installed(), elsewhere=True) if "no such file" not in each]

    def test_files(self) -> None:
        """All files of settings."""
        for path in FILES:
            found = list(settingsIn(path))
            self.assertTrue(found, path)
            self.assertEqual([self.faultsOf(each) for each in found], [[]], path)

    def test_pages(self) -> None:
        """All blocks of all pages, among them every table of permissions, queues and schedules."""
        number = 0
        for path in PAGES:
            for block in settingsIn(path):
                tables = {"journal": "/var/lib/fleximq"} if "journal" not in block else {}
                self.assertEqual(self.faultsOf(block | tables), [], path)
                number += sum(len(block.get(each.name, ())) for each in TABLES)
        written = sum(
            len(re.findall(r"(?m)^    \[(?:roles|principals|schedules|queues)\.[^].]+\]", each.read_text()))
            for each in PAGES
        )
        limits = sum(len(re.findall(r"(?m)^    \[\w+\.\w+\.limits\]", each.read_text())) for each in PAGES)
        self.assertEqual(number, written + limits)

    def test_pipeline(self) -> None:
        """Settings of the pipeline, which a job with each of their tables accepts."""
        number = 0
        for found, text in (each for path in PAGES for each in blocksIn(path) if "source" in each[0]):
            path = Path(self.mktemp())
            path.write_text(text)
            for name in {"ingest", *found} & JOBS.keys():
                job, parser = jobOf(name), ArgumentParser()
                parser.add_argument("--config")
                job.prepare(parser)
                merged = mergeSettings(parser, name, tuple(JOBS), ["--config", str(path)])
                self.assertIn(found["source"]["journal"], vars(merged).values())
                number += 1
        self.assertGreaterEqual(number, 2)


class RoleTests(SynchronousTestCase):
    """A broker with a block of a page. Each client has its name as a token, and the role that the test gives it."""

    def start(self, tables: dict[str, Any], **roles: str) -> None:
        """Start a broker with the tables of a page and these clients."""
        folder = Path(self.mktemp()).absolute()
        folder.mkdir()
        for name, role in roles.items():
            setSecret(str(folder / "tokens"), name, name, (role,) if role else ())
        own = {each.name: tables[each.name] for each in TABLES if each.name in tables}
        settings = {"auth": [f"tokens:{folder}/tokens"], "journal": str(folder / "journal"), "durable": ["stored.#"]}
        path = folder / "settings.toml"
        path.write_text("".join(f"{name} = {tomlValue(value)}\n" for name, value in (settings | own).items()))
        self.broker = BrokerProcess("--config", str(path))
        self.addCleanup(self.broker.stop)
        self.broker.__enter__()
        self.url = f"tcp://127.0.0.1:{self.broker.port()}"

    def client(self, name: str) -> Client:
        """Return a client that has joined."""
        client = connect(self.url, credentials={"type": "token", "token": name})
        self.addCleanup(client.close)
        return client

    def may(self, act: Callable[[], object]) -> bool:
        """Do something, and return whether it was permitted."""
        try:
            act()
        except Answered as error:
            self.assertIn(error.status, (Status.FORBIDDEN, Status.SUBSCRIPTION_FAILED))
            return False
        return True

    def publishes(self, client: Client, topic: str) -> bool:
        """Return whether a client may publish to a topic."""

        def act() -> None:
            client.publish(topic, 1)
            client.flush()

        return self.may(act)

    def subscribes(self, client: Client, topic: str) -> bool:
        """Return whether a client may subscribe to a topic."""
        return self.may(lambda: client.subscribe(topic).close())

    def page(self, name: str, path: str, body: object = None) -> int:
        """Return the status of a page, or of an action with these arguments."""
        sent = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {name}", "Content-Type": "application/json"}
        try:
            with urlopen(Request(f"http{self.url[3:]}{path}", sent, headers), timeout=PATIENCE) as answer:
                return int(answer.status)
        except HTTPError as error:
            with error:
                return error.code

    def test_pipeline(self) -> None:
        """The pipeline reads the journal, publishes a batch, reports progress, and sees the groups."""
        self.start(tablesOf("security.rst", "roles.pipeline"), etl="pipeline")
        place = BrokerAddress(self.url, {"type": "token", "token": "etl"}, timeout=0)
        journal = RemoteJournal(place)
        self.addCleanup(journal.close)
        self.assertEqual(journal.bounds().next, journal.end().offset)
        with BrokerLink(place) as link:
            batch = {"query": "q", "batch": 1}
            record = {"topic": "reports.daily", "value": 1}
            token = link.ask("/sink/stage", {**batch, "part": "0", "records": [record]})["token"]
            first = link.ask("/sink/commit", {**batch, "tokens": [token]})["offset"]
            group = {"group": "lake", "journal": journal.id, "next": first}
            self.assertEqual(link.ask("/pipeline/lag", {"groups": [group]})["taken"], 1)
            self.assertEqual([each["group"] for each in link.ask("/pipeline/groups")["groups"]], ["lake"])
            link.ask("/broker/about")
            refused = {**batch, "part": "0", "records": [{"topic": "orders", "value": 1}]}
            self.assertRaises(BrokerRefused, link.ask, "/sink/stage", refused)
        self.assertEqual(journal.slices(first, first + 1)[0].journal, journal.id)
        self.assertEqual(journal.advance(first, first + 1, 1, None).records, 1)

    def test_firstSteps(self) -> None:
        """The operator may do everything, a machine publishes below its name, Prometheus reads metrics."""
        self.start(tablesOf("security.rst", "roles.ops"), alice="ops", press="machine", prometheus="")
        alice, press = self.client("alice"), self.client("press")
        self.assertTrue(self.publishes(press, "sensors.press.heat"))
        self.assertFalse(self.publishes(press, "sensors.oven.heat") or self.subscribes(press, "sensors.#"))
        self.assertTrue(self.publishes(alice, "a") and self.subscribes(alice, "#") and self.subscribes(alice, "$sys/#"))
        self.assertTrue(self.may(lambda: alice.ask("/broker/reload")))
        self.assertFalse(self.may(lambda: press.ask("/broker/clients")))
        pages = {name: self.page(name, "/metrics") for name in ("prometheus", "alice", "press")}
        self.assertEqual(pages, {"prometheus": 200, "alice": 200, "press": 403})

    def test_levels(self) -> None:
        """Everyone asks about the broker; who has logged in has an inbox; a sensor publishes below its name."""
        self.start(tablesOf("security.rst", "roles.sensor"), cellar="", bob="")
        cellar, bob = self.client("cellar"), self.client("bob")
        self.assertTrue(self.may(lambda: bob.ask("/broker/about")))
        self.assertTrue(self.subscribes(bob, "news.today") and self.subscribes(bob, "inbox.bob.x"))
        self.assertTrue(self.publishes(bob, "inbox.cellar.bob"))
        self.assertFalse(self.publishes(bob, "inbox.cellar.alice") or self.subscribes(bob, "inbox.cellar.x"))
        self.assertTrue(self.publishes(cellar, "sensors.cellar.heat"))
        self.assertFalse(self.publishes(bob, "sensors.bob.heat"))

    def test_contractor(self) -> None:
        """Publishes anywhere but to the payroll, and does not see clients."""
        tables = tablesOf("security.rst", "roles.contractor")
        tables["roles"]["everyone"] = {"read": True}
        self.start(tables, eve="contractor")
        eve = self.client("eve")
        self.assertTrue(self.publishes(eve, "orders.new"))
        self.assertFalse(self.publishes(eve, "payroll.may"))
        self.assertFalse(self.may(lambda: eve.ask("/broker/clients")))
        self.assertEqual((self.page("eve", "/api/clients"), self.page("eve", "/api/topics")), (403, 200))

    def test_monitoring(self) -> None:
        """Prometheus reads metrics and no more; the operator sees the API and acts by it."""
        self.start(tablesOf("monitoring.rst", "roles.operator"), prometheus="", olga="operator")
        pages = ("/metrics", "/api/about", "/readyz")
        self.assertEqual([self.page("prometheus", each) for each in pages], [200, 403, 200])
        self.assertEqual([self.page("olga", each) for each in pages], [200, 200, 200])
        kick = {"principal": "prometheus"}
        self.assertEqual(self.page("olga", "/api/clients/kick", kick), 200)
        self.assertEqual(self.page("prometheus", "/api/clients/kick", kick), 403)

    def test_upgrading(self) -> None:
        """Everything is as it was, and alice is the admin."""
        self.start(tablesOf("upgrading.rst", "principals.alice"), alice="", bob="")
        alice, bob = self.client("alice"), self.client("bob")
        self.assertTrue(self.publishes(bob, "a") and self.subscribes(bob, "#") and self.subscribes(bob, "$dead/#"))
        self.assertTrue(self.may(lambda: bob.ask("/broker/clients")))
        self.assertTrue(self.may(lambda: alice.ask("/broker/reload")))
        self.assertFalse(self.may(lambda: bob.ask("/broker/reload")))
