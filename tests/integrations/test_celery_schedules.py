"""Celery's ``beat_schedule`` in the broker."""

import os
from collections.abc import Mapping
from datetime import timedelta
from importlib.util import find_spec
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.broker_process import BrokerProcess

_MISSING = "" if find_spec("celery") else "needs the extra celery"
if not _MISSING:
    from celery import Celery
    from celery.beat import BeatLazyFunc
    from celery.schedules import crontab, schedule
    from click.testing import CliRunner

    from fleximq.client.blocking.client import connect
    from fleximq.integrations.celery_schedules import _timesOf, command, define_schedules


class ScheduleTests(SynchronousTestCase):
    """An application without a worker."""

    if _MISSING:
        skip = _MISSING

    def setUp(self) -> None:
        """Start a broker."""
        self.broker = BrokerProcess("--journal", os.path.abspath(self.mktemp()))
        self.broker.__enter__()
        self.addCleanup(self.broker.stop)

    def app(self, **entries: Mapping[str, Any]) -> "Celery":
        """Return an application with these entries."""
        transport = "fleximq.integrations.kombu:Transport"
        host, port = self.broker.address
        app = Celery("shop", set_as_current=False)
        app.conf.update(
            broker_url=f"fleximq://{host}:{port}",
            broker_transport=transport,
            beat_schedule=entries,
            timezone="Europe/Rome",
        )
        return app

    def rows(self) -> dict[str, dict[str, Any]]:
        """Return the recurring schedules of the broker by name."""
        with connect(f"tcp://127.0.0.1:{self.broker.port()}") as client:
            return {row["name"]: row for row in client.schedules() if "name" in row}

    def test_entriesAreDefinedAndRemoved(self) -> None:
        """With their times; those of other applications stay."""
        with connect(f"tcp://127.0.0.1:{self.broker.port()}") as client:
            client.repeat("celery/other/x", "t", every=60)
        one = {"task": "a", "schedule": 30.0, "args": (1,), "options": {"queue": "mails", "priority": 9}}
        two = {"task": "b", "schedule": crontab(minute=0, hour="7,19", day_of_week="mon-fri")}
        self.assertEqual(define_schedules(self.app(one=one, two=two)), ["celery/shop/one", "celery/shop/two"])
        rows = self.rows()
        self.assertEqual(rows["celery/shop/one"]["every"], 30_000)
        found = rows["celery/shop/two"]
        self.assertEqual((found["cron"], found["timezone"]), ("0 7,19 * * mon-fri", "Europe/Rome"))
        define_schedules(self.app(two=two))
        self.assertEqual(sorted(self.rows()), ["celery/other/x", "celery/shop/two"])

    def test_eachPublicationIsATaskOfItsOwn(self) -> None:
        """With an id of its own, the same one when it is delivered again, and a lifetime of its own."""
        entry = {"task": "a", "schedule": timedelta(seconds=1), "kwargs": {"n": 1}, "options": {"expires": 60}}
        app = self.app(one=entry)
        define_schedules(app)
        found: list[Any] = []
        with app.connection() as connection:
            with app.amqp.TaskConsumer(connection.default_channel, on_message=found.append, accept=["json"]):
                while len(found) < 2:
                    connection.drain_events(timeout=60)
            first, second = found[:2]
            self.assertEqual(first.headers["task"], "a")
            self.assertNotEqual(first.headers["id"], second.headers["id"])
            self.assertEqual(first.headers["id"], first.properties["correlation_id"])
            self.assertNotIn("fleximq_repeat", first.headers)
            self.assertIsNone(first.headers["expires"])
            first.requeue()
            with app.amqp.TaskConsumer(connection.default_channel, on_message=found.append, accept=["json"]):
                while first.headers["id"] not in [each.headers["id"] for each in found[2:]]:
                    connection.drain_events(timeout=60)

    def test_aTaskThatExpires(self) -> None:
        """Each publication has the lifetime that the task's decorator says."""
        app = self.app(one={"task": "test.brief", "schedule": 1})

        def brief() -> None:
            """Do nothing."""

        app.task(brief, name="test.brief", expires=60, shared=False)
        define_schedules(app)
        found: list[Any] = []
        with app.connection() as connection:
            with app.amqp.TaskConsumer(connection.default_channel, on_message=found.append, accept=["json"]):
                while not found:
                    connection.drain_events(timeout=60)
        self.assertIsNone(found[0].headers["expires"])

    def test_applicationsWithSimilarNames(self) -> None:
        """Do not remove each other's schedules."""
        entry = {"task": "a", "schedule": 60}
        other = self.app(one=entry)
        other.main = "shop/eu"
        define_schedules(other)
        define_schedules(self.app(two=entry))
        self.assertEqual(sorted(self.rows()), ["celery/shop%2Feu/one", "celery/shop/two"])

    def test_whatTheBrokerCannotDo(self) -> None:
        """Is one sentence, and nothing is changed."""
        both = crontab(day_of_month=1, day_of_week=1)
        for times, words in [
            (both, "day of the month and that of the week"),
            ("daily", "knows seconds"),
            (True, "knows seconds"),
            (type("Own", (schedule,), {})(5), "knows seconds"),
            (0.2, "1 second is the least"),
        ]:
            good, bad = {"task": "a", "schedule": 1}, {"task": "a", "schedule": times}
            error = self.assertRaises(ValueError, define_schedules, self.app(a=good, b=bad))
            self.assertIn(words, str(error))
            self.assertIn("'b'", str(error))
        lazy = {"task": "a", "schedule": 1, "args": (BeatLazyFunc(int),)}
        self.assertRaises(ValueError, define_schedules, self.app(a=lazy))
        self.assertEqual(self.rows(), {})

    def test_anotherBroker(self) -> None:
        """Is one sentence."""
        app = self.app(one={"task": "a", "schedule": 1})
        app.conf.update(broker_url="memory://", broker_transport=None)
        self.assertIn("not FlexiMQ", str(self.assertRaises(ValueError, define_schedules, app)))

    def test_formsOfTimes(self) -> None:
        """Numbers, timedelta, Celery's own intervals, and all parts of a crontab."""
        for times, wanted in [
            (5, {"every": 5000}),
            (schedule(timedelta(minutes=1)), {"every": 60_000}),
            (crontab(), {"cron": "* * * * *"}),
            (crontab(minute="*/15", hour={1, 2}, month_of_year=[3, 4]), {"cron": "*/15 1,2 * 3,4 *"}),
        ]:
            self.assertEqual(_timesOf("x", {"schedule": times}), wanted)

    def test_theCommand(self) -> None:
        """Prints the names."""
        app = self.app(one={"task": "a", "schedule": 60})
        found = CliRunner().invoke(command, obj=type("Context", (), {"app": app}))
        self.assertEqual((found.exit_code, found.output), (0, "celery/shop/one\n"))
