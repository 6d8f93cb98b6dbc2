"""The times of recurring schedules, over the days on which clocks are set for summer time too."""

from datetime import UTC, datetime
from importlib.util import find_spec

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from fleximq.errors import BadRequest
from fleximq.values.occurrences import CronTimes, Interval, Never, Occurrences


def at(text: str) -> int:
    """Return the milliseconds since 1970 of a moment in UTC, e.g. 2026-03-29 01:30."""
    return int(datetime.fromisoformat(f"{text}+00:00").timestamp() * 1000)


def hours(times: CronTimes, start: str, number: int) -> list[str]:
    """Return the first times after a moment in UTC, as day, hour and minute in UTC."""
    found, time = [], at(start)
    for _ in range(number):
        following = times.after(time)
        assert following is not None
        time = following
        found.append(f"{datetime.fromtimestamp(time / 1000, UTC):%d %H:%M}")
    return found


class IntervalTests(SynchronousTestCase):
    """Every so many milliseconds."""

    @given(st.integers(0, 10**6), st.integers(1, 10**4), st.integers(-(10**6), 10**7))
    def test_afterAndLast(self, start: int, every: int, time: int) -> None:
        """Each is the nearest of the times start + every, start + 2 every, and so on."""
        times = Interval(start, every)
        following, last = times.after(time), times.last(time)
        self.assertEqual((following - start) % every, 0)
        self.assertGreater(following, max(time, start))
        self.assertTrue(following - every <= time or following == start + every)
        if last is None:
            self.assertLess(time, start + every)
        else:
            self.assertEqual(times.after(last), last + every)
            self.assertTrue(last <= time < last + every)

    def test_never(self) -> None:
        """There is no time."""
        times: Occurrences = Never()
        self.assertEqual((times.after(5), times.last(5)), (None, None))


class CronTests(SynchronousTestCase):
    """Expressions in the time zone of Berlin, whose clocks are set on 2026-03-29 and 2026-10-25 at 01:00 UTC."""

    if find_spec("cronsim") is None:
        skip = "cronsim is not installed"

    def test_fixedHourFollowsTheLocalClock(self) -> None:
        """An hour earlier in UTC from the day on which summer time begins."""
        times = CronTimes("0 6 * * *", "Europe/Berlin")
        self.assertEqual(hours(times, "2026-03-27 12:00", 3), ["28 05:00", "29 04:00", "30 04:00"])

    def test_hourThatADayDoesNotHave(self) -> None:
        """It is due at the end of the gap, 03:00 in Berlin."""
        times = CronTimes("30 2 * * *", "Europe/Berlin")
        self.assertEqual(hours(times, "2026-03-28 00:00", 3), ["28 01:30", "29 01:00", "30 00:30"])

    def test_hourThatADayHasTwice(self) -> None:
        """It is due once, also if the question is asked in the second one."""
        times = CronTimes("30 2 * * *", "Europe/Berlin")
        self.assertEqual(hours(times, "2026-10-24 12:00", 2), ["25 00:30", "26 01:30"])
        for start in ("2026-10-25 00:45", "2026-10-25 01:15", "2026-10-25 01:30", "2026-10-25 01:45"):
            self.assertEqual(hours(times, start, 1), ["26 01:30"])

    def test_minutesByElapsedTime(self) -> None:
        """No gap and no repeat."""
        times = CronTimes("*/30 * * * *", "Europe/Berlin")
        self.assertEqual(hours(times, "2026-03-29 00:30", 3), ["29 01:00", "29 01:30", "29 02:00"])
        expected = ["25 00:30", "25 01:00", "25 01:30", "25 02:00"]
        self.assertEqual(hours(times, "2026-10-25 00:00", 4), expected)

    def test_last(self) -> None:
        """The one at a moment or before it."""
        times = CronTimes("0 6 * * MON", "UTC")
        monday = at("2026-11-23 06:00")
        self.assertEqual([times.last(monday + more) for more in (0, 1, 999, 5 * 86_400_000)], [monday] * 4)
        self.assertEqual(times.last(monday - 1), monday - 7 * 86_400_000)

    @given(st.integers(at("2026-03-28 22:00"), at("2026-03-29 06:00")))
    def test_lastIsBeforeTheNext(self, time: int) -> None:
        """Around the gap of summer time."""
        times = CronTimes("*/7 1-3 * * *", "Europe/Berlin")
        last, following = times.last(time), times.after(time)
        assert last is not None and following is not None
        self.assertTrue(last <= time < following)
        self.assertEqual(times.after(last), following)

    def test_secondsAsASixthField(self) -> None:
        """The first of them."""
        times = CronTimes("*/20 * * * * *", "UTC")
        start = at("2026-11-23 06:00")
        self.assertEqual(times.after(start), start + 20_000)

    def test_wrongExpressions(self) -> None:
        """Each is refused with a sentence."""
        for expression in ("", "x", "* * * *", "61 * * * *", "* * 31 2 *x", "*" * 300):
            with self.assertRaises(BadRequest):
                CronTimes(expression, "UTC")
        for zone in ("", "Nowhere", "../etc/passwd", "/etc/passwd", "\0"):
            with self.assertRaises(BadRequest):
                CronTimes("* * * * *", zone)
