"""Frames made of a recipe: bytes that say which seed is taken and what is done to it, six for each frame.

A recipe is any bytes, so whoever makes recipes (chance, hypothesis, atheris) need not know any dialect; and the same
recipe is the same frames again.
"""

import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple

from tests.fuzz.tongues import Tongue

#: Bytes of a recipe for one frame: seed, what is done, where, and with what.
STEP = struct.Struct("<BBHH")

#: A recipe is at most so many connections, where each frame has its own.
FEW = 20

#: Bytes that have broken something somewhere.
SHARP = (
    b"",
    b"\0",
    b"\xff" * 8,
    b"\x80",
    b"\xdd\xff\xff\xff\xff",  # MessagePack arrays and maps that promise much
    b"\xdf\xff\xff\xff\xff",
    b"\xc7\xff\x05",
    b"\x91" * 600,  # nested deeply
    b"\x81\xa1a" * 200,
    b"\xcb\x7f\xf8\0\0\0\0\0\0",  # not a number
    b"\xd6\xff\xff\xff\xff\xff",  # a time
    b"\xed\xa0\x80",  # half of a surrogate pair
    b"\n",
    b"\r\n\r\n",
    b":::",
    b":",
    b"../" * 20,
    b"$sys/",
    b"#",
    b"*/*/#",
    b"a" * 1030,
    b"%s%n",
    b"\x7f\xff\xff\xff\xff\xff\xff\xff",
    b"NO_MSG",
)


class Batch(NamedTuple):
    """Bytes, the number of frames in them, and whether nothing can be understood behind them."""

    data: bytes
    frames: int
    last: bool


def hostile(tongue: Tongue, recipe: bytes) -> Iterator[Batch]:
    """Yield what a recipe says in a dialect."""
    seeds, whole, framed = tongue.seeds, tongue.frames, tongue.framed
    number = len(seeds)
    rare = max(1, 256 // tongue.rareness)
    rarer = tongue.rareness > 256
    found: list[bytes] = []
    steps = min(len(recipe) // STEP.size, FEW if tongue.once else len(recipe))
    for seed, deed, place, value in STEP.iter_unpack(recipe[: steps * STEP.size]):
        chosen = seed % number
        if deed < rare and not (rarer and place & 1):
            found.append(changed(whole[chosen], value, place))
            yield Batch(b"".join(found), len(found), True)
            found = []
            continue
        if deed >= 240:
            found.append(whole[chosen])
        else:
            parts = list(seeds[chosen])
            which = deed % len(parts)
            parts[which] = changed(parts[which], value, place)
            found.append(framed(tuple(parts)))
        if tongue.once:
            yield Batch(found.pop(), 1, True)
    if found:
        yield Batch(b"".join(found), len(found), False)


def changed(body: bytes, value: int, place: int) -> bytes:
    """Return bytes of which one thing is changed, as two numbers say."""
    at = place % (len(body) + 1)
    return _CHANGES[value % len(_CHANGES)](body, at, value // len(_CHANGES))


def _replace(body: bytes, at: int, value: int) -> bytes:
    return body[:at] + bytes((value & 255,)) + body[at + 1 :]


def _flip(body: bytes, at: int, value: int) -> bytes:
    if at >= len(body):
        return body
    return body[:at] + bytes((body[at] ^ 1 << (value & 7),)) + body[at + 1 :]


def _insert(body: bytes, at: int, value: int) -> bytes:
    return body[:at] + SHARP[value % len(SHARP)] + body[at:]


def _overwrite(body: bytes, at: int, value: int) -> bytes:
    sharp = SHARP[value % len(SHARP)]
    return body[:at] + sharp + body[at + len(sharp) :]


def _cut(body: bytes, at: int, value: int) -> bytes:
    return body[:at]


def _drop(body: bytes, at: int, value: int) -> bytes:
    return body[:at] + body[at + 1 + value % 8 :]


def _double(body: bytes, at: int, value: int) -> bytes:
    return body[:at] + body


def _all(body: bytes, at: int, value: int) -> bytes:
    return SHARP[value % len(SHARP)]


_CHANGES: tuple[Callable[[bytes, int, int], bytes], ...] = (
    _replace, _flip, _insert, _overwrite, _cut, _drop, _double, _all,
)  # fmt: skip
