"""Identity texts: what clients can say, channels' names, and the broker's texts."""

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from fleximq.errors import InvalidTopic
from fleximq.wire.identity_text import (
    ClientText,
    Word,
    checkChannel,
    encodeChannels,
    encodeError,
    encodeIdentity,
    encodeMsg,
    encodeSubAck,
    encodeUnsubAck,
    isChannel,
    parseText,
)


class ClientTextTests(SynchronousTestCase):
    """What a client says."""

    def test_documentExamples(self) -> None:
        """The texts of the document."""
        for text, said in [
            (b"SUBSCRIBE:news", ClientText(Word.SUBSCRIBE, "news", None)),
            (b"UNSUBSCRIBE:news", ClientText(Word.UNSUBSCRIBE, "news", None)),
            (b"PUBLISH:news:Hello world!", ClientText(Word.PUBLISH, "news", b"Hello world!")),
            (
                b"PUBLISH:news:Hello!||timestamp=1234567890",
                ClientText(Word.PUBLISH, "news", b"Hello!||timestamp=1234567890"),
            ),
        ]:
            self.assertEqual(parseText(text), said)

    def test_messageVerbatim(self) -> None:
        """The message is everything behind the second colon, as it is."""
        for message in ("", ":", "k:v:1:2", " a b ", "l1\nl2", "你好😀", "AAE="):
            self.assertEqual(
                parseText(f"PUBLISH:c:{message}".encode()), ClientText(Word.PUBLISH, "c", message.encode())
            )

    def test_noMessageField(self) -> None:
        """A PUBLISH without a second colon has no message, which is not an empty one."""
        self.assertEqual(parseText(b"PUBLISH:c"), ClientText(Word.PUBLISH, "c", None))
        self.assertEqual(parseText(b"PUBLISH:c:"), ClientText(Word.PUBLISH, "c", b""))

    def test_extraFields(self) -> None:
        """Fields behind the channel of a SUBSCRIBE or UNSUBSCRIBE are ignored."""
        for word in (Word.SUBSCRIBE, Word.UNSUBSCRIBE):
            for extra in (b":", b":x", b":x:y"):
                self.assertEqual(parseText(word.value + b":c" + extra), ClientText(word, "c", None))

    def test_channelsAreNotChecked(self) -> None:
        """A name that no channel can have is returned, so that the dialect can answer in its order."""
        for name in ("", " ", "a,b", "a b"):
            self.assertEqual(parseText(f"PUBLISH:{name}:x".encode()), ClientText(Word.PUBLISH, name, b"x"))

    def test_ignored(self) -> None:
        """Unknown words, known ones without a colon or in another case, and the broker's own words are None."""
        for text in (
            b"",
            b":",
            b"FOO:bar",
            b"garbage",
            b"PING",
            b"SUBSCRIBE",
            b"UNSUBSCRIBE",
            b"PUBLISH",
            b"subscribe:x",
            b" SUBSCRIBE:x",
            b"COMPRESS:1",
            b"IDENTITY:bob",
            b"MSG:c:me:x",
        ):
            self.assertIsNone(parseText(text))

    def test_notUtf8(self) -> None:
        """What is not UTF-8 is ignored, wherever the bytes stand."""
        for text in (
            b"SUBSCRIBE:\xff",
            b"PUBLISH:c:\xff",
            b"PUBLISH:\xff:x",
            b"SUBSCRIBE:c:\xff",
            b"\xff:c",
            b"PUBLISH:\xc3:\xa9",
        ):
            self.assertIsNone(parseText(text))

    @given(st.binary(max_size=30) | st.binary(max_size=20).map(b"PUBLISH:".__add__))
    def test_anyBytes(self, text: bytes) -> None:
        """Arbitrary bytes are ignored or read, and a message read is a part of them."""
        said = parseText(text)
        if said is not None and said.message is not None:
            self.assertEqual(text, b"PUBLISH:" + said.channel.encode() + b":" + said.message)


class ChannelTests(SynchronousTestCase):
    """Which names channels can have."""

    def test_printableNamesWithoutWhiteSpaceColonsAndCommas(self) -> None:
        """Printable names without white space, colons and commas."""
        for name in ("news", "News", "a.b/c", "$sys/x", "你好", "é", "a-b_c#*"):
            checkChannel(name)

    def test_allOthersAreRefusedInOneWay(self) -> None:
        """All others are refused in one way."""
        for name in (
            "",
            ":",
            "a:b",
            "a,b",
            " ",
            "a b",
            "a\tb",
            "a\n",
            "\x00",
            "\x1f",
            "\x7f",
            "\x85",
            "\u00a0",
            "\u2028",
        ):
            error = self.assertRaises(InvalidTopic, checkChannel, name)
            self.assertEqual((str(error), error.status, error.closes), ("Invalid channel name", 400, False))
            self.assertFalse(isChannel(name))

    def test_nameMayHave1024BytesOfUTF8NotOneMore(self) -> None:
        """A name may have 1024 bytes of UTF-8, not one more."""
        for name in ("c" * 1023, "c" * 1024, "é" * 512, "😀" * 256):
            self.assertTrue(isChannel(name))
        for name in ("c" * 1025, "é" * 512 + "c", "😀" * 257):
            self.assertFalse(isChannel(name))

    def test_deadLetters(self) -> None:
        """The prefix of a dead-letter topic comes on top."""
        self.assertTrue(isChannel("$dead/" + "c" * 1024))
        self.assertFalse(isChannel("$dead/" + "c" * 1025))


class BrokerTextTests(SynchronousTestCase):
    """What the broker says."""

    def test_documentExamples(self) -> None:
        """The texts of the document."""
        self.assertEqual(encodeIdentity("user-12345678"), b"IDENTITY:user-12345678")
        self.assertEqual(encodeChannels(["channel1", "channel2"]), b"CHANNELS:channel1,channel2")
        self.assertEqual(encodeSubAck("news"), b"SUB-ACK:news")
        self.assertEqual(encodeUnsubAck("news"), b"UNSUB-ACK:news")
        self.assertEqual(encodeMsg("news", "alice@123", b"Hello world!"), b"MSG:news:alice@123:Hello world!")
        self.assertEqual(encodeError(401, "Not subscribed"), b"ERROR:401:Not subscribed")

    def test_noChannels(self) -> None:
        """Without channels the list is empty."""
        self.assertEqual(encodeChannels([]), b"CHANNELS:")

    def test_channelsLeftOut(self) -> None:
        """Names that the list or a SUBSCRIBE could not spell are left out."""
        self.assertEqual(encodeChannels(["a:b", "你好", "a,b", "", "a b", "c"]), "CHANNELS:你好,c".encode())

    def test_messageTravelsAsItIsLineBreaksColonsAndAll(self) -> None:
        """A message travels as it is, line breaks, colons and all."""
        for message in (b"", b"a:b", b"l1\nl2", "你好😀".encode()):
            self.assertEqual(encodeMsg("c", "user-0", message), b"MSG:c:user-0:" + message)
