"""Kombu's own integration tests with the transport of FlexiMQ, for pytest beside kombu's file ``common``.

Run by :mod:`tests.integrations.test_kombu_suite`. The environment variable ``FLEXIMQ_PORT`` has the port of a broker.
"""

import os
from typing import Any

import kombu
import pytest
from common import (  # type: ignore[import-not-found]  # kombu's tests
    BaseEventLoop,
    BaseExchangeTypes,
    BaseFailover,
    BaseMessage,
    BasePriority,
    BaseTimeToLive,
    BasicFunctionality,
)

import fleximq.integrations.kombu  # noqa: F401  # registers the scheme

_URL = f"fleximq://127.0.0.1:{os.environ['FLEXIMQ_PORT']}"
#: A port on which nothing listens.
_DEAD = "fleximq://127.0.0.1:9"


@pytest.fixture()
def connection() -> Any:
    """Return a connection to the broker."""
    return kombu.Connection(_URL)


@pytest.fixture()
def invalid_connection() -> Any:
    """Return a connection that cannot be made."""
    return kombu.Connection(_DEAD)


@pytest.fixture()
def failover_connection() -> Any:
    """Return a connection whose second address is the broker's."""
    return kombu.Connection(f"{_DEAD};{_URL}")


class TestBasicFunctionality(BasicFunctionality):
    """Connections, channels and simple queues."""


class TestExchangeTypes(BaseExchangeTypes):
    """Direct, topic and fanout."""


class TestTimeToLive(BaseTimeToLive):
    """Expiration."""


class TestPriority(BasePriority):
    """Priorities; a higher number is first."""


class TestFailover(BaseFailover):
    """Several addresses."""


class TestMessage(BaseMessage):
    """Acknowledge, reject and requeue."""


class TestEventLoop(BaseEventLoop):
    """Kombu's hub."""
