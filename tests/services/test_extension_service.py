"""Extensions as services: what they may do, what is taken back, and that a broken one hurts nobody."""

from collections.abc import Mapping
from typing import Any, NoReturn

from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.internet.testing import MemoryReactorClock
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer
from zope.interface.verify import verifyObject

from fleximq.broker.envelope import Envelope, MessageSource
from fleximq.config.extension_options import EnabledExtension
from fleximq.config.settings import Settings
from fleximq.dialects.registry import Registry, installed
from fleximq.errors import SettingError
from fleximq.interfaces import IBrokerExtension, IExtensionContext
from fleximq.services.compose import compose
from fleximq.services.extension_service import STOP_TIMEOUT, ExtensionService
from tests.broker.parts import Collector, Witness, makeBroker, text
from tests.in_process.parts import contextOf


class Sample(Service):
    """A service that observes and taps; ``raises`` holds what its steps raise, ``ending`` what its end returns."""

    def __init__(self, context: IExtensionContext) -> None:
        self.context = context
        self.witness, self.tapped = Witness(), Collector()
        self.steps: list[str] = []
        self.raises: dict[str, Exception] = {}
        self.ending: Deferred[None] | None = None

    def _step(self, name: str) -> None:
        self.steps.append(name)
        if name in self.raises:
            raise self.raises[name]

    def privilegedStartService(self) -> None:
        self._step("privileged")

    def startService(self) -> None:
        self.context.observe(self.witness)
        self.context.wiretap(self.tapped, "#")
        self.context.wiretap(self.tapped, "a")
        self._step("start")

    def stopService(self) -> Any:
        self._step("stop")
        return self.ending


@implementer(IBrokerExtension)
class SampleExtension:
    """Makes :class:`Sample`, the last of which is ``made``."""

    name = "sample"
    words = "A sample."

    def __init__(self, **raises: Exception) -> None:
        self.raises = raises
        self.made: list[Sample] = []
        self.configurations: list[object] = []

    def configure(self, options: Mapping[str, object]) -> Any:
        return dict(options)

    def makeService(self, context: Any, configuration: Any) -> Any:
        if "make" in self.raises:
            raise self.raises["make"]
        self.configurations.append(configuration)
        self.made.append(Sample(context))
        self.made[-1].raises = self.raises
        return self.made[-1]


class Departed(Exception):
    """The start was ended with this sentence."""


def abortStart(sentence: str) -> NoReturn:
    """End the start."""
    raise Departed(sentence)


class ExtensionServiceTests(SynchronousTestCase):
    """One extension beside a broker."""

    def setUp(self) -> None:
        """A broker, and a client who publishes."""
        self.reactor: Any = MemoryReactorClock()
        self.broker = makeBroker(self.reactor)
        self.client = self.broker.join("test")

    def service(self, **raises: Exception) -> ExtensionService:
        """Return the service of a sample that raises these in its steps."""
        self.extension = SampleExtension(**raises)
        context = contextOf(self.broker, self.reactor)
        return ExtensionService(self.extension, {"n": 1}, context, abortStart)

    def started(self, **raises: Exception) -> ExtensionService:
        """Return the same, started as twistd does."""
        service = self.service(**raises)
        service.privilegedStartService()
        service.startService()
        return service

    def happens(self) -> None:
        """Let something happen that the sample takes note of."""
        self.broker.publish(
            Envelope(self.broker.topicFor(self.client, "a"), self.client, MessageSource()), text("1"), 1
        )
        self.broker.observers.counted("event", 1)

    def seen(self) -> tuple[int, int]:
        """Return how often the sample was told, and how many publications it got."""
        sample = self.extension.made[-1]
        return len([each for each in sample.witness.told if each[0] == "counted"]), len(sample.tapped.messages)

    def test_interfaces(self) -> None:
        """The context and the sample are what they say."""
        verifyObject(
            IExtensionContext,
            contextOf(self.broker, self.reactor),
        )
        verifyObject(IBrokerExtension, SampleExtension())

    def test_life(self) -> None:
        """It is made once, with its options, started, told of things, and stopped."""
        service = self.started()
        self.happens()
        self.assertEqual(self.seen(), (1, 1))
        self.successResultOf(service.stopService())
        self.assertEqual(self.extension.made[0].steps, ["privileged", "start", "stop"])
        self.assertEqual(self.extension.configurations, [{"n": 1}])

    def test_withoutPrivileges(self) -> None:
        """A start without the privileged step before it makes it as well."""
        service = self.service()
        service.startService()
        self.assertEqual(self.extension.made[0].steps, ["start"])
        self.successResultOf(service.stopService())

    def test_takenBack(self) -> None:
        """After its end it is told nothing more."""
        service = self.started()
        self.successResultOf(service.stopService())
        self.happens()
        self.assertEqual(self.seen(), (0, 0))

    def test_tookItselfOff(self) -> None:
        """An observer that took itself off before does not hinder the rest."""
        service = self.started()
        self.broker.observers.remove(self.extension.made[0].witness)
        self.successResultOf(service.stopService())
        self.happens()
        self.assertEqual(self.seen(), (0, 0))

    def test_restarted(self) -> None:
        """Started again, it is made anew."""
        service = self.started()
        self.successResultOf(service.stopService())
        service.startService()
        self.happens()
        self.assertEqual((len(self.extension.made), self.seen()), (2, (1, 1)))
        self.successResultOf(service.stopService())

    def test_brokenStart(self) -> None:
        """If a step of the start fails, that is logged, nothing of it stays registered, and the broker goes on."""
        for step in ("make", "privileged", "start"):
            service = self.started(**{step: ValueError("broken")})
            self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1, step)
            self.happens()
            if self.extension.made:
                self.assertEqual((self.seen(), "stop" in self.extension.made[0].steps), ((0, 0), False))
            self.successResultOf(service.stopService())

    def test_refusesToStart(self) -> None:
        """If it says that it cannot do what was asked, the start ends with its sentence."""
        for step in ("make", "privileged", "start"):
            error = self.assertRaises(Departed, self.started, **{step: SettingError("path is wrong")})
            self.assertEqual(str(error), "extension sample: path is wrong")
            self.happens()

    def test_brokenEnd(self) -> None:
        """If its end fails, that is logged, and nothing of it stays registered."""
        service = self.started(stop=ValueError("broken"))
        self.successResultOf(service.stopService())
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)
        self.happens()
        self.assertEqual(self.seen(), (0, 0))

    def test_slowEnd(self) -> None:
        """Its end is waited for, but not for ever; until then it is told what happens."""
        service = self.started()
        self.extension.made[0].ending = Deferred()
        ended = service.stopService()
        self.happens()
        self.reactor.advance(STOP_TIMEOUT - 0.1)
        self.assertNoResult(ended)
        self.assertEqual(self.seen(), (1, 1))
        self.reactor.advance(0.2)
        self.successResultOf(ended)
        self.assertEqual(len(self.flushLoggedErrors()), 1)


class ComposeTests(SynchronousTestCase):
    """Extensions of a whole broker."""

    def test_turnedOn(self) -> None:
        """What the settings name is made with its options; what they do not is left alone."""
        chosen, other = SampleExtension(), SampleExtension()
        other.name = "other"
        registry = Registry.of(installed().dialects.values(), [chosen, other])
        reactor: Any = MemoryReactorClock()
        whole = compose(reactor, Settings(extension=(EnabledExtension("sample", {"n": 2}),)), abortStart, registry)
        self.assertEqual(chosen.made, [])
        whole.privilegedStartService()
        whole.startService()
        self.assertEqual((len(chosen.made), chosen.configurations, other.made), (1, [{"n": 2}], []))
        whole.stopService()
        self.assertEqual(chosen.made[0].steps, ["privileged", "start", "stop"])

    def test_unknown(self) -> None:
        """A name that nobody has is refused before anything starts."""
        registry = Registry.of(installed().dialects.values(), [])
        settings = Settings(extension=(EnabledExtension("x"),))
        self.assertRaises(SettingError, compose, MemoryReactorClock(), settings, abortStart, registry)
