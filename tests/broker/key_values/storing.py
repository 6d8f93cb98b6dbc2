"""What the tests of values share: a broker with a journal or without, and its paths."""

from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from fleximq.broker.broker import Broker
from fleximq.broker.envelope import ConnectedClient
from fleximq.errors import BrokerError
from tests.broker.parts import ask, makeBroker
from tests.broker.schedules.durable import Life


class Memory:
    """A broker without a journal, with the parts of :class:`Life` that the tests of values use."""

    def __init__(self, **rules: Any) -> None:
        self.clock = Clock()
        self.ahead = 1000.0
        self.broker = makeBroker(self.clock, wall=self.wall, **rules)
        self.me = self.broker.join("fleximq")

    def wall(self) -> float:
        """Return the seconds of the system clock."""
        return self.clock.seconds() + self.ahead

    def commit(self) -> None:
        """Do nothing: all is stored at once."""

    def stop(self) -> None:
        """End."""
        self.broker.stop()


class StoringCase(SynchronousTestCase):
    """Asks the paths of values; of a broker with a journal, unless a subclass says otherwise."""

    make: type[Memory] | type[Life] = Life

    def setUp(self) -> None:
        """Begin."""
        self.life: Any = self.make()
        self.addCleanup(lambda: self.life.stop())

    @property
    def broker(self) -> Broker:
        """The broker."""
        broker: Broker = self.life.broker
        return broker

    def begin(self, path: str, client: ConnectedClient | None = None, **arguments: Any) -> list[Any]:
        """Ask, and return a list that gets the answer."""
        answers: list[Any] = []
        ask(self.broker, client or self.life.me, f"/value/{path}", arguments, answers.append)
        return answers

    def ask(self, path: str, client: ConnectedClient | None = None, **arguments: Any) -> Any:
        """Return the answer, after all commits; raise the one that is an error."""
        answers = self.begin(path, client, **arguments)
        for _ in range(3):  # what waited for a commit is stored by the next one
            self.life.commit()
        [answer] = answers
        if isinstance(answer, BrokerError):
            raise answer
        return answer

    def put(self, key: str, value: bytes, **arguments: Any) -> int:
        """Store a value and return its revision."""
        revision: int = self.ask("put", key=key, value=value, **arguments)["revision"]
        return revision

    def values(self, *keys: str) -> dict[str, bytes]:
        """Return the values that there are."""
        return {key: value for key, (_, value) in self.ask("get", keys=keys)["values"].items()}

    def advance(self, seconds: float) -> None:
        """Let time pass, and then all commits."""
        self.life.clock.advance(seconds)
        self.life.commit()
