"""The keyword arguments of every ``connect``, with their types.

A ``connect`` has the parameter ``**options: Unpack[...]`` with one of these dictionaries, so that type checkers and
editors know each keyword. :func:`spelledOut` shows the keywords with their defaults to ``help`` and :mod:`inspect` too.
:class:`~fleximq.client.settings.ClientSettings` describes them.
"""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from functools import wraps
from inspect import Parameter, signature
from typing import Any, Generic, TypedDict, TypeVar, cast, get_args, get_origin, get_type_hints

from fleximq.client.backoff import Backoff
from fleximq.client.settings import ClientSettings, Codec, Watcher

#: The type of the argument ``tls``, which differs between the asyncio, blocking and Twisted forms of a client.
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


class QueueOptions(TypedDict, total=False):
    """The options of a BlipMQ or MiniMQ client on a connection that its user makes."""

    timeout: float
    buffer: int
    keep_alive: float | None
    on_state: Watcher | None


class FlexiOptions(QueueOptions, total=False):
    """The options of a FlexiMQ client on a connection that its user makes."""

    credentials: Mapping[str, str] | None
    name: str | None
    prefetch: int
    codec: Codec


class Dialled(TypedDict, Generic[T], total=False):
    """The further options of clients that make their connections themselves."""

    tls: T | None
    reconnect: Backoff | None


class QueueConnectOptions(QueueOptions, Dialled[T], total=False):
    """The options of ``connect`` for BlipMQ and MiniMQ."""


class ConnectOptions(FlexiOptions, Dialled[T], total=False):
    """The options of ``connect`` for FlexiMQ."""


class ThreadConnectOptions(ConnectOptions[T], total=False):
    """The options of ``connect`` for FlexiMQ in the blocking form."""

    threads: int


def spelledOut(function: F) -> F:
    """Show the options of a function as keyword arguments in its signature; a call with others raises TypeError."""
    shown = signature(function)
    *own, last = shown.parameters.values()
    [options] = get_args(last.annotation)
    types = get_type_hints(get_origin(options) or options)
    if get_args(options):
        types["tls"] = get_args(options)[0] | None
    settings = [each for each in fields(ClientSettings) if each.name in types]
    assert len(settings) == len(types) and all(each.default is not MISSING for each in settings)
    spelled = [
        Parameter(each.name, Parameter.KEYWORD_ONLY, default=each.default, annotation=types[each.name])
        for each in settings
    ]
    known = {*types, *(each.name for each in own)}

    @wraps(function)
    def call(*arguments: Any, **more: Any) -> Any:
        for name in more:
            if name not in known:
                raise TypeError(f"{function.__name__}() got an unexpected keyword argument {name!r}")
        return function(*arguments, **more)

    call.__signature__ = shown.replace(parameters=[*own, *spelled])  # type: ignore[attr-defined]
    call.__annotations__ = {name: each for name, each in call.__annotations__.items() if name != last.name} | {
        each.name: each.annotation for each in spelled
    }
    return cast(F, call)
