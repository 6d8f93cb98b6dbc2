"""Asks a fork server for a program: ``python -I -S fork_client.py SOCKET PROGRAM ARGUMENTS`` is that program.

As a script it ends with the program's exit code; whoever kills it ends the program, too.
"""

import json
import os
import socket
import struct
import sys
from collections.abc import Mapping, Sequence

#: The answers of the server: the process id at the start and the exit code at the end, negative after a signal.
ANSWER = struct.Struct("i")


def requested(
    path: str, words: Sequence[str], folder: str, variables: Mapping[str, str], session: bool, streams: Sequence[int]
) -> tuple[socket.socket, int]:
    """Have a program started, and return the connection on which its end is told, and its process id."""
    link = socket.socket(socket.AF_UNIX)
    link.connect(path)
    socket.send_fds(link, [json.dumps([*words]).encode() + b"\n"], streams)
    link.sendall(json.dumps([folder, dict(variables), session]).encode() + b"\n")
    return link, *ANSWER.unpack(link.recv(ANSWER.size, socket.MSG_WAITALL))


def main() -> int:
    """Run the program of the command line and return its exit code."""
    link, _ = requested(sys.argv[1], sys.argv[2:], os.getcwd(), os.environ, False, (0, 1, 2))
    code: int = ANSWER.unpack(link.recv(ANSWER.size, socket.MSG_WAITALL))[0]
    return 128 - code if code < 0 else code


if __name__ == "__main__":
    sys.exit(main())
