"""Forms of a client that wrap another one: the blocking forms, and those that return Deferreds.

A method is declared once, in the inner class; the functions below copy its parameters, types and docstring.
"""

from collections.abc import Callable, Coroutine
from functools import update_wrapper
from inspect import signature
from typing import Any, Concatenate, Generic, NoReturn, ParamSpec, Self, TypeVar, get_args, get_origin

from fleximq.client.reconnecting import Reconnecting
from fleximq.client.settings import State

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")
C = TypeVar("C")
F = TypeVar("F", bound=Callable[..., Any])


class Wrapper(Generic[C]):
    """A client or subscription around an inner one, which does the work."""

    def __init__(self, inner: C) -> None:
        self._inner = inner

    def __repr__(self) -> str:
        return repr(self._inner)

    def _call(self, method: Callable[..., T], *arguments: Any, **more: Any) -> T:
        """Call a method of the inner object where it may run."""
        return method(*arguments, **more)


def called(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
    """Return a method of a :class:`Wrapper` that calls the inner object's method of this name."""
    name = method.__name__

    def call(self: Any, /, *arguments: P.args, **more: P.kwargs) -> T:
        return self._call(getattr(self._inner, name), *arguments, **more)  # type: ignore[no-any-return]

    return update_wrapper(call, method)


def waiting(method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[Any, P], T]:
    """Return a method of a blocking :class:`Wrapper` that waits for the inner object's coroutine of this name."""
    name = method.__name__

    def call(self: Any, /, *arguments: P.args, **more: P.kwargs) -> T:
        return self._wait(getattr(self._inner, name)(*arguments, **more))  # type: ignore[no-any-return]

    return returning(resultOf(method), update_wrapper(call, method))


def wrapping(kind: Callable[[T], R], method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], R]:
    """Return a method that wraps the result of this one."""

    def call(self: Any, /, *arguments: P.args, **more: P.kwargs) -> R:
        return kind(method(self, *arguments, **more))

    return returning(kind.__name__, update_wrapper(call, method))


def returning(annotation: str, call: F) -> F:
    """Document the type that a method of a wrapper returns, instead of the inner one's."""
    call.__annotations__ = {**call.__annotations__, "return": annotation}
    call.__signature__ = signature(call).replace(return_annotation=annotation)  # type: ignore[attr-defined]
    return call


def resultOf(method: Callable[..., Any]) -> str:
    """Return the name of the type that a coroutine function results in."""
    result = signature(method).return_annotation
    result = get_args(result)[-1] if get_origin(result) is Coroutine else result
    return result if isinstance(result, str) else getattr(result, "__name__", str(result))


def completed(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that waits by blocking the thread, so it ends in its first step."""
    try:
        work.send(None)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    raise RuntimeError("the coroutine of a blocking client has not ended")


K = TypeVar("K", bound=Reconnecting)


class ClientWrapper(Wrapper[K]):
    """A connection to a broker."""

    @property
    def url(self) -> str:
        """The broker's URL without its query, which may contain a secret."""
        return self._inner.url

    @property
    def state(self) -> State:
        """The state of the connection."""
        return self._inner.state

    hang_up = called(Reconnecting.hang_up)


class BlockingClient(ClientWrapper[K]):
    """A connection to a broker with blocking methods; a ``with`` block closes it."""

    def __enter__(self) -> Self:
        return self

    async def __aenter__(self) -> NoReturn:
        raise TypeError("this client blocks: write 'with connect(...)', or import connect from fleximq.client.asyncio")

    async def __aexit__(self, *raised: object) -> None:
        """Only so that ``async with`` calls the above."""

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """Close; if the block failed, at once and without a flush."""
        if error is None:
            self.close()
        else:
            self.hang_up()

    _wait = staticmethod(completed)
    ping = waiting(Reconnecting.ping)
    close = waiting(Reconnecting.close)
