"""Maps whose last value is large, in two pieces and back."""

from typing import Any

import msgpack
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from fleximq.wire.large_value import LARGE, packLarge, unpackLarge

VALUES = st.none() | st.integers(-(1 << 63), 1 << 63) | st.text(max_size=9) | st.binary(max_size=9)


class PackedApartTests(SynchronousTestCase):
    """A value is packed as MessagePack packs it, whatever comes in a piece of its own."""

    @given(st.dictionaries(st.text(max_size=9), VALUES, max_size=20), st.integers(0, 2))
    def test_anyMap(self, others: dict[str, Any], more: int) -> None:
        """Both pieces together are the packed map; the second is the view itself."""
        view = memoryview(bytes(LARGE + more))
        others.pop("last", None)
        head, rest = packLarge({**others, "last": view})
        self.assertEqual(head + rest, msgpack.packb({**others, "last": bytes(view)}))
        self.assertIs(rest, view)
        found = unpackLarge(head + rest)
        self.assertEqual(found, {**others, "last": bytes(view)})
        self.assertIs(type(found["last"]), memoryview)

    def test_sameView(self) -> None:
        """A view that is in the map twice is twice in what is packed."""
        view = memoryview(bytes(LARGE))
        head, rest = packLarge({"a": view, "b": view})
        self.assertEqual(msgpack.unpackb(head + rest), {"a": bytes(view), "b": bytes(view)})

    def test_whatIsSmallerNotLastNoViewOrNoMapIsPackedInOnePiece(self) -> None:
        """What is smaller, not last, no view or no map is packed in one piece."""
        large = memoryview(bytes(LARGE))
        for value in ({"a": large[1:]}, {"a": large, "b": 1}, {"a": bytes(large)}, {}, [large], bytes(large), None):
            head, rest = packLarge(value)
            self.assertEqual((head, bytes(rest)), (msgpack.packb(value), b""))


class UnpackedApartTests(SynchronousTestCase):
    """What is unpacked is what MessagePack says it is."""

    def test_whereLastValueIsNotLargeBytesAllIsUnpackedAsEver(self) -> None:
        """Where the last value is not large bytes, all is unpacked as ever."""
        large, text = bytes(LARGE), "x" * LARGE
        for value in ({"a": large[:100]}, {"a": large, "b": 1}, {"a": text}, {}, [large], large, {text: 1}):
            found = unpackLarge(memoryview(msgpack.packb(value)))
            self.assertEqual(found, value)
            self.assertNotIsInstance(list(found.values())[-1:] if isinstance(found, dict) else found, memoryview)

    def test_whatIsCutOffOrHasSomethingBehindItIsRefused(self) -> None:
        """What is cut off, or has something behind it, is refused."""
        packed = msgpack.packb({"a": 1, "b": bytes(LARGE + 100)})
        for wrong in (packed[:-1], packed[: LARGE + 1], packed + b"\0", b"\xc1" * LARGE):
            self.assertRaises(ValueError, unpackLarge, wrong)
