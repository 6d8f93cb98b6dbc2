"""A program for tests to spawn: a FlexiMQ client on its standard input and output, which does what it is asked.

``python -m tests.services.child_program``. A REQ to ``/double`` is answered with twice its payload, ``/environment``
with the names of its variables, ``/garbage`` makes it write what is no frame, ``/leave`` ends it.
"""

import os
import sys

from tests.conversations.clients import Ended, FlexiClient
from tests.wire.flexi_frames import Heard


class Standard:
    """Carries a client's bytes over standard input and output."""

    code: int | None = None

    def say(self, data: bytes) -> None:
        """Write these bytes."""
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()

    def read(self) -> bytes:
        """Return some bytes, none at the end of the input."""
        return os.read(0, 1 << 16)

    def close(self) -> None:
        """Leave the streams to the interpreter."""


def main() -> int:
    """Serve until the input ends, and return the exit code."""
    client = FlexiClient(Standard()).join()
    print("child has joined", file=sys.stderr, flush=True)
    try:
        while True:
            heard = client.hear()
            if heard.kind == "REQ" and not serve(client, heard):
                return 3
    except Ended:
        print("child has ended", file=sys.stderr, flush=True)
        return 0


def serve(client: FlexiClient, heard: Heard) -> bool:
    """Do what a REQ asks for; False if that is to leave."""
    path: str = heard.header["routing"][0]["path"]
    id = heard.header["reqrep"]["id"]
    if path == "/double":
        client.reply(heard.sender, id, heard.value * 2)
    elif path == "/environment":
        client.reply(heard.sender, id, dict(os.environ))
    elif path == "/garbage":
        client.say(b"\x7f" * 100)
    return path != "/leave"


if __name__ == "__main__":
    sys.exit(main())
