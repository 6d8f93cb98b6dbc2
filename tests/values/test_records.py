"""Runs on their way into the journal, and batches on their way out."""

from collections.abc import Sequence
from dataclasses import replace

import msgpack
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from fleximq.values.message import Content, Message
from fleximq.values.publication_head import headOf
from fleximq.values.records import (
    CONTENTS,
    DIALECTS,
    OTHER_DIALECT,
    SCHEDULED,
    Blobs,
    Run,
    StoredBatch,
    contentOf,
    headerOf,
    idsOf,
    runOf,
)

IDS = st.none() | st.text(max_size=3)
MESSAGES = st.lists(
    st.builds(
        Message,
        st.binary(max_size=5),
        st.sampled_from(Content),
        st.integers(0, 1),
        IDS,
        IDS,
        IDS,
        st.booleans(),
        st.booleans(),
        head=st.none(),
    ),
    max_size=12,
)
TOPICS = ("news", "sport", "weather")


def column(blobs: Sequence[bytes], first: int = 0) -> Blobs:
    """Return byte strings as a batch read from the disk has them."""
    ends = [first]
    for blob in blobs:
        ends.append(ends[-1] + len(blob))
    return Blobs(b"".join(blobs), ends)


def batchOf(messages: Sequence[Message], lazy: bool = True, dialect: str = "minimq") -> StoredBatch:
    """Return messages as a batch, on three topics in turn, with offsets from 100 on."""
    run = runOf(messages)
    count = len(messages)
    headers = [run.headers] * count if isinstance(run.headers, bytes) else list(run.headers)
    contents = [run.contents] * count if isinstance(run.contents, int) else run.contents
    return StoredBatch(
        range(100, 100 + count),
        range(count),
        TOPICS,
        [place % 3 for place in range(count)],
        [(1000, "one")],
        [0] * count,
        [DIALECTS[dialect]] * count,
        contents,
        column(headers) if lazy else headers,
        column(list(run.payloads)) if lazy else list(run.payloads),
    )


def numbered(messages: Sequence[Message]) -> list[Message]:
    """Return messages with the offsets of :func:`batchOf`."""
    return [message._replace(offset=100 + place) for place, message in enumerate(messages)]


def texts(*payloads: bytes) -> list[Message]:
    """Return plain messages."""
    return [Message(payload, Content.TEXT) for payload in payloads]


class RunTests(SynchronousTestCase):
    """What the journal keeps of messages."""

    def test_messagesThatHaveHeaderAndContentInCommonSaySoOnce(self) -> None:
        """Messages that have header and content in common say so once."""
        self.assertEqual(runOf(texts(b"a", b"b")), Run(b"", [b"a", b"b"], 0x102))

    def test_idsAreHeaderByNamesOfFlexiMQHeaderKeys(self) -> None:
        """Ids are the header, by the names of the FlexiMQ header keys; an empty id is one too."""
        run = runOf([Message(b"a", Content.BYTES, 0, "m", None, ""), Message(b"b", Content.BYTES, 0)])
        self.assertEqual(run, Run([msgpack.packb({"message_id": "m", "reply_to": ""}), b""], [b"a", b"b"], 1))

    def test_onlyAnId(self) -> None:
        """A header with nothing but a message_id is MessagePack like any other, however long that is."""
        for id in ("", "m", "é" * 15, "x" * 31, "x" * 32, "x" * 255, "é" * 127, "é" * 128, "x" * 256, "x" * 70_000):
            self.assertEqual(headerOf(Message(b"", Content.TEXT, 1, id)), msgpack.packb({"message_id": id}))

    def test_noMessagesAreEmptyRun(self) -> None:
        """No messages are an empty run."""
        self.assertEqual(len(runOf([]).payloads), 0)

    def test_eachContentHasCodeOfItsOwnWhichMeansJustThat(self) -> None:
        """Each content has a code of its own, which means just that, and one for publications of schedules."""
        self.assertEqual(len(CONTENTS), 48)
        for code, (content, qos, legacy, line) in CONTENTS.items():
            self.assertEqual(contentOf(Message(b"", content, qos, legacy=legacy, line=line)), code & ~SCHEDULED)

    def test_brokersOwnDialectsHaveCodesAllOthersShareOne(self) -> None:
        """The broker's own dialects have codes, all others share one."""
        self.assertEqual(list(DIALECTS.values()), [0, 1, 2, 3, 4])
        self.assertNotIn(OTHER_DIALECT, DIALECTS.values())


class IdsTests(SynchronousTestCase):
    """Ids read from headers."""

    def test_idsAreFoundAmongOtherKeys(self) -> None:
        """They are found among other keys, even such as cannot be hashed."""
        header = b"\x83\x91\x01\x02" + msgpack.packb({"reply_to": "r", "key": {"message_id": "no"}})[1:]
        self.assertEqual(idsOf(header), (None, None, "r"))

    def test_ofTwoLastOneCountsAsForEveryReaderOfMessagePack(self) -> None:
        """Of two, the last one counts, as for every reader of MessagePack."""
        self.assertEqual(idsOf(b"\x82\xaamessage_id\xa1a\xaamessage_id\xa1b"), ("b", None, None))

    def test_whatIsNoMapOrHasSomethingElseThanTextHasNoIds(self) -> None:
        """What is no map, or has something else than text, has no ids."""
        for header in (b"", b"\x80", b"\x91\x01", b"\x01", b"\xc1", b"\x81\xaamessage_id\x05", b"\x81\xa1"):
            self.assertEqual(idsOf(header), (None, None, None), header)

    def test_longHeadersAreReadAsWell(self) -> None:
        """Long headers are read as well."""
        header = msgpack.packb({"x": "y" * 5000, "message_id": "m"})
        self.assertEqual(idsOf(header), ("m", None, None))


class BatchTests(SynchronousTestCase):
    """Records as messages."""

    @given(MESSAGES, st.booleans())
    def test_thereAndBack(self, messages: list[Message], lazy: bool) -> None:
        """What was kept comes back as it was, with its offset; all at once or one by one."""
        batch = batchOf(messages, lazy)
        self.assertEqual(batch.messages(), numbered(messages))
        self.assertEqual([batch.message(place) for place in range(len(batch))], numbered(messages))

    @given(MESSAGES, st.booleans())
    def test_recordsOfFlexiMQHaveHeads(self, messages: list[Message], lazy: bool) -> None:
        """Records from clients of FlexiMQ have heads with topic, header and publisher, all at once or one by one."""
        batch = batchOf(messages, lazy, "fleximq")
        heads = [headOf(TOPICS[place % 3], headerOf(message), 1000) for place, message in enumerate(messages)]
        self.assertEqual([message.head for message in batch.messages()], heads)
        self.assertEqual([batch.message(place).head for place in range(len(batch))], heads)

    def test_recordsWithEqualHeadersShareOneHead(self) -> None:
        """Records of one topic with equal headers share one head."""
        first, *_, fourth = batchOf([Message(b"a", Content.TEXT, message_id="m")] * 4, dialect="fleximq").messages()
        self.assertIs(first.head, fourth.head)

    def test_recordsOfSeveralBatchesShareOneHead(self) -> None:
        """Each commit makes a batch of its own: deliveries of small ones have one head all the same."""
        one, other = (batchOf([Message(b"a", Content.TEXT)], dialect="fleximq").messages()[0] for _ in range(2))
        self.assertIs(one.head, other.head)

    @given(MESSAGES.filter(bool), st.lists(st.binary(max_size=5)), st.booleans(), st.sampled_from(sorted(DIALECTS)))
    def test_recordsOfOneRun(self, messages: list[Message], more: list[bytes], lazy: bool, dialect: str) -> None:
        """Records that differ only in their payloads are the same messages at once as one by one."""
        run = [messages[0], *(messages[0]._replace(payload=payload) for payload in more)]
        batch = replace(batchOf(run, lazy, dialect), topicOf=[0] * len(run))
        self.assertEqual(batch.messages(), [batch.message(place) for place in range(len(run))])

    @given(MESSAGES.filter(bool), st.data(), st.booleans())
    def test_recordsWithinABound(self, messages: list[Message], data: st.DataObject, lazy: bool) -> None:
        """So many have a number of bytes, and without the last one fewer; it is one at least."""
        place, most = data.draw(st.integers(0, len(messages) - 1)), data.draw(st.integers(0, 30))
        sizes = [len(message.payload) for message in messages[place:]]
        number = batchOf(messages, lazy).within(place, most)
        self.assertTrue(sum(sizes[:number]) >= most or number == len(sizes))
        self.assertTrue(number == 1 or (number > 1 and sum(sizes[: number - 1]) < most))

    def test_recordsAreMessagesAndNotTuples(self) -> None:
        """They are messages, not just tuples that look the same."""
        self.assertEqual({type(each) for each in batchOf(texts(b"a", b"b")).messages()}, {Message})
        self.assertIs(type(batchOf(texts(b"a")).message(0)), Message)

    @given(MESSAGES, st.booleans(), st.booleans())
    def test_sizeIsThatOfHeadersAndPayloadsBeforeAndAfterTheyWereCutApart(
        self, messages: list[Message], lazy: bool, cut: bool
    ) -> None:
        """The size is that of headers and payloads, before and after they were cut apart."""
        batch = batchOf(messages, lazy)
        wanted = sum(map(len, batch.headers)) + sum(map(len, batch.payloads)) if cut else batch.size
        self.assertEqual(batch.size, wanted)
        self.assertEqual(batch.size, sum(map(len, batch.headers)) + sum(map(len, batch.payloads)))

    @given(MESSAGES, st.data(), st.booleans())
    def test_anyRecordsCanBePickedWithAllTheirColumns(
        self, messages: list[Message], data: st.DataObject, lazy: bool
    ) -> None:
        """Any records can be picked, with all their columns."""
        places = sorted(data.draw(st.sets(st.integers(0, len(messages) - 1)))) if messages else []
        batch = batchOf(messages, lazy)
        picked = batch.pick(places)
        self.assertEqual(picked.messages(), [numbered(messages)[place] for place in places])
        self.assertEqual([TOPICS[each] for each in picked.topicOf], [TOPICS[place % 3] for place in places])
        self.assertEqual(list(picked.timestamps), places)

    @given(MESSAGES, st.integers(0, 12), st.integers(0, 12), st.integers(0, 12), st.booleans())
    def test_neighboursCanBePickedByRangeAndNeighboursOfTheseAgain(
        self, messages: list[Message], start: int, stop: int, more: int, lazy: bool
    ) -> None:
        """Neighbours can be picked by a range, and neighbours of these again."""
        picked = batchOf(messages, lazy).pick(range(start, stop))
        self.assertEqual(picked.messages(), numbered(messages)[start:stop])
        self.assertEqual(picked.pick(range(more, 12)).messages(), numbered(messages)[start:stop][more:])
        self.assertEqual([picked.message(place) for place in range(len(picked))], numbered(messages)[start:stop])

    def test_recordsOfSomeTopics(self) -> None:
        """Records of some topics: their own places are kept, and each topic is asked for once."""
        asked = []
        batch = batchOf(texts(b"a", b"b", b"c", b"d"))

        def wanted(topic: str) -> bool:
            asked.append(topic)
            return topic == "news"

        self.assertEqual(
            [(each.payload, each.offset) for each in batch.only(wanted).messages()], [(b"a", 100), (b"d", 103)]
        )
        self.assertEqual(asked, list(TOPICS))

    def test_onlyAllOrNone(self) -> None:
        """Where all are wanted the batch is the same one; where none are, it is empty."""
        batch = batchOf(texts(b"a", b"b"))
        self.assertIs(batch.only(lambda _: True), batch)
        self.assertEqual(len(batch.only(lambda _: False)), 0)
        self.assertEqual(batch.only(lambda _: False).messages(), [])


class BlobsTests(SynchronousTestCase):
    """Byte strings one behind the other."""

    @given(st.lists(st.sampled_from([b"", b"a", b"aa", b"ab", b"abab"]), min_size=1, max_size=6), st.integers(0, 9))
    def test_areAlike(self, blobs: list[bytes], first: int) -> None:
        """All are equal, and not only the bytes of all together."""
        self.assertEqual(column(blobs, first).areAlike, len(set(blobs)) == 1)

    @given(st.lists(st.binary(max_size=3)), st.integers(0, 9))
    def test_blobsComeApartWhereTheyWereJoined(self, blobs: list[bytes], first: int) -> None:
        """They come apart where they were joined, wherever the counting begins."""
        blob = column(blobs, first)
        self.assertEqual(blob.cut(), blobs)
        self.assertEqual([blob[place] for place in range(len(blob))], blobs)
