"""The tasks of a shop: run a worker with ``celery -A shop worker``."""

import os
from datetime import timedelta

from celery import Celery, chain, group
from celery.schedules import crontab

import fleximq.integrations.kombu  # noqa: F401  # registers the scheme

_BROKER = os.environ.get("SHOP_BROKER", "fleximq://localhost:7890")
app = Celery("shop", broker=_BROKER, backend=_BROKER)
app.conf.update(
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    result_expires=timedelta(days=7),
    beat_schedule={
        "report": {"task": "shop.report", "schedule": crontab(hour=7, minute=0)},
        "restock": {"task": "shop.restock", "schedule": timedelta(minutes=5), "options": {"expires": 60}},
    },
)


class CardDeclined(Exception):
    """The bank does not answer; it may later."""


@app.task(autoretry_for=(CardDeclined,), retry_backoff=1, retry_backoff_max=600, max_retries=5)
def charge(order: int, cents: int) -> str:
    """Charge a card; the bank fails for amounts that end in 13 until the third attempt."""
    if cents % 100 == 13 and charge.request.retries < 2:
        raise CardDeclined(f"order {order}")
    return f"paid {cents}"


@app.task
def pack(article: str) -> str:
    """Pack one article."""
    return f"packed {article}"


@app.task
def ship(packed: list[str] | str, order: int) -> str:
    """Ship what was packed; of a group of one task Celery passes on the result itself."""
    return f"order {order}: {packed if isinstance(packed, str) else ', '.join(packed)}"


@app.task
def remind(order: int) -> str:
    """Ask how it was."""
    return f"how was order {order}?"


@app.task
def report() -> None:
    """Write the report of the day."""


@app.task
def restock() -> None:
    """Look which articles are missing."""


def process(order: int, cents: int, articles: list[str]) -> str:
    """Charge, pack all articles at once, ship, and remind a day later; return the id of the result."""
    packing = group(pack.si(each) for each in articles)
    result = chain(charge.si(order, cents), packing, ship.s(order)).apply_async()
    remind.apply_async((order,), countdown=86_400, priority=0)
    return str(result.id)
