"""Headers get, lose and show the sender, whatever else they hold."""

import msgpack
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from fleximq.values.header_pairs import SENDER, runWithSender, senderOf, withSender
from fleximq.values.records import Run

_HEADERS = st.dictionaries(st.text(max_size=20), st.binary(max_size=40) | st.integers(0, 99), max_size=20)


class SenderTests(SynchronousTestCase):
    """:func:`withSender` and :func:`senderOf`."""

    def test_noBytesAreEmptyHeader(self) -> None:
        """No bytes are an empty header."""
        self.assertEqual(msgpack.unpackb(withSender(b"", "alice")), {SENDER: "alice"})
        self.assertEqual((withSender(b"", ""), senderOf(b"")), (b"", ""))

    @given(_HEADERS, st.text(min_size=1, max_size=300))
    def test_allOtherKeysStayAndEarlierSenderDoesNot(self, fields: dict[str, object], name: str) -> None:
        """All other keys stay, and an earlier sender does not."""
        signed = withSender(msgpack.packb(fields | {SENDER: "somebody"}), name)
        self.assertEqual(msgpack.unpackb(signed), fields | {SENDER: name})
        self.assertEqual((senderOf(signed), withSender(signed, name)), (name, signed))
        others = {key: value for key, value in fields.items() if key != SENDER}
        self.assertEqual(msgpack.unpackb(withSender(signed, "") or b"\x80"), others)

    def test_whatLooksLikeKeyInsideOfAnotherValueIsNone(self) -> None:
        """What looks like the key inside of another value is none."""
        inside = msgpack.packb({"x": msgpack.packb({SENDER: "alice"}), "y": {SENDER: "alice"}})
        self.assertEqual(senderOf(inside), "")
        self.assertEqual(senderOf(msgpack.packb({SENDER: 5})), "")

    def test_runHasOneHeaderForAllOrOneForEach(self) -> None:
        """A run has one header for all, or one for each."""
        one, other = withSender(b"", "a"), withSender(b"\x81\xa1k\x01", "a")
        self.assertEqual(runWithSender(Run(b"", [b""], 0), "a"), Run(one, [b""], 0))
        self.assertEqual(
            runWithSender(Run([b"", b"\x81\xa1k\x01"], [b""] * 2, 0), "a"), Run([one, other], [b""] * 2, 0)
        )
