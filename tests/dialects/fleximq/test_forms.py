"""FlexiMQ runs as the broker carries them, and the form in which FlexiMQ subscribers take theirs."""

from collections.abc import Sequence
from typing import Any

import msgpack
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from fleximq.broker.envelope import ConnectedClient, Envelope, MessageSource
from fleximq.broker.schedules.schedule_header import firedHeader, publicationOf, waitingHeader
from fleximq.broker.topics.topic_table import Topic
from fleximq.dialects.fleximq.forms import FLEXI_FORM, FlexiSource, records
from fleximq.interfaces import IForm, ISource
from fleximq.values.message import Content, Message
from fleximq.values.message_run import MessageRun
from fleximq.values.publication_head import headOf
from fleximq.values.records import Run, StoredBatch, runOf
from fleximq.wire.fleximq_header import Header
from tests.wire.flexi_frames import cut, frame


def run(header: dict[str, Any], *payloads: bytes) -> tuple[FlexiSource, bytes]:
    """Return the source of a run, and its body."""
    envelope = len(frame("PUB", 1000, header)) - 8
    source = FlexiSource(envelope, Header(header, header["topic"]), 1000)
    return source, b"".join(frame("PUB", 1000, header, each) for each in payloads)


def rendered(source: ISource, body: Any, topic: str = "t") -> bytes:
    """Return what FlexiMQ subscribers get of a run from the client 1007."""
    envelope = Envelope(Topic(topic), ConnectedClient(1007, "any", "any-1007"), source)
    count = len(source.messages(body))
    return bytes(FLEXI_FORM.render(envelope, body, count))


class SourceTests(SynchronousTestCase):
    """Runs taken apart."""

    def test_interface(self) -> None:
        """It is a source."""
        verifyObject(ISource, FlexiSource(26, Header({})))

    def test_messages(self) -> None:
        """The payloads in order, each with the ids of the header and one head; QoS 1, MessagePack."""
        source, body = run({"topic": "t", "message_id": "m", "reply_to": "r"}, b"\x01", b"", b"\x02" * 300)
        head = headOf("t", msgpack.packb({"message_id": "m", "reply_to": "r"}), 1000)
        self.assertEqual(
            source.messages(body),
            [
                Message(each, Content.MESSAGEPACK, 1, "m", None, "r", head=head)
                for each in (b"\x01", b"", b"\x02" * 300)
            ],
        )
        self.assertIs(source.messages(body)[0].head, source.messages(body)[2].head)

    def test_messagesThatLeaveOneByOneAreSingle(self) -> None:
        """Those with a time or a key of their own; all others stay a run in a queue."""
        kinds = []
        for header in ({"topic": "t"}, {"topic": "t", "expires_in": 5}, {"topic": "t", "key": "k"}):
            source, body = run(header, b"\x01", b"\x02")
            queued = source.queued(body, 7)
            self.assertEqual([*queued], [each._replace(offset=7 + n) for n, each in enumerate(source.messages(body))])
            kinds.append(type(queued))
        self.assertEqual(kinds, [MessageRun, list, list])

    def test_sizeIsThatOfTheMessages(self) -> None:
        """With ids and long headers, and however long the payloads are."""
        for more in ({}, {"message_id": "mé", "reply_to": "r"}, {"x": "y" * 1000}):
            for payloads in ([b"\x01"], [b""] * 20, [b"\x01", b"\x02" * 300]):
                source, body = run({"topic": "t", **more}, *payloads)
                count = len(payloads)
                self.assertEqual(source.size(body, count), MessageSource.size(source, body, count))

    def test_run(self) -> None:
        """What is kept are the payloads, and one header for all, whose other pairs are as they were sent."""
        source, body = run({"topic": "t"}, b"\x01", b"", b"\x02" * 300)
        self.assertEqual(source.run(body), Run(b"", [b"\x01", b"", b"\x02" * 300], 0x100))
        source, body = run({"key": "k", "topic": "t", "reply_to": "r"}, b"\x01")
        self.assertEqual(source.run(body).headers, msgpack.packb({"key": "k", "reply_to": "r"}))

    def test_runOfMessages(self) -> None:
        """Made of the messages instead, it is the same."""
        source, body = run({"topic": "t", "message_id": "m", "reply_to": "r"}, b"\x01", b"\x02")
        self.assertEqual(source.run(body), runOf(source.messages(body)))

    def test_pick(self) -> None:
        """Some of the frames, whole."""
        source, body = run({"topic": "t"}, b"a", b"", b"ccc", b"d")
        self.assertEqual(source.pick(body, [0, 2]), run({"topic": "t"}, b"a", b"ccc")[1])
        self.assertEqual(source.pick(body, [1]), run({"topic": "t"}, b"")[1])
        self.assertEqual(source.pick(body, range(4)), body)


class FormTests(SynchronousTestCase):
    """Runs on their way to FlexiMQ subscribers."""

    def test_interface(self) -> None:
        """It is a form."""
        verifyObject(IForm, FLEXI_FORM)

    def test_verbatim(self) -> None:
        """A run from FlexiMQ goes as it came: the very same object."""
        source, body = run({"topic": "t"}, b"\x01", b"\x02")
        self.assertIs(rendered(source, body), body)

    def test_publicationsOfSchedules(self) -> None:
        """Each with the id and the due time of its schedule, and with its own keys."""
        own: list[dict[str, Any]] = [
            {},
            {"a": 1},
            {"a": 2},
            {"schedule": "mine"},
            {f"{number}": "v" * 40 for number in range(20)},
        ]
        waiting = [publicationOf(waitingHeader(msgpack.packb(each) if each else b"", "t", None, 7)) for each in own]
        headers = [firedHeader(waiting[number % len(own)], number, 70 + number) for number in range(12)]
        zeros, ones = [0] * len(headers), [1] * len(headers)
        payloads = [msgpack.packb(number) for number in zeros]
        publishers = [(1007, "any")]
        batch = StoredBatch(zeros, zeros, ["t"], zeros, publishers, zeros, ones, [0x800] * 12, headers, payloads)
        expected = [
            {"topic": "t", **own[number % len(own)], "schedule": {"id": number, "due": 70 + number}}
            for number in range(12)
        ]
        self.assertEqual([each.header for each in cut(records([batch], False))], expected)

    def frames(self, *messages: Message, topic: str = "t") -> Sequence[tuple[str, int, Any, Any]]:
        """Return what becomes of messages of another dialect."""
        heard = cut(rendered(MessageSource(), messages, topic))
        return [(each.kind, each.sender, each.header, each.value) for each in heard]

    def test_framed(self) -> None:
        """What comes from another dialect is framed with the publisher's id and the topic, a frame each."""
        self.assertEqual(
            self.frames(Message(b"one", Content.TEXT), Message(b"\xfftwo", Content.BYTES), topic="näme"),
            [("PUB", 1007, {"topic": "näme"}, "one"), ("PUB", 1007, {"topic": "näme"}, b"\xfftwo")],
        )

    def test_own(self) -> None:
        """MessagePack from the broker itself stays as it is."""
        [(_, _, _, value)] = self.frames(Message(msgpack.packb({"a": 1}), Content.MESSAGEPACK))
        self.assertEqual(value, {"a": 1})

    def test_ids(self) -> None:
        """Ids become header keys; those that are missing or empty are left out."""
        found = self.frames(
            Message(b"", Content.TEXT, 1, "m", "c", "r"),
            Message(b"", Content.TEXT, 1, None, "c", ""),
            Message(b"", Content.TEXT),
        )
        self.assertEqual(
            [header for _, _, header, _ in found],
            [
                {"topic": "t", "message_id": "m", "correlation_id": "c", "reply_to": "r"},
                {"topic": "t", "correlation_id": "c"},
                {"topic": "t"},
            ],
        )
