"""How values of options that several jobs share are read."""

from twisted.trial.unittest import SynchronousTestCase

from fleximq.errors import SettingError
from fleximq.pipeline.command.job import duration, namespace, place, positiveNumber, streamStart


class ValuesTests(SynchronousTestCase):
    """Each reader takes what can be, and names what cannot."""

    def test_placeIsOneUrlOrSeveral(self) -> None:
        for written in ("tcp://localhost:7890", "tls://a:1,tcp://b:2", "tcp://a:1,b:2", "ipc:///run/fleximq.sock"):
            self.assertEqual(place("url", written), written)
        for written in ("localhost:7890", "http://localhost:7890", "ws://a:1", "tcp://", "", "tcp://a:1,ws://b:2"):
            error = self.assertRaises(SettingError, place, "into", written)
            self.assertEqual(
                str(error), f"into is {written!r}, but must be tcp://HOST:PORT, tls://HOST:PORT or ipc://PATH"
            )

    def test_countIsAWholeNumberFrom1(self) -> None:
        self.assertEqual([positiveNumber("limit", "1"), positiveNumber("limit", 7)], [1, 7])
        for written in ("0", "-3", "ten", "", 0, -3, True, 1.5):
            error = self.assertRaises(SettingError, positiveNumber, "limit", written)
            self.assertEqual(str(error), f"limit is {written!r}, but must be a whole number of at least 1")

    def test_durationIsMoreThan0(self) -> None:
        self.assertEqual([duration("gap", "5m"), duration("gap", 2)], [300_000_000, 2_000_000])
        for written in ("0s", "00ms", 0):
            error = self.assertRaises(SettingError, duration, "gap", written)
            self.assertEqual(str(error), f"gap is {written!r}, but must be more than 0, e.g. 500ms or 10s")
        error = self.assertRaises(SettingError, duration, "gap", "-1s")
        self.assertEqual(str(error), "gap is '-1s', but must be a duration, e.g. 500ms, 10s, 5m, 1h or 7d")

    def test_namespaceHasNoEmptyPart(self) -> None:
        self.assertEqual([namespace("namespace", "plant"), namespace("namespace", "a.b")], ["plant", "a.b"])
        for written in ("", ".", "a.", "a..b", " ", "a. .b", "a\n"):
            error = self.assertRaises(SettingError, namespace, "namespace", written)
            self.assertEqual(
                str(error),
                f"namespace is {written!r}, but must be a name, or several with single dots between them",
            )

    def test_startIsAWordOrOffsets(self) -> None:
        for written in ("earliest", "latest", "1200", '{"a": 3}'):
            self.assertEqual(streamStart("starting", written), written)
        self.assertEqual(streamStart("starting", 1200), "1200")
        error = self.assertRaises(SettingError, streamStart, "starting", "yesterday")
        self.assertEqual(str(error), "starting is 'yesterday', but must be earliest, latest or an offset")
