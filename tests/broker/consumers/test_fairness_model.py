"""A model of the consumers of one queue: whatever they do, each gets its share and at most its prefetch."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.broker.consumers.consuming import ConsumingCase, Worker
from tests.nightly import repetitions

_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.integers(1, 9)),
        st.tuples(st.just("come"), st.integers(1, 4)),
        st.tuples(st.sampled_from(("ack", "retry", "leave")), st.integers(0, 9)),
    ),
    max_size=30,
)


class FairnessTests(ConsumingCase):
    """Consumers that come, settle and leave."""

    rules: dict[str, Any] = {"maxDeliveries": 0}

    def begin(self) -> None:
        self.setUp()
        self.workers: list[tuple[Worker, int]] = []
        self.published = self.acknowledged = 0

    def unsettled(self, worker: Worker) -> set[int]:
        return set(self.queue.distribution.consumers[worker.client].unsettled)

    @settings(max_examples=repetitions(100, 2000), deadline=None)
    @given(_STEPS)
    def test_prefetchAndShares(self, steps: list[tuple[str, int]]) -> None:
        """No message waits while a consumer has room, none is at two of them, and a run is shared equally."""
        self.begin()
        for act, number in steps:
            if act == "publish":
                self.publishShared(number)
            elif act == "come":
                self.workers.append((self.worker(number), number))
            elif self.workers:
                self.act(act, *self.workers[number % len(self.workers)])
            self.check()

    def publishShared(self, number: int) -> None:
        """Publish a run: who has room for it gets no more than its share."""
        before = {worker.client: len(worker.got) for worker, _ in self.workers}
        rooms = [most - len(self.unsettled(worker)) for worker, most in self.workers]
        self.publish("x" * number)
        self.published += number
        share = -(-number // max(1, len(rooms)))
        if rooms and min(rooms) >= share:
            got = [len(worker.got) - before[worker.client] for worker, _ in self.workers]
            self.assertEqual((sum(got), max(got) <= share), (number, True))

    def act(self, act: str, worker: Worker, prefetch: int) -> None:
        """Settle one delivery, or leave."""
        if act == "leave":
            self.broker.stopConsuming(worker.client, "t")
            self.workers.remove((worker, prefetch))
            return
        for tag in sorted(self.unsettled(worker))[:1]:
            if act == "ack":
                self.assertEqual(self.broker.settle(worker.client, "t", [tag]), [])
                self.acknowledged += 1
            else:
                self.assertEqual(self.broker.settle(worker.client, "t", retries=[(tag, 0.0)]), [])

    def check(self) -> None:
        """Look at all consumers."""
        self.clock.advance(0)
        held = [self.unsettled(worker) for worker, _ in self.workers]
        for tags, (_, prefetch) in zip(held, self.workers, strict=True):
            self.assertLessEqual(len(tags), prefetch)
        total = sum(map(len, held))
        self.assertEqual(len(set().union(*held)), total)
        self.assertEqual((self.queue.inFlight, self.queue.depth + total), (total, self.published - self.acknowledged))
        if self.queue.depth:
            self.assertEqual(total, sum(prefetch for _, prefetch in self.workers))

    def test_singleMessagesGoAround(self) -> None:
        """One after the other, to consumers in the order in which they came."""
        workers = [self.worker(9) for _ in range(3)]
        for name in "abcdefg":
            self.publish(name)
        self.assertEqual([worker.names for worker in workers], ["adg", "be", "cf"])
