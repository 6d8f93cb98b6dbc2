"""The shop's web application: run it with ``uvicorn web:api``."""

import shop
from celery.result import AsyncResult
from fastapi import FastAPI
from pydantic import BaseModel

api = FastAPI()


class Order(BaseModel):
    """What a customer sends."""

    number: int
    cents: int
    articles: list[str]


@api.post("/orders")
def place(order: Order) -> dict[str, str]:
    """Accept an order: when this is answered, the broker has its tasks on disk."""
    return {"result": shop.process(order.number, order.cents, order.articles)}


@api.get("/results/{identifier}")
def result(identifier: str) -> dict[str, object]:
    """Say how far an order is."""
    found = AsyncResult(identifier, app=shop.app)
    return {"state": found.state, "result": found.result if found.successful() else None}
