"""Heads and bodies of requests, at every split of the input."""

from itertools import cycle

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from fleximq.dialects.http.format.request_head import HEAD_BYTES, HttpError
from fleximq.dialects.http.format.request_scanner import CHUNKED, RequestScanner

HEAD = b"POST /topics/a HTTP/1.1\r\nHost: b"


class ScannerTests(SynchronousTestCase):
    """What is found, and what is refused."""

    def scan(self, data: bytes, length: int, piece: int, limit: int = 100) -> list[bytes]:
        """Return heads and bodies by turns, where each body has this length."""
        scanner = RequestScanner()
        found: list[bytes] = []
        for start in range(0, len(data), piece):
            scanner.feed(data[start : start + piece])
            while True:
                if len(found) % 2 == 0:
                    part = scanner.head()
                    if part is not None:
                        scanner.expect(length, limit)
                else:
                    part = scanner.body()
                if part is None:
                    break
                found.append(part)
        return found

    def assertFound(self, data: bytes, length: int, *expected: bytes) -> None:
        for piece in range(1, len(data) + 1):
            self.assertEqual(self.scan(data, length, piece), list(expected), piece)

    def refusal(self, body: bytes, limit: int = 100) -> int:
        """Return the status with which a chunked body is refused, the same at each split."""
        data = HEAD + b"\r\n\r\n" + body
        codes = set()
        for piece in (1, 7, len(data)):
            error: HttpError = self.assertRaises(HttpError, self.scan, data, CHUNKED, piece, limit)
            codes.add(error.code)
        self.assertEqual(len(codes), 1, codes)
        return codes.pop()

    def test_requests_follow_each_other(self) -> None:
        self.assertFound((HEAD + b"\r\n\r\nhello") * 3, 5, *[HEAD, b"hello"] * 3)

    def test_a_body_may_be_empty(self) -> None:
        self.assertFound((HEAD + b"\r\n\r\n") * 2, 0, *[HEAD, b""] * 2)

    def test_chunks_are_joined(self) -> None:
        body = b"3\r\nabc\r\nA \r\n0123456789\r\n1;name=value\r\nx\r\n000\r\n\r\n"
        self.assertFound((HEAD + b"\r\n\r\n" + body) * 2, CHUNKED, *[HEAD, b"abc0123456789x"] * 2)

    def test_a_chunk_may_have_anything_in_it(self) -> None:
        self.assertFound(HEAD + b"\r\n\r\n7\r\n\r\n0\r\n\r\n\r\n0\r\n\r\n", CHUNKED, HEAD, b"\r\n0\r\n\r\n")

    def test_malformed_chunks_are_refused(self) -> None:
        for body in (
            b"\r\n", b"x\r\n", b"-1\r\na", b"+1\r\na", b"0x1\r\na\r\n", b" 1\r\na\r\n", b"1\na\n0\n\n" + b"x" * 300,
            b"1\r\nab\r\n", b"1\r\na\n", b"1_0\r\n", b"1" * 9 + b"\r\n", b"1;" + b"a" * 300, b"1;a\nb\r\na\r\n",
            b"1;a\x00\r\na\r\n", b"\xb2\r\n", b"0\r\nTrailer: x\r\n\r\n", b"0\r\nx",
        ):  # fmt: skip
            self.assertEqual(self.refusal(body), 400, body)

    def test_a_size_over_the_limit_is_refused_before_its_bytes(self) -> None:
        self.assertEqual(self.refusal(b"65\r\n"), 413)
        self.assertEqual(self.refusal(b"60\r\n" + b"a" * 96 + b"\r\n5\r\n"), 413)
        self.assertEqual(self.refusal(b"FFFFFFFF\r\n"), 413)
        self.assertFound(HEAD + b"\r\n\r\n64\r\n" + b"a" * 100 + b"\r\n0\r\n\r\n", CHUNKED, HEAD, b"a" * 100)

    def test_a_head_has_a_limit(self) -> None:
        ends = b"\r\n\r\n"
        for size, isFound in ((HEAD_BYTES - 1, True), (HEAD_BYTES, True), (HEAD_BYTES + 1, False)):
            for piece in (7, size):
                data = b"a" * (size - len(ends)) + ends
                if isFound:
                    self.assertEqual(self.scan(data, 0, piece), [data[: -len(ends)], b""])
                else:
                    error: HttpError = self.assertRaises(HttpError, self.scan, data, 0, piece)
                    self.assertEqual(error.code, 431)

    def test_a_head_is_put_back(self) -> None:
        scanner = RequestScanner()
        scanner.feed(HEAD + b"\r\n\r\nrest")
        self.assertEqual(scanner.head(), HEAD)
        scanner.unread(HEAD)
        self.assertEqual(
            (scanner.buffered, scanner.rest(), scanner.buffered), (len(HEAD) + 8, HEAD + b"\r\n\r\nrest", 0)
        )


class AnyInputTests(SynchronousTestCase):
    """Whatever comes, in whichever pieces."""

    @given(
        st.lists(
            st.sampled_from([b"a", b"\r\n", b"\r", b"\n", b"0", b"5", b"F", b";x", b" ", b"\r\n\r\n", b"0\r\n\r\n"])
            | st.binary(max_size=3),
            max_size=40,
        ),
        st.integers(-1, 6),
        st.lists(st.integers(1, 9), min_size=1, max_size=5),
    )
    def test_pieces_make_no_difference(self, parts: list[bytes], length: int, sizes: list[int]) -> None:
        data = b"".join(parts)
        whole, pieces = [data] if data else [], []
        place = 0
        for size in cycle(sizes):
            if place >= len(data):
                break
            pieces.append(data[place : place + size])
            place += size
        self.assertEqual(self.outcome(whole, length), self.outcome(pieces, length))

    def outcome(self, pieces: list[bytes], length: int) -> tuple[list[bytes], int]:
        """Return heads and bodies in turn, and the status with which the input is refused, 0 if it is not."""
        scanner = RequestScanner()
        found: list[bytes] = []
        try:
            for piece in pieces:
                scanner.feed(piece)
                while True:
                    if len(found) % 2 == 0:
                        part = scanner.head()
                        if part is not None:
                            scanner.expect(length, 10)
                    else:
                        part = scanner.body()
                    if part is None:
                        break
                    found.append(part)
        except HttpError as error:
            return found, error.code
        return found, 0
