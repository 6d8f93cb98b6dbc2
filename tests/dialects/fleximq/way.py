"""Records the calls of functions in fleximq from a publication to the write to its subscriber."""

import os
import sys
import threading
from types import FrameType
from typing import Any

import fleximq

ROOT = os.path.dirname(fleximq.__file__)


class Way:
    """The calls of fleximq's functions, in order, until :meth:`end`; a context manager."""

    def __init__(self) -> None:
        self.calls: list[str] = []
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

    def _profile(self, frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if event == "call" and not self._ended and code.co_filename.startswith(ROOT):
            module = os.path.relpath(code.co_filename, ROOT).removesuffix(".py").replace(os.sep, ".")
            self.calls.append(f"{module}.{code.co_qualname}")

    def __str__(self) -> str:
        files = {call.rpartition(".")[0] for call in self.calls}
        return f"{len(self.calls)} calls in {len(files)} files\n" + "\n".join(self.calls)
