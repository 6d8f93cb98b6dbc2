"""MiniMQ messages: the forms of a PRODUCE, and deliveries that split back into what went in."""

import msgpack
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from fleximq.errors import BadRequest, InvalidTopic
from fleximq.values.message import Content, Message
from fleximq.wire.minimq_message import (
    MiniMessage,
    checkTopic,
    deliveryId,
    isId,
    isSpellable,
    parseProduce,
    readProduces,
    renderDelivery,
    renderRun,
)
from fleximq.wire.payload_conversion import toText

NEW = "01J00000000000000000000000"


def newId() -> str:
    return NEW


def parse(payload: str) -> MiniMessage:
    return parseProduce(payload, newId)


def render(message: Message, topic: str = "t", id: str = "1") -> str:
    return renderDelivery(message, topic, id).decode()


# Texts in which separators, line breaks and words with a meaning are likely.
awkwardText = st.lists(
    st.sampled_from([":", "::", ":::", "\n", "\r", "ERROR", "NO_MSG", "a", "é", '"', "\\", "\x85"])
    | st.text(max_size=3),
    max_size=6,
).map("".join)


#: Ids and contents of common messages.
_COMMON = [("1", "x"), ("é", ""), ("NO", "a:b::c:::d:"), ("a:b", ":\x85é"), ("ERR", "PRODUCE:")]
#: The parts of lines that are nearly common.
_LINE = (
    st.just(b"PRODUCE:") | st.sampled_from([b"CONSUME:", b"PRODUCE", b""]),
    st.sampled_from([b"1", b"", b":", b"a:", b"ERROR", b"NO_MSG", b"\xff", b"\r", b"\xc3\xa9"]),
    st.just(b"t") | st.sampled_from([b"u", b"", b":t", b"\xc3\xa9"]),
    awkwardText.map(str.encode) | st.sampled_from([b"x", b"\xff", b"x:::"]),
    st.just(b"::::::") | st.sampled_from([b":::::", b":::", b":::c:::r", b""]),
)


class ProduceTests(SynchronousTestCase):
    """What a PRODUCE says."""

    def test_documentExamples(self) -> None:
        """The messages of the document."""
        for payload, message in [
            (
                "b3d4a1e2-a8f1-4b2e-9a1c-12345abcdef:::rpc_requests:::hello world:::"
                "c9e8b7a6-f5d4-4c3b-8a2f-fedcba543210:::reply.temp-topic-123",
                MiniMessage(
                    "b3d4a1e2-a8f1-4b2e-9a1c-12345abcdef",
                    "rpc_requests",
                    "hello world",
                    "c9e8b7a6-f5d4-4c3b-8a2f-fedcba543210",
                    "reply.temp-topic-123",
                ),
            ),
            (
                "111-aaa:::my-topic:::This is a test message.::::::",
                MiniMessage("111-aaa", "my-topic", "This is a test message."),
            ),
            ("111-aaa:::logs:::User logged in.::::::", MiniMessage("111-aaa", "logs", "User logged in.")),
            (
                "222-bbb:::rpc_requests:::hello:::333-ccc:::reply.xyz",
                MiniMessage("222-bbb", "rpc_requests", "hello", "333-ccc", "reply.xyz"),
            ),
            ("444-ddd:::reply.xyz:::HELLO:::333-ccc:::", MiniMessage("444-ddd", "reply.xyz", "HELLO", "333-ccc")),
        ]:
            self.assertEqual(parse(payload), message)

    def test_colonsInTheContent(self) -> None:
        """The content may hold any number of colons, at its beginning and end too."""
        for content in ("a:b::c", "a:::b", ":::", ":", "::a::", "a:::", ":::a", '{"k":"v:1"}', "", "  "):
            self.assertEqual(parse(f"1:::t:::{content}::::::"), MiniMessage("1", "t", content))
            self.assertEqual(parse(f"1:::t:::{content}:::c:::r"), MiniMessage("1", "t", content, "c", "r"))

    def test_fewerFields(self) -> None:
        """Three and four fields are padded to five."""
        self.assertEqual(parse("1:::t:::x"), MiniMessage("1", "t", "x"))
        self.assertEqual(parse("1:::t:::"), MiniMessage("1", "t", ""))
        self.assertEqual(parse("1:::t:::x:::c"), MiniMessage("1", "t", "x", "c"))

    def test_topicContentHasNoIdOfItsOwn(self) -> None:
        """``topic:content`` has no id of its own; its content may hold colons, but no three in a row."""
        for payload, topic, content in [("t:old style", "t", "old style"), ("t:", "t", ""), ("t::a:b", "t", ":a:b")]:
            self.assertEqual(parse(payload), MiniMessage(NEW, topic, content, legacy=True))

    def test_neitherForm(self) -> None:
        """One ``:::``, or no colon at all, is refused."""
        for payload in ("garbage", "", "1:::t", "1:::t:x", "t:::x", ":::"):
            self.assertRaises(BadRequest, parse, payload)

    def test_idThatIsEmptyOrWouldBeTakenForAnotherAnswerIsRefused(self) -> None:
        """An id that is empty or would be taken for another answer is refused."""
        for id in ("", "NO_MSG", "ERROR", "ERROR:400", "ERRORS", "a\rb"):
            self.assertRaises(BadRequest, parse, f"{id}:::t:::x::::::")
        for id in ("NO_MSG2", "no_msg", "error", "xERROR", "a:b", "你好", " "):
            self.assertEqual(parse(f"{id}:::t:::x::::::").id, id)

    def test_emptyTopicOneTooLongAndOneWithLineBreakAreRefusedInBothForms(self) -> None:
        """An empty topic, one too long and one with a line break are refused, in both forms."""
        for topic in ("", "t" * 1025, "é" * 513, "a\rb"):
            self.assertRaises(InvalidTopic, parse, f"1:::{topic}:::x::::::")
            self.assertRaises(InvalidTopic, parse, f"{topic}:x")
        for topic in ("t" * 1024, "é" * 512):
            self.assertEqual(parse(f"1:::{topic}:::x::::::").topic, topic)
            self.assertEqual(parse(f"{topic}:x").topic, topic)

    def test_deadLetters(self) -> None:
        """The prefix of a dead-letter topic comes on top of the longest name."""
        checkTopic("$dead/" + "t" * 1024)
        for topic in ("$dead/" + "t" * 1025, "$DEAD/" + "t" * 1024):
            self.assertRaises(InvalidTopic, checkTopic, topic)

    def test_colonAfterTheSeparator(self) -> None:
        """Of four colons the first three separate: the fourth belongs to the field behind."""
        self.assertEqual(parse("1::::t::::x::::::"), MiniMessage("1", ":t", ":x"))

    def test_lineBreaksInTheLastFields(self) -> None:
        """A carriage return in CorrelationID or ReplyTo is refused, since a delivery could not carry it."""
        for payload in ("1:::t:::x:::c\rd:::", "1:::t:::x::::::r\rs", "1:::t:::x:::c\rd"):
            self.assertRaises(BadRequest, parse, payload)

    def test_asMessage(self) -> None:
        """The rooms get UTF-8 text, the ids, and None for what is empty."""
        self.assertEqual(
            parse("1:::t:::é:::c:::r").asMessage(),
            Message("é".encode(), Content.TEXT, 1, "1", "c", "r", line=True),
        )
        self.assertEqual(parse("1:::t:::x::::::").asMessage(), Message(b"x", Content.TEXT, 1, "1", line=True))
        self.assertEqual(parse("t:x").asMessage(), Message(b"x", Content.TEXT, 1, NEW, legacy=True, line=True))

    @given(awkwardText)
    def test_thereAndBack(self, payload: str) -> None:
        """What is accepted is delivered as one line that splits into the same fields; the rest is BadRequest."""
        try:
            produced = parse(payload.replace("\n", ""))
        except BadRequest:
            return
        line = renderDelivery(produced.asMessage(), produced.topic, produced.id).decode()
        self.assertEqual((line.count("\n"), line[-1]), (1, "\n"))
        if produced.legacy:
            self.assertEqual(line[:-1].split(":::", 2), [produced.id, produced.topic, produced.content])
        else:
            self.assertEqual(parse(line[:-1]), produced)

    @given(awkwardText, awkwardText, awkwardText, awkwardText, awkwardText)
    def test_fieldsThatCanBeSpelledComeOutOfPRODUCEAsTheyWentInWhatever(
        self, id: str, topic: str, content: str, correlation: str, replyTo: str
    ) -> None:
        """Fields that can be spelled come out of a PRODUCE as they went in, whatever the content."""
        if not (isId(id) and isSpellable(topic)) or len(topic.encode()) > 1024:
            return
        if any(field.startswith(":") or ":::" in field or "\r" in field for field in (correlation, replyTo)):
            return
        self.assertEqual(
            parse(":::".join((id, topic, content, correlation, replyTo))),
            MiniMessage(id, topic, content, correlation, replyTo),
        )

    @given(awkwardText, st.lists(awkwardText, max_size=4))
    def test_knownTopic(self, id: str, fields: list[str]) -> None:
        """Whether the topic is known already changes nothing but the time it takes."""
        for payload in (":::".join([id, "t", *fields]), ":::".join([id, "t", *fields]) + "::::::"):
            self.assertEqual(_outcome(payload, "t"), _outcome(payload, None))


def _outcome(payload: str, known: str | None) -> MiniMessage | str:
    try:
        return parseProduce(payload, newId, known)
    except BadRequest as error:
        return str(error)


class RunTests(SynchronousTestCase):
    """Many common messages at once."""

    def test_allNeighboursThatAreCommonAreRead(self) -> None:
        """All neighbours that are common are read."""
        lines = [b"CONSUME:t", *[f"PRODUCE:{id}:::t:::{text}::::::".encode() for id, text in _COMMON], b"ACK:t"]
        messages = readProduces(lines, 1, b"t")
        self.assertEqual([(each.message_id, each.payload.decode()) for each in messages], _COMMON)
        self.assertEqual(readProduces(lines, 0, b"t"), [])

    @given(st.lists(st.builds(b"%b%b:::%b:::%b%b".__mod__, st.tuples(*_LINE)) | st.binary(max_size=3), max_size=4))
    def test_nothingIsReadOtherwiseThanByItself(self, lines: list[bytes]) -> None:
        """Nothing is read otherwise than by itself; what would be refused ends the run."""
        for topic in (b"t", b"\xc3\xa9"):
            for place in range(len(lines)):
                messages = readProduces(lines, place, topic)
                for line, message in zip(lines[place:], messages, strict=False):
                    alone = parse(line.removeprefix(b"PRODUCE:").decode())
                    self.assertEqual((alone.asMessage(), alone.topic), (message, topic.decode()))

    def test_runIsRenderedAsItsMessagesAreOneByOneWhateverIsAmongThem(self) -> None:
        """A run is rendered as its messages are, one by one, whatever is among them."""
        common = parse("i:::t:::x::::::").asMessage()
        fields = (
            {"correlation_id": "c"},
            {"reply_to": "r"},
            {"legacy": True},
            {"content": Content.BYTES},
            {"line": False},
        )
        messages = [common, *[common._replace(payload=b"a\rb", **each) for each in fields], common]
        alone = b"".join(renderDelivery(each, "t", "i") for each in messages)
        self.assertEqual(b"".join(renderRun(messages, "t")), alone)


class DeliveryTests(SynchronousTestCase):
    """What a CONSUME is answered."""

    def test_documentExamples(self) -> None:
        """A produced message is delivered as it was produced."""
        for payload in (
            "111-aaa:::my-topic:::This is a test message.::::::",
            "222-bbb:::rpc_requests:::hello:::333-ccc:::reply.xyz",
            "444-ddd:::reply.xyz:::HELLO:::333-ccc:::",
        ):
            produced = parse(payload)
            self.assertEqual(render(produced.asMessage(), produced.topic, produced.id), payload + "\n")

    def test_threeAndFourFieldsAreDeliveredAsFive(self) -> None:
        """Three and four fields are delivered as five."""
        for payload, line in [("1:::t:::x", "1:::t:::x::::::\n"), ("1:::t:::x:::c", "1:::t:::x:::c:::\n")]:
            self.assertEqual(render(parse(payload).asMessage()), line)

    def test_v10MessageIsDeliveredAsThreeFields(self) -> None:
        """A v1.0 message is delivered as three fields."""
        self.assertEqual(render(parse("t:old style").asMessage(), "t", NEW), f"{NEW}:::t:::old style\n")

    def test_foreignContent(self) -> None:
        """Contents of other dialects follow the table of payloads."""
        for message, content in [
            (Message(msgpack.packb("x:::y"), Content.MESSAGEPACK), "x:::y"),
            (Message(msgpack.packb({"k": [1]}), Content.MESSAGEPACK), '{"k":[1]}'),
            (Message(b"", Content.MESSAGEPACK), ""),
            (Message(b"from blip", Content.BYTES), "from blip"),
            (Message(b"\xff\x00", Content.BYTES), "/wA="),
            (Message(b"from web", Content.TEXT), "from web"),
        ]:
            self.assertEqual(render(message), f"1:::t:::{content}::::::\n")

    def test_lineBreaks(self) -> None:
        """A foreign text with a line break arrives as a JSON string, non-ASCII unescaped."""
        for text, content in [
            ("two\nlines", '"two\\nlines"'),
            ("a\rb", '"a\\rb"'),
            ('é"\\\n', '"é\\"\\\\\\n"'),
        ]:
            for message in (
                Message(msgpack.packb(text), Content.MESSAGEPACK, message_id="own"),
                Message(text.encode(), Content.BYTES),
                Message(text.encode(), Content.TEXT),
                Message(text.encode(), Content.TEXT, message_id="given by the queue"),
            ):
                self.assertEqual(render(message), f"1:::t:::{content}::::::\n")

    def test_ownCarriageReturn(self) -> None:
        """A carriage return inside MiniMQ's own content comes back byte for byte."""
        self.assertEqual(render(parse("1:::t:::a\rb::::::").asMessage()), "1:::t:::a\rb::::::\n")

    def test_foreignIds(self) -> None:
        """CorrelationID and ReplyTo of FlexiMQ travel where MiniMQ can spell them, else they are left empty."""
        for text, field in [
            ("c:1", "c:1"),
            ("c:", "c:"),
            (":c", ""),
            ("c:::d", ""),
            ("c\nd", ""),
            ("c\rd", ""),
            ("", ""),
        ]:
            both = Message(b"\x01", Content.MESSAGEPACK, correlation_id=text, reply_to=text)
            self.assertEqual(render(both), f"1:::t:::1:::{field}:::{field}\n")

    def test_deliveryId(self) -> None:
        """A message's own id is used where MiniMQ can spell it, else a new one."""
        for id in ("own", "a:b", "a::b", ":a", "é"):
            self.assertEqual(deliveryId(Message(b"", Content.BYTES, message_id=id), newId), id)
        for wrong in (None, "", "a:::b", "a:", "a\nb", "a\rb", "NO_MSG", "ERROR", "ERROR:400:x"):
            self.assertEqual(deliveryId(Message(b"", Content.BYTES, message_id=wrong), newId), NEW)

    def test_noIdWasted(self) -> None:
        """No new id is made for a message that has its own."""
        made: list[str] = []

        def countingId() -> str:
            made.append(NEW)
            return NEW

        deliveryId(Message(b"", Content.TEXT, message_id="own"), countingId)
        self.assertEqual(made, [])

    @given(
        st.sampled_from(Content),
        awkwardText,
        st.none() | awkwardText,
        st.none() | awkwardText,
        st.none() | awkwardText,
        awkwardText.filter(isSpellable).filter(lambda topic: len(topic.encode()) <= 1024),
    )
    def test_splitsBack(
        self, kind: Content, text: str, id: str | None, correlation: str | None, replyTo: str | None, topic: str
    ) -> None:
        """Any delivery of five fields is one line, and splits back into what was written."""
        payload = msgpack.packb(text) if kind is Content.MESSAGEPACK else text.encode()
        message = Message(payload, kind, message_id=id, correlation_id=correlation, reply_to=replyTo)
        chosen = deliveryId(message, newId)
        line = renderDelivery(message, topic, chosen).decode()
        self.assertEqual((line.count("\n"), line[-1]), (1, "\n"))
        back = parse(line[:-1])
        self.assertEqual((back.id, back.topic, back.legacy), (chosen, topic, False))
        self.assertIn(back.correlation_id, (correlation or "", ""))
        self.assertIn(back.reply_to, (replyTo or "", ""))
        if not set(text) & set("\r\n"):
            self.assertEqual(back.content, toText(message))


class SpellingTests(SynchronousTestCase):
    """Which topics MiniMQ sees."""

    def test_isSpellable(self) -> None:
        """Topics with ``:::``, a line break or a colon at the end are not visible."""
        for topic in ("t", "a.b/c", ":a", "::a", "a:b", "a::b", "$sys/x", "with space", "é"):
            self.assertTrue(isSpellable(topic), topic)
        for topic in ("", ":", "a:", "a::", ":::", "a:::b", "a\nb", "a\rb", "\n"):
            self.assertFalse(isSpellable(topic), topic)
