"""Metadata and base64 of the Identity dialect."""

from base64 import b64encode

from twisted.trial.unittest import SynchronousTestCase

from tests.pipeline.installed import missing as skip

if not skip:
    from hypothesis import given
    from hypothesis import strategies as st

    from fleximq.pipeline.payloads.dialect_payloads import Identity, split
    from tests.pipeline.payloads.read import decode, rowsOf

METADATA, BASE64, BOTH = (True, False), (False, True), (True, True)


class SplitTests(SynchronousTestCase):
    """Where the metadata of a message begin."""

    def test_exampleOfTheDocumentIsSplit(self) -> None:
        self.assertEqual(split(b"Hello!||timestamp=1234567890"), (b"Hello!", [("timestamp", "1234567890")]))

    def test_partsBehindMarksAreMetadataWhileTheyAreKeysAndValues(self) -> None:
        for message, body, pairs in [
            (b"Hello!", b"Hello!", None),
            (b"", b"", None),
            (b"||a=b", b"", [("a", "b")]),
            (b"x||a=1||b=2", b"x", [("a", "1"), ("b", "2")]),
            (b"x||a=1||a=2", b"x", [("a", "2")]),
            (b"x||a=", b"x", [("a", "")]),
            (b"x||a=b=c", b"x", [("a", "b=c")]),
            (b"x||a=b|c", b"x", [("a", "b|c")]),
            (b"x||k-1.z_=\xc3\xa9\n", b"x", [("k-1.z_", "é\n")]),
            (b"x||a", b"x||a", None),
            (b"x||", b"x||", None),
            (b"a||b||c=d", b"a||b", [("c", "d")]),
            (b"a||b=c||d", b"a||b=c||d", None),
            (b"x||1a=b", b"x||1a=b", None),
            (b"x||a b=c", b"x||a b=c", None),
            (b"x|| a=b", b"x|| a=b", None),
            (b"x|||a=b", b"x|", [("a", "b")]),
            (b"\xff||a=b", b"\xff", [("a", "b")]),
        ]:
            self.assertEqual(split(message), (body, pairs), message)
        self.assertRaises(UnicodeDecodeError, split, b"x||a=\xff")

    def test_addedMetadataAreFoundBehindAnyBody(self) -> None:
        keys = st.from_regex(r"[A-Za-z_][A-Za-z0-9_.-]*", fullmatch=True)
        values = st.text(max_size=5).filter(lambda text: "|" not in text)

        @given(st.binary(max_size=10).filter(lambda body: not body.endswith(b"|")), st.dictionaries(keys, values))
        def check(body: bytes, pairs: dict[str, str]) -> None:
            message = body + b"".join(f"||{key}={value}".encode() for key, value in pairs.items())
            try:
                inner, already = split(body)
            except UnicodeDecodeError:
                return
            self.assertEqual(split(message), (inner, list({**dict(already or ()), **pairs}.items()) or None))

        check()

    def test_messageOfMetadataOnlyIsSplitOnce(self) -> None:
        body, pairs = split(b"||a=b" * 20_000)
        self.assertEqual((body, pairs), (b"", [("a", "b")]))


class ApartTests(SynchronousTestCase):
    """What a decoder makes of them."""

    def test_metadataAreAColumnOrNull(self) -> None:
        rows = rowsOf(decode("text", None, b"x||a=1", b"y", None, identity=Identity(*METADATA)))
        self.assertEqual(rows, [{"value": "x", "metadata": [("a", "1")]}, {"value": "y", "metadata": None}, None])
        rows = rowsOf(decode("text", None, b"x", b"y", identity=Identity(*METADATA)))
        self.assertEqual([row["metadata"] for row in rows if isinstance(row, dict)], [None, None])

    def test_bodyInBase64IsItsBytes(self) -> None:
        self.assertEqual(
            rowsOf(decode("raw", None, b"/wA=", b"", identity=Identity(*BASE64))),
            [{"value": b"\xff\0"}, {"value": b""}],
        )
        for body in (b"/wA", b"/w A=", b"_wA=", b"\xff", b"/wA=\n", b"=", b"/wA==="):
            [row] = rowsOf(decode("raw", None, body, identity=Identity(*BASE64)))
            self.assertEqual(row, "the body is not base64", body)

    def test_metadataAreBehindTheBase64(self) -> None:
        message = b64encode(b'{"a":1}||b=c') + b"||k=v"
        [row] = rowsOf(decode("json", "a INT", message, identity=Identity(*BOTH)))
        self.assertEqual(str(row)[:31], "the payload is no JSON map: JSO")
        [row] = rowsOf(decode("json", "a INT", b64encode(b'{"a":1}') + b"||k=v", identity=Identity(*BOTH)))
        self.assertEqual(row, {"a": 1, "metadata": [("k", "v")]})

    def test_misfitRowHasNoMetadata(self) -> None:
        decoded = decode(
            "json", "a INT", b'{"a":""}||k=v', b'{"a":1}||k=\xff', b'{"a":1}||k=v', identity=Identity(*METADATA)
        )
        self.assertEqual([type(row) for row in rowsOf(decoded)], [str, str, dict])
        self.assertEqual(decoded.columns.field("metadata").to_pylist(), [None, None, [("k", "v")]])
        self.assertEqual(rowsOf(decoded)[1], "its metadata are not UTF-8")

    def test_onlyMessagesOfIdentityAreTakenApart(self) -> None:
        rows = rowsOf(
            decode(
                "text",
                None,
                b"x||a=1",
                b"eA==||a=1",
                b"eA==",
                identity=Identity(*BOTH),
                dialects=["minimq", "identity", "blipmq"],
            )
        )
        self.assertEqual(
            rows,
            [
                {"value": "x||a=1", "metadata": None},
                {"value": "x", "metadata": [("a", "1")]},
                {"value": "eA==", "metadata": None},
            ],
        )
