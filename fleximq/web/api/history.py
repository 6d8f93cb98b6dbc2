"""``/api/history``: what the broker did in the last hour and the last day, from rings of fixed size.

The service that measures the delay of the event loop calls :meth:`History.second`; each :data:`STEP` seconds that takes
one sample of the counters. Messages cause no work here. Both rings take 240 KB.
"""

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any

from fleximq.broker.broker import Broker
from fleximq.broker.paths.arguments import begin, number
from fleximq.broker.traffic import Traffic
from fleximq.errors import BadRequest
from fleximq.values.counted_event import CountedEvent, EventFamily
from fleximq.web.request import Argument, HttpReply, Page, PageRequest, jsonReply

#: Seconds between two samples, and how many samples the ring of the last hour has.
STEP, SAMPLES = 5, 720
#: The same of the ring of the last day.
LONG_STEP, LONG_SAMPLES = 60, 1440
#: Work queues that are looked at for each sample; the ages of messages in others count from the first request.
QUEUES = 1000
_FAMILIES = {
    "dropped": EventFamily.DROPPED,
    "errors": EventFamily.ERROR,
    "dead_letters": EventFamily.DEAD_LETTERS,
    "refused_connections": EventFamily.REFUSED_CONNECTIONS,
}
#: Averages in a second since the sample before.
RATES = ("received_messages", "delivered_messages", "received_bytes", "sent_bytes", "stored_messages", *_FAMILIES)
#: Values at the time of the sample, but ``lag`` is the largest since the sample before.
VALUES = ("connections", "clients", "topics", "journal_end", "journal_bytes", "lag")

_ARGUMENTS = (
    Argument("since", "Samples after this time, in milliseconds since 1970: ``next`` of another answer.", "integer"),
    Argument("step", f"Seconds between samples: {STEP} for the last hour, {LONG_STEP} for the last day.", "integer"),
)


class Ring:
    """Samples of fixed number: columns of numbers, and their times in milliseconds since 1970."""

    def __init__(self, length: int) -> None:
        self._length, self._taken = length, 0
        self._columns = {name: array("d", bytes(8 * length)) for name in ("time", *RATES, *VALUES)}

    def add(self, sample: Mapping[str, float]) -> None:
        """Add a sample in place of the oldest one."""
        place = self._taken % self._length
        for name, column in self._columns.items():
            column[place] = sample[name]
        self._taken += 1

    def since(self, time: int) -> dict[str, list[float]]:
        """Return the columns of the samples after this time, oldest first."""
        first = max(0, self._taken - self._length)
        times = self._columns["time"]
        places = [each % self._length for each in range(first, self._taken)]
        places = [place for place in places if times[place] > time]
        return {name: [round(column[place], 3) for place in places] for name, column in self._columns.items()}

    def growth(self, name: str) -> float | None:
        """Return by how much a column has grown in a second on average; None if that is not known yet."""
        first, last = max(0, self._taken - self._length), self._taken - 1
        if last <= first:
            return None
        (begun, before), (ended, after) = (
            (self._columns["time"][each % self._length], self._columns[name][each % self._length])
            for each in (first, last)
        )
        return (after - before) / max(0.001, (ended - begun) / 1000)

    def sums(self, name: str, number: int) -> float:
        """Return the sum of the latest samples of a column, of this number of them."""
        first = max(0, self._taken - min(number, self._length))
        return sum(self._columns[name][each % self._length] for each in range(first, self._taken))


@dataclass(eq=False, repr=False)
class History:
    """The rings, and the page. ``lag`` returns the delay of the event loop in seconds."""

    _broker: Broker
    _lag: Callable[[], float]
    hour: Ring = field(default_factory=lambda: Ring(SAMPLES))
    day: Ring = field(default_factory=lambda: Ring(LONG_SAMPLES))
    _seconds: int = 0
    _latest: float = 0.0
    _journal: str = ""
    _worst: float = 0.0
    _minute: list[Mapping[str, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        now = self._broker.clock.seconds()
        # So the times ascend also if the system clock is set back.
        self._base = self._broker.wall() - now
        self._latest = now
        self._before: Mapping[str, float] = dict.fromkeys(RATES, 0) | {"stored_messages": self._broker.journal.end}

    def second(self) -> None:
        """Take a sample, if it is time; many connections are counted in several turns."""
        self._seconds += 1
        self._worst = max(self._worst, self._lag())
        if self._seconds % STEP == 0:
            begin(self._broker, self._steps())

    def growth(self, name: str) -> float | None:
        """Return by how much a value has grown in a second on average in the last day, or the last hour."""
        ofDay = self.day.growth(name)
        return self.hour.growth(name) if ofDay is None else ofDay

    def _steps(self) -> Iterator[None]:
        broker, now, total = self._broker, self._broker.clock.seconds(), Traffic()
        yield from broker.traffic.addTo(total)
        end = broker.journal.end
        counters = {
            "received_messages": total.messagesIn,
            "delivered_messages": total.messagesOut,
            "received_bytes": total.bytesIn,
            "sent_bytes": total.bytesOut,
            "stored_messages": end,
            **_counted(broker.counts.events),
        }
        before = self._before
        if self._journal != broker.journal.id:  # opened meanwhile: its earlier messages are not new
            before = {**before, "stored_messages": end}
            self._journal = broker.journal.id
        seconds = max(now - self._latest, 0.001)
        sample = {name: max(0.0, counters[name] - before[name]) / seconds for name in RATES} | {
            "time": round((self._base + now) * 1000),
            "seconds": seconds,
            "connections": sum(broker.traffic.connections().values()),
            "clients": len(broker.clients),
            "topics": len(broker.topics),
            "journal_end": end if broker.journal.onDisk else 0,
            "journal_bytes": (broker.journalHealth() or {}).get("bytes", 0),
            "lag": self._worst,
        }
        self._before, self._latest, self._worst = counters, now, 0.0
        self.hour.add(sample)
        self._minute.append(sample)
        if len(self._minute) == LONG_STEP // STEP:
            self.day.add(_average(self._minute))
            self._minute = []
        yield from self._queues()

    def _queues(self) -> Iterator[None]:
        """Look at queues, since an age counts from the look after the message's arrival."""
        broker = self._broker
        for queue in tuple(islice(broker.queues, QUEUES)):
            for lane in queue.lanes:
                broker.queueAges.ageOfOldest(lane, broker.clock.seconds())
            yield

    async def answer(self, request: PageRequest) -> HttpReply:
        """Return the columns of one ring."""
        since, step = number(request.arguments, "since", 0), number(request.arguments, "step", STEP)
        if step not in (STEP, LONG_STEP):
            raise BadRequest(f"'step' must be {STEP} or {LONG_STEP}")
        columns: dict[str, Any] = (self.hour if step == STEP else self.day).since(since)
        times = [int(time) for time in columns.pop("time")]
        return jsonReply({"step": step, "time": times, "next": times[-1] if times else since, "series": columns})


def historyPage(history: History) -> Page:
    """Return the page."""
    words = "Rates in a second, and numbers of clients and so on, of the last hour or day: one list for each."
    return Page(partial(History.answer, history), words=words, arguments=_ARGUMENTS, everywhere=True)


def _counted(events: Mapping[str, int]) -> dict[str, int]:
    found = dict.fromkeys(_FAMILIES.values(), 0)
    for event, count in events.items():
        if isinstance(event, CountedEvent) and event.family in found:
            found[event.family] += count
    return {name: found[family] for name, family in _FAMILIES.items()}


def _average(samples: Sequence[Mapping[str, float]]) -> Mapping[str, float]:
    last = dict(samples[-1])
    seconds = sum(each["seconds"] for each in samples)
    last |= {name: sum(each[name] * each["seconds"] for each in samples) / seconds for name in RATES}
    return last | {"lag": max(each["lag"] for each in samples)}
