"""The operations of a FlexiMQ client on values: what the broker stores by a key, for a time or for good."""

from collections.abc import Sequence
from typing import Any

from fleximq.client.errors import ClientError
from fleximq.client.events import Value
from fleximq.client.payloads import packed
from fleximq.client.protocol.operations import Deliveries, Notifications
from fleximq.client.protocol.schedule_operations import ScheduleOperations, valueOf
from fleximq.client.settings import TIMEOUT
from fleximq.client.times import Duration, milliseconds, seconds

#: Seconds for which one request waits for a value, the maximum of the broker.
_WAIT = 60.0
#: Maximum number of keys of one request, and of their bytes.
_MOST_KEYS, _MOST_BYTES = 1000, 60_000


class ValueOperations(ScheduleOperations[Deliveries, Notifications]):
    """The operations of one client, with those on values and schedules."""

    async def put_value(
        self,
        key: str,
        value: object,
        /,
        *,
        expires: Duration | None = None,
        if_revision: int | None = None,
        timeout: float | None = TIMEOUT,
    ) -> int:
        """Have the broker store a value under a key, in place of any other; return its revision, which grows.

        The broker has stored it then, on disk if it has a journal.

        :param value: of a type that MessagePack can encode, whatever the ``codec``.
        :param expires: seconds after which it is gone; without it, it stays until it is deleted.
        :param if_revision: store it only if the present value has this revision, 0: if there is none.
        :raises RequestFailed: with the status 409 for another revision; something is not permitted, there are too many
            values, or the disk is full.
        """
        asked = {"key": key, "value": packed(value), **_lifetime(expires), **_condition(if_revision)}
        return valueOf(await self.ask("/value/put", asked, timeout), "revision", int)

    async def get_value(
        self, key: str, /, *, after: int = 0, wait: Duration = 0, timeout: float | None = TIMEOUT
    ) -> Value | None:
        """Return the value of a key, None if it has none.

        :param after: return only a value with a larger revision than this.
        :param wait: seconds to wait for the value if there is none, in addition to ``timeout``.
        :raises RequestFailed: and others, as :meth:`ask`.
        """
        return (await self.get_values([key], after=after, wait=wait, timeout=timeout)).get(key)

    async def get_values(
        self, keys: Sequence[str], /, *, after: int = 0, wait: Duration = 0, timeout: float | None = TIMEOUT
    ) -> dict[str, Value]:
        """Return the values of those of these keys that have one, by key; errors as :meth:`ask`.

        :param after: return only values with larger revisions than this; a later change of any key has a larger one.
            If the values have more than 8 MiB or the keys more than 60,000 bytes, several requests are sent one after
            the other, and what an earlier one has read may have changed since.
        :param wait: seconds to wait for the first value if there is none, in addition to ``timeout``.
        :raises ValueError: there are more keys to wait for than 1,000 or 60,000 bytes.
        """
        portions, left = _portions(keys), seconds("wait", wait)
        if left and len(portions) > 1:
            raise ValueError(f"there are {len(keys)} keys to wait for, more than one request can have")
        found: dict[str, Value] = {}
        while portions:
            portion = 0.0 if found else min(left, _WAIT)
            left -= portion
            asked = {"keys": portions[0], "after": after, "wait": milliseconds("wait", portion)}
            answer = await self.ask("/value/get", asked, None if timeout is None else timeout + portion)
            found |= {key: _read(value) for key, value in valueOf(answer, "values", dict).items()}
            if found or left <= 0:
                rest = valueOf(answer, "rest", list)
                portions[:1] = [rest] if rest else []
        return found

    async def add_to_value(
        self,
        key: str,
        number: int = 1,
        /,
        *,
        expires: Duration | None = None,
        timeout: float | None = TIMEOUT,
    ) -> int:
        """Add to a number that the broker stores under a key, 0 if it has no value; return the sum. No addition of
        another client is lost.

        :param expires: seconds from now after which it is gone; without it, as before.
        :raises RequestFailed: with the status 409 if the value is no whole number, or the sum has more than 64 bits;
            others as :meth:`put_value`.
        """
        asked = {"key": key, "number": number, **_lifetime(expires)}
        return valueOf(await self.ask("/value/add", asked, timeout), "sum", int)

    async def delete_value(
        self, key: str, /, *, if_revision: int | None = None, timeout: float | None = TIMEOUT
    ) -> bool:
        """Delete the value of a key, and return whether it had one.

        :param if_revision: delete only a value with this revision.
        :raises RequestFailed: as :meth:`put_value`.
        """
        asked = {"key": key, **_condition(if_revision)}
        return valueOf(await self.ask("/value/delete", asked, timeout), "deleted", bool)

    async def delete_values(self, keys: Sequence[str], /, *, timeout: float | None = TIMEOUT) -> int:
        """Delete the values of these keys, and return how many had one; errors as :meth:`put_value`."""
        deleted = 0
        for some in _portions(keys):
            deleted += valueOf(await self.ask("/value/delete", {"keys": some}, timeout), "deleted", int)
        return deleted

    async def count_values(self, prefix: str, /, *, timeout: float | None = TIMEOUT) -> int:
        """Return how many keys begin with these levels, e.g. ``users/7/``; errors as :meth:`ask`.

        :param prefix: ends with ``/`` or ``.``.
        """
        return valueOf(await self.ask("/value/count", {"prefix": prefix}, timeout), "count", int)

    async def values(self, timeout: float | None = TIMEOUT, *, prefix: str = "") -> list[dict[str, Any]]:
        """Return the keys that this client may see and that begin with ``prefix``, in order, each a dictionary with
        ``key``, ``revision``, ``expires`` (milliseconds since 1970, or None) and ``principal``. Errors as :meth:`ask`.
        """
        return await self._pages("/value/list", ("values",), timeout, **({"prefix": prefix} if prefix else {}))


def _portions(keys: Sequence[str]) -> list[list[str]]:
    """Divide keys into those of single requests, without repeated ones."""
    portions: list[list[str]] = []
    size = _MOST_BYTES
    for key in dict.fromkeys(keys):
        size += len(key.encode()) + 3
        if size > _MOST_BYTES or len(portions[-1]) == _MOST_KEYS:
            portions.append([])
            size = len(key.encode()) + 3
        portions[-1].append(key)
    return portions


def _lifetime(expires: Duration | None) -> dict[str, int]:
    if expires is None:
        return {}
    lifetime = milliseconds("expires", expires)
    if not lifetime:
        raise ValueError("expires is 0, but must be greater; without it, the value stays")
    return {"expires_in": lifetime}


def _condition(revision: int | None) -> dict[str, int]:
    return {} if revision is None else {"if_revision": revision}


def _read(found: Any) -> Value:
    if (
        not isinstance(found, list)
        or len(found) != 2
        or not isinstance(found[0], int)
        or not isinstance(found[1], bytes)
    ):
        raise ClientError(f"the broker answered {str(found)[:100]} as a value; is it FlexiMQ of this version?")
    return Value(*found)
