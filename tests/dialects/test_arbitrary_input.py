"""Whatever BlipMQ and MiniMQ clients say, nothing happens that nobody foresaw."""

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.protocol import Factory
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from fleximq.dialects.blipmq import BlipFactory
from fleximq.dialects.minimq import MiniFactory
from fleximq.limits import Limits
from fleximq.wire.blipmq_frame import FrameType, encodeFrame
from tests.dialects.blipmq.case import ack, auth, hello, poll, publish, subscribe
from tests.dialects.conversations import Peer, makeContext

topics = st.sampled_from(["", "a", "b", "$dead/a", "$sys/a", "é"])
ids = st.integers(0, 3)
qualities = st.integers(0, 2)
frames = st.one_of(
    st.builds(encodeFrame, st.sampled_from(FrameType), ids, st.binary(max_size=12)),
    st.builds(lambda topic, qos, message: publish(topic, message, qos), topics, qualities, st.binary(max_size=5)),
    st.builds(subscribe, topics, qualities),
    st.builds(poll, ids),
    st.builds(ack, ids, ids),
    st.sampled_from([hello(), auth(), hello() + auth()]),
)
ends = st.sampled_from([b"\n", b"\r\n"])
words = st.sampled_from([b"PRODUCE:", b"CONSUME:", b"ACK:", b"PING:", b"FOO:", b""])
fields = st.one_of(st.sampled_from([b"a", b"b", b"$dead/a", b"NO_MSG", b"", b":::", b":"]), st.binary(max_size=5))
lines = st.builds(
    lambda word, parts, separator, end: word + separator.join(parts) + end,
    words,
    st.lists(fields, max_size=6),
    st.sampled_from([b":::", b":"]),
    ends,
)


class ArbitraryTests(SynchronousTestCase):
    """Words of the dialects in any order, mixed with noise, cut anywhere."""

    def talk(self, factory: Factory, said: bytes, cut: int) -> bytes:
        """Say it in two pieces, end the input, and return the answers."""
        peer = Peer(factory)
        peer.say(said[:cut]).say(said[cut:])
        if not peer.closed:
            peer.endInput()
        self.assertTrue(peer.closed)
        answers = peer.heard()
        peer.leave()
        self.assertEqual(self.flushLoggedErrors(), [])
        return answers

    @given(st.lists(st.one_of(frames, frames, frames, st.binary(max_size=20)), max_size=30), st.integers(0, 400))
    def test_blipmq(self, said: list[bytes], cut: int) -> None:
        """No BlipMQ frames lead to an internal error."""
        context = makeContext(Clock(), limits=Limits(queueMessages=2, subscriptions=2))
        answers = self.talk(BlipFactory(context), hello() + auth() + b"".join(said), cut)
        self.assertNotIn(b"internal error", answers)

    @given(st.lists(st.one_of(lines, lines, lines, st.binary(max_size=20)), max_size=30), st.integers(0, 400))
    def test_minimq(self, said: list[bytes], cut: int) -> None:
        """No MiniMQ lines lead to an internal error, and every line but an ACK has one answer."""
        context = makeContext(Clock(), limits=Limits(queueMessages=2))
        whole = b"".join(said)
        answers = self.talk(MiniFactory(context), whole, cut)
        self.assertNotIn(b"internal error", answers)
        asked = [line for line in whole.split(b"\n")[:-1] if not line.startswith(b"ACK:")]
        self.assertEqual(answers.count(b"\n"), len(asked))
