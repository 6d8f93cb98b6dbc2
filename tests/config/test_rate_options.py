"""What an operator writes about rates."""

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from fleximq.cli.check_config import asToml
from fleximq.config.option_values import oneOf
from fleximq.config.rate_options import OverRate, Rate, byteRate, formattedByteRate, rate
from fleximq.config.settings import Settings
from fleximq.errors import SettingError


class RateTests(SynchronousTestCase):
    """Rates, as text and as values of a TOML file."""

    def test_counts(self) -> None:
        """So many a second, and at once: as many as come in a second, one at least, if nothing else is said."""
        for written, read in {
            "1000": Rate(1000, 1000),
            1000: Rate(1000, 1000),
            "1000,5000": Rate(1000, 5000),
            " 0.5 , 3 ": Rate(0.5, 3),
            0.1: Rate(0.1, 1),
            "0": None,
            "0,5": None,
            0: None,
        }.items():
            self.assertEqual(rate("x", written), read, written)

    def test_bytesMayHaveUnits(self) -> None:
        """Bytes may have units."""
        for written, read in {
            "1MiB": Rate(1 << 20, 1 << 20),
            "1KiB,1MiB": Rate(1 << 10, 1 << 20),
            4096: Rate(4096, 4096),
            "0": None,
        }.items():
            self.assertEqual(byteRate("x", written), read, written)

    def test_whatIsNoRateIsRefusedByOneSentenceThatNamesOption(self) -> None:
        """What is no rate is refused by one sentence that names the option."""
        wrong: tuple[Any, ...] = ("", "x", "-1", "1,", "1,0", "1,2,3", "1e3", -1, True, None, [1], float("nan"), "1e-9")
        for read in (rate, byteRate):
            for written in wrong:
                error = self.assertRaises(SettingError, read, "max-x-rate", written)
                self.assertTrue(str(error).startswith(f"max-x-rate is {written!r}, but must be a number"), str(error))

    def test_rateIsNeitherTooSmallNorTooLarge(self) -> None:
        """Neither too little nor too much."""
        self.assertEqual(rate("x", "0.000001"), Rate(1e-6, 1))
        self.assertEqual(rate("x", 1e15), Rate(1e15, 1e15))
        self.assertRaises(SettingError, rate, "x", 1e-7)
        self.assertRaises(SettingError, rate, "x", 1.1e15)

    def test_thereAndBack(self) -> None:
        """What is shown is what was read."""
        for written in ("1000", "1000,5000", "0.5,3", "0.25", "1,1"):
            found = rate("x", written)
            self.assertEqual(rate("x", str(found)), found)
        for written in ("1MiB", "1KiB,64MiB", "1000,1001"):
            found = byteRate("x", written)
            assert found is not None
            self.assertEqual(byteRate("x", formattedByteRate(found)), found)

    def test_overRate(self) -> None:
        """What happens over the rate is one of two words."""
        self.assertEqual(
            [oneOf(OverRate)("x", word) for word in ("pause", "refuse")], [OverRate.PAUSE, OverRate.REFUSE]
        )
        error = self.assertRaises(SettingError, oneOf(OverRate), "over-rate", "kill")
        self.assertEqual(str(error), "over-rate is 'kill', but must be one of pause, refuse")

    def test_checkConfigShowsRatesAsTheyAreWritten(self) -> None:
        """check-config shows rates as they are written."""
        settings = Settings.of(
            {"max-message-rate": "10,20", "max-byte-rate": "1MiB,2MiB", "over-rate": "refuse", "max-disconnects": 15}
        )
        self.assertEqual(
            asToml(settings),
            [
                'max-message-rate = "10,20"',
                'max-byte-rate = "1MiB,2MiB"',
                'over-rate = "refuse"',
                "max-disconnects = 15",
            ],
        )
