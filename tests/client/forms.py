"""The three forms of each dialect's client behind one face that waits, so that a conversation is written once.

::

    form = OnAsyncio()  # or OnAsyncio("blipmq")
    client = form.connect(url, name="me")
    client.subscribe("a").next(5).value
    form.end()

asyncio and a reactor run in threads of their own; every call waits for what it returns, for a while. A
:class:`User` is one of several who use a client: a thread, a task or a coroutine.
"""

import asyncio
import importlib
import inspect
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, ClassVar

from twisted.internet.defer import Deferred, DeferredQueue
from twisted.internet.epollreactor import EPollReactor

from fleximq.client.contexts import MessageIterator
from fleximq.client.jobs import Job as DeliveredJob
from fleximq.client.reconnecting import Reconnecting
from fleximq.client.wrapper import Wrapper

#: Seconds that any call may take; they cost nothing while the client does as it should.
PATIENCE = 300.0
_WRAPPED = (DeliveredJob, Reconnecting, MessageIterator, Wrapper)


class Waiting:
    """A client or subscription of a loop, whose methods wait."""

    def __init__(self, form: "Form", inner: Any) -> None:
        self._form = form
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not callable(found):
            return found
        return lambda *arguments, **more: self._form.call(found, *arguments, **more)

    def __iter__(self) -> "Waiting":
        return self

    def __next__(self) -> Any:
        over = self._inner.__aiter__()
        try:
            return self._form.call(over.__anext__)
        except StopAsyncIteration:
            raise StopIteration from None


#: What a user is to do, and who is told what came of it; None: nothing any more.
Job = tuple[Callable[[], Any], "Future[Any]"] | None


class User:
    """Somebody who does one thing after the other, as long as he is there.

    :param give: takes what he is to do next.
    """

    def __init__(self, give: Callable[[Job], object]) -> None:
        self._give = give

    def do(self, client: Any, name: str, *arguments: Any) -> Any:
        """Let him call a method of a client, and return what it comes to."""
        inner = client._inner if isinstance(client, Waiting) else client
        future: Future[Any] = Future()
        self._give((lambda: getattr(inner, name)(*arguments), future))
        return future.result(PATIENCE)

    def end(self) -> None:
        """Let him go."""
        self._give(None)


async def _live(next: Callable[[], Any]) -> None:
    """Be a user, in a loop."""
    while (job := await next()) is not None:
        call, future = job
        try:
            found = call()
            future.set_result(await found if inspect.isawaitable(found) else found)
        except Exception as error:
            future.set_exception(error)


class Form:
    """One form of a dialect's client; "" is FlexiMQ."""

    name: ClassVar[str]

    def __init__(self, dialect: str = "") -> None:
        path = f"fleximq.client.{dialect}.{self.name}" if dialect else f"fleximq.client.{self.name}"
        self._module: Any = importlib.import_module(path)

    def connect(self, url: str | list[str], **wishes: Any) -> Any:
        """Return a client."""
        return self.call(self._module.connect, url, **wishes)

    def call(self, function: Callable[..., Any], *arguments: Any, **more: Any) -> Any:
        """Call something where it belongs, and return what it comes to."""
        raise NotImplementedError

    def user(self) -> User:
        """Return somebody who uses clients."""
        raise NotImplementedError

    def end(self) -> None:
        """Stop what runs."""


class Blocking(Form):
    """Plain calls."""

    name = "blocking"

    def call(self, function: Callable[..., Any], *arguments: Any, **more: Any) -> Any:
        return function(*arguments, **more)

    def user(self) -> User:
        jobs: SimpleQueue[Job] = SimpleQueue()
        thread = threading.Thread(target=self._live, args=(jobs,), daemon=True)
        thread.start()

        def give(job: Job) -> None:
            jobs.put(job)
            if job is None:
                thread.join(PATIENCE)

        return User(give)

    def _live(self, jobs: "SimpleQueue[Job]") -> None:
        while (job := jobs.get()) is not None:
            call, future = job
            try:
                future.set_result(call())
            except Exception as error:
                future.set_exception(error)


class Looping(Form):
    """A form with a loop in a thread."""

    def __init__(self, dialect: str = "") -> None:
        super().__init__(dialect)
        self._thread = threading.Thread(target=self.run, daemon=True)
        self._thread.start()

    def run(self) -> None:
        """Run the loop."""
        raise NotImplementedError

    def submit(self, work: Any) -> "Future[Any]":
        """Let a coroutine function run in the loop."""
        raise NotImplementedError

    def call(self, function: Callable[..., Any], *arguments: Any, **more: Any) -> Any:
        async def work() -> Any:
            found = function(*arguments, **more)
            return await found if inspect.isawaitable(found) else found

        found = self.submit(work).result(PATIENCE)
        return Waiting(self, found) if isinstance(found, _WRAPPED) else found


class OnAsyncio(Looping):
    """asyncio."""

    name = "asyncio"

    def __init__(self, dialect: str = "") -> None:
        self._loop = asyncio.new_event_loop()
        super().__init__(dialect)

    def run(self) -> None:
        self._loop.run_forever()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    def submit(self, work: Any) -> "Future[Any]":
        return asyncio.run_coroutine_threadsafe(work(), self._loop)

    def user(self) -> User:
        jobs: asyncio.Queue[Job] = asyncio.Queue()
        ended: Future[None] = Future()

        def live() -> None:
            task = self._loop.create_task(_live(jobs.get))
            task.add_done_callback(lambda done: self._loop.call_soon(ended.set_result, None))

        def give(job: Job) -> None:
            self._loop.call_soon_threadsafe(jobs.put_nowait, job)
            if job is None:
                ended.result(PATIENCE)

        self._loop.call_soon_threadsafe(live)
        return User(give)

    def end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE)


class OnTwisted(Looping):
    """Twisted, on a reactor that is not trial's."""

    name = "twisted"

    def __init__(self, dialect: str = "") -> None:
        self._reactor: Any = EPollReactor()
        super().__init__(dialect)

    def run(self) -> None:
        self._reactor.run(installSignalHandlers=False)

    def submit(self, work: Any) -> "Future[Any]":
        future: Future[Any] = Future()

        def begin() -> None:
            running = Deferred.fromCoroutine(work())
            running.addCallbacks(future.set_result, lambda failure: future.set_exception(failure.value))

        self._reactor.callFromThread(begin)
        return future

    def connect(self, url: str | list[str], **wishes: Any) -> Any:
        return self.call(self._module.connect, self._reactor, url, **wishes)

    def user(self) -> User:
        jobs: DeferredQueue[Job] = DeferredQueue()
        ended: Future[None] = Future()

        def live() -> None:
            living = Deferred.fromCoroutine(_live(jobs.get))
            living.addCallback(lambda _: self._reactor.callLater(0, ended.set_result, None))

        def give(job: Job) -> None:
            self._reactor.callFromThread(jobs.put, job)
            if job is None:
                ended.result(PATIENCE)

        self._reactor.callFromThread(live)
        return User(give)

    def end(self) -> None:
        self._reactor.callFromThread(self._reactor.stop)
        self._thread.join(PATIENCE)


FORMS: tuple[type[Form], ...] = (Blocking, OnAsyncio, OnTwisted)
