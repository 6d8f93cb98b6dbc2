"""Records the calls of functions in fleximq from the bytes of a message to the write of its result."""

import os
import sys
import threading
from itertools import pairwise
from types import FrameType
from typing import Any

import fleximq

ROOT = os.path.dirname(fleximq.__file__)


class Way:
    """The calls of fleximq's functions, in order, until :meth:`end`; a context manager."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self._visited: list[str] = []
        self._ended = False

    def __enter__(self) -> "Way":
        """Begin to record, in this thread and in threads that are started meanwhile."""
        threading.setprofile(self._profile)
        sys.setprofile(self._profile)
        return self

    def __exit__(self, *error: object) -> None:
        """Stop recording."""
        sys.setprofile(None)
        threading.setprofile(None)

    def end(self) -> None:
        """Record no later calls: the transport is being written."""
        self._ended = True

    @property
    def files(self) -> set[str]:
        """The modules that were entered."""
        return set(self._visited)

    @property
    def moves(self) -> int:
        """How often the execution moved from one module to another, by a call or a return."""
        return sum(before != after for before, after in pairwise(self._visited))

    def _profile(self, frame: FrameType, event: str, argument: Any) -> None:
        if self._ended or event not in ("call", "return"):
            return
        code = frame.f_code
        if event == "return":
            module = _module(frame.f_back) if frame.f_back is not None else ""
        else:
            module = _module(frame)
            if module:
                self.calls.append(f"{module}.{code.co_qualname}")
        if module:
            self._visited.append(module)

    def __str__(self) -> str:
        head = f"{len(self.calls)} calls, {len(self.files)} files, {self.moves} moves between files"
        return head + "".join(f"\n  {call}" for call in self.calls)


def _module(frame: FrameType) -> str:
    """Return the name of a frame's module without ``fleximq.``; "" for a module of another package."""
    name = frame.f_code.co_filename
    return os.path.relpath(name, ROOT).removesuffix(".py").replace(os.sep, ".") if name.startswith(ROOT) else ""
