"""``DELETE /schedules/ID``: cancel a message that waits for its time."""

from typing import Any

from fleximq.broker.paths import path_table
from fleximq.dialects.http.operations.arguments import whole
from fleximq.dialects.http.operations.exchange import Exchange
from fleximq.errors import BrokerError

_CANCEL = "/schedule/cancel"
_MOST = (1 << 53) - 1


def cancel(exchange: Exchange) -> None:
    """Cancel the message with the id in the path, and answer whether it waited."""
    number = whole({"id": exchange.name}, "id", 0, 0, _MOST)

    def answered(value: Any) -> None:
        if isinstance(value, BrokerError):
            exchange.fail(value)
        else:
            exchange.answer(value)

    exchange.broker.checkPath(_CANCEL)
    path_table.answer(exchange.broker, exchange.client, _CANCEL, {"id": number}, answered)
