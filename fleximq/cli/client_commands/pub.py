"""``fleximq pub`` publishes a value, lines or a file; ``fleximq produce`` puts them into a work queue by MiniMQ."""

import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO

from fleximq.cli.client_commands.broker_options import Address, count, rate
from fleximq.cli.client_commands.client_command import clientCommand, progress, publishPace
from fleximq.cli.client_commands.texts import INPUT, PARSERS, STRICT, argumentValue, checkTopics
from fleximq.cli.command import argument, switch
from fleximq.cli.output import jsonOption, outJson, say
from fleximq.client.errors import Answered
from fleximq.client.minimq.blocking import MiniClient, connect
from fleximq.errors import SettingError, systemReason
from fleximq.status import Status

_TOGETHER = 1000  #: Values are published together in chunks of this size.
_NOTHING: Mapping[str, Any] = MappingProxyType({})
_READ = 1 << 16  #: Bytes of standard input read at once, at most.
_INSTEAD = "pub also reaches the queue of a topic, once it exists"
_ONLY_CERTIFICATE = f"MiniMQ has no credentials but a client certificate (--tls-certificate); {_INSTEAD}"


#: The arguments of a command that sends values to a topic.
VALUES = (
    argument("topic", "TOPIC"),
    argument("value", "VALUE", "the value to publish; without it, each line of standard input", nargs="?"),
    argument("--file", "FILE", "publish the content of this file as one value; - is standard input"),
    argument("--count", "N", "publish the value this many times, or at most this many lines", type=count),
    argument("--rate", "N", "limit of messages per second", type=rate),
    jsonOption("report the result as JSON"),
    switch("--quiet", "print nothing on success"),
    STRICT,
)


@clientCommand(
    "pub", *VALUES, INPUT,
    argument("--key", words="the key of each message, for the pipeline"),
    argument("--message-id", "ID", "the id of the message; on durable topics the broker drops a repeated one"),
)  # fmt: skip
def pub(arguments: Namespace, address: Address) -> None:
    """Publish a value, the lines of standard input, or a file."""
    checkTopics([arguments.topic], arguments.strict, publishes=True)
    topic, key, messageId = arguments.topic, arguments.key, arguments.message_id

    def send(values: list[Any]) -> None:
        if key is None and messageId is None:
            client.publish_many(topic, values)
        else:
            for value in values:
                client.publish(topic, value, key=key, message_id=messageId)

    values = chunksOfValues(arguments)
    with address.connect() as client:
        sendAll(arguments, values, send, client.flush)


@clientCommand("produce", *VALUES, lambda parser: parser.set_defaults(as_="text"))
def produce(arguments: Namespace, address: Address) -> None:
    """Put a value, the lines of standard input, or a file into a work queue."""
    checkTopics([arguments.topic], arguments.strict, publishes=True)
    values = chunksOfValues(arguments)
    with miniClient(address) as client:
        try:
            sendAll(arguments, values, partial(client.produce_many, arguments.topic))
        except ValueError as error:
            hint = "; without --file, each line becomes a message" if arguments.file else ""
            raise SettingError(f"{error}{hint}") from error


@contextmanager
def miniClient(address: Address, **more: Any) -> Iterator[MiniClient]:
    """Connect; raises SettingError that explains which credentials are possible, if there are or must be others."""
    if address.credentials is not None:
        raise SettingError(_ONLY_CERTIFICATE)
    try:
        with connect(address.url, tls=address.tls, timeout=address.timeout, **more) as client:
            yield client
    except Answered as error:
        if error.status != Status.UNAUTHORIZED:
            raise
        raise SettingError(f"{error}; {_INSTEAD}") from error


def sendAll(
    arguments: Namespace,
    values: Iterator[list[Any]],
    send: Callable[[list[Any]], object],
    flush: Callable[[], object] = lambda: None,
    told: Mapping[str, Any] = _NOTHING,
) -> None:
    """Send chunks of values, at the rate of ``--rate``, and report their number, and what else is ``told`` by then."""
    total = arguments.count or (1 if arguments.value is not None or arguments.file else None)
    begun = time.monotonic()
    done = 0
    pace = publishPace(arguments.rate)
    with progress("published", total) as advance:
        for chunk in values:
            for some in (chunk,) if arguments.rate is None else ([value] for value in chunk):
                pace(len(some))
                send(some)
            done += len(chunk)
            advance(len(chunk))
        flush()
    took = time.monotonic() - begun
    if arguments.json:
        outJson({"published": done, "topic": arguments.topic, "seconds": round(took, 6), **told})
    elif not arguments.quiet:
        more = "".join(f", {name} {value}" for name, value in told.items())
        say(f"published {done} to {arguments.topic} in {took:.3f} s{more}")


def chunksOfValues(arguments: Namespace) -> Iterator[list[Any]]:
    """Yield chunks of values as they are read; raises SettingError if a value is invalid."""
    read = PARSERS[arguments.as_]
    if arguments.value is not None and arguments.file:
        raise SettingError("give a VALUE or --file, not both")
    if arguments.value is not None:
        return _repeated(argumentValue(arguments.as_, arguments.value), arguments.count or 1)
    if arguments.file:
        return _repeated(read(content(arguments.file)), arguments.count or 1)
    if sys.stdin.isatty():
        say("fleximq: publishing each line that you type; Control-D ends it")
    return _limited(([read(line) for line in lines] for lines in _lines(sys.stdin.buffer)), arguments.count)


def _repeated(value: Any, count: int) -> Iterator[list[Any]]:
    for first in range(0, count, _TOGETHER):
        yield [value] * min(_TOGETHER, count - first)


def _limited(chunks: Iterator[list[Any]], most: int | None) -> Iterator[list[Any]]:
    left = sys.maxsize if most is None else most
    for chunk in chunks:
        yield chunk[:left]
        left -= len(chunk)
        if left <= 0:
            return


def _lines(stream: BinaryIO) -> Iterator[list[bytes]]:
    """Yield the lines read so far, without their ends."""
    rest = b""
    while data := stream.read1(_READ):  # type: ignore[attr-defined]  # BufferedReader has it
        *lines, rest = (rest + data).split(b"\n")
        if lines:
            yield [line.removesuffix(b"\r") for line in lines]
    if rest:
        yield [rest]


def content(path: str) -> bytes:
    """Return the content of a file, or of standard input for ``-``; raises SettingError if it cannot be read."""
    try:
        return sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    except OSError as error:
        raise SettingError(f"{path} cannot be read: {systemReason(error)}") from error
