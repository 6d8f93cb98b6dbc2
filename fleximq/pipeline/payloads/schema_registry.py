"""A client of a schema registry with Confluent's REST interface, and the payloads that name their schema by its prefix:
a zero byte and a number of four bytes.

Schemas never change, so fetched ones are cached. A number that the registry does not know makes its message a dead
letter. While the registry does not answer, the caller waits; after :data:`PATIENCE` seconds, RegistryGone is raised.
"""

import json
import time
from base64 import b64decode, b64encode
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from http.client import HTTPException
from importlib import import_module
from logging import getLogger
from os import environ
from typing import Any, NamedTuple
from urllib.error import HTTPError
from urllib.parse import quote, urlsplit
from urllib.request import Request

from fleximq.errors import SettingError
from fleximq.pipeline.errors import OptionRefused, RegistryGone
from fleximq.pipeline.payloads.bounded_request import bodyOf
from fleximq.pipeline.wait_notice import waitNotice
from fleximq.schemas.misfit import Misfit

#: The environment variables with the registry's URL, if no option names it, and with ``USER:PASSWORD``.
URL, LOGIN = "FLEXIMQ_SCHEMA_REGISTRY", "FLEXIMQ_SCHEMA_REGISTRY_LOGIN"
#: Seconds for one answer, between two attempts, and for all.
ANSWER, PAUSE, PATIENCE = 10.0, 1.0, 300.0
#: Maximum bytes of an answer, cached schemas, and cached unknown numbers; seconds until these are asked for again.
MAX_ANSWER, MAX_SCHEMAS, MAX_UNKNOWN, FORGOTTEN = 4 << 20, 1000, 10_000, 30.0
_MAX_REFERENCES = 100
_REFERENCE = ("name", "subject", "version")
_PREFIX = 5
_log = getLogger(__name__)


class Registered(NamedTuple):
    """A schema of the registry; ``references`` are the texts of the schemas that it needs, by the names that it has for
    them, each after those that it needs itself. Those of Protocol Buffers are descriptors in base64.
    """

    form: str
    text: str
    references: Mapping[str, str]


def registryUrl(written: str) -> str:
    """Return the URL of the registry, from the environment if none is written; raises OptionRefused."""
    url = (written or environ.get(URL, "")).strip().rstrip("/")
    try:
        parts = urlsplit(url)
        isUrl = parts.scheme in ("http", "https") and parts.hostname and not (parts.query or parts.fragment)
    except ValueError:
        isUrl = False
    if not isUrl:
        raise OptionRefused(
            "the format registry needs the URL of a schema registry: registry:https://HOST, or "
            f"{URL} in the environment; without parameters"
        )
    if parts.password is not None or parts.username is not None:
        raise OptionRefused(
            f"the URL of the schema registry has a password, which others would see: put it into {LOGIN}"
        )
    return url


class SchemaRegistry:
    """The schemas of one registry, each converted by ``make``, which raises SettingError for a schema that cannot be
    used.
    """

    def __init__(
        self, url: str, make: Callable[[Registered], Any], wait: Callable[[float], object] = time.sleep
    ) -> None:
        self._url = url
        self._make = make
        self._wait = wait
        self._made: OrderedDict[int, Any] = OrderedDict()
        self._unknown: OrderedDict[int, tuple[float, str]] = OrderedDict()

    def get(self, number: int) -> Any:
        """Return the converted schema; raises Misfit if there is none that can be used, and RegistryGone."""
        found = self._made.get(number)
        if found is not None:
            self._made.move_to_end(number)
            return found
        until, words = self._unknown.get(number, (0.0, ""))
        if time.monotonic() < until:
            raise Misfit("", words)
        try:
            self._made[number] = found = self._make(self._registered(number))
        except SettingError as error:
            self._forget(number, f"has the schema {number}, which cannot be used: {error}")
        except LookupError:
            self._forget(number, f"names the schema {number}, which the registry does not know")
        if len(self._made) > MAX_SCHEMAS:
            self._made.popitem(last=False)
        return found

    def _forget(self, number: int, words: str) -> None:
        self._unknown[number] = time.monotonic() + FORGOTTEN, words
        if len(self._unknown) > MAX_UNKNOWN:
            self._unknown.popitem(last=False)
        raise Misfit("", words)

    def _registered(self, number: int) -> Registered:
        until = time.monotonic() + PATIENCE
        found = self._ask(f"schemas/ids/{number}", until)
        form = str(found.get("schemaType", "AVRO"))
        suffix = "?format=serialized" if form == "PROTOBUF" else ""
        text = _textOf(self._ask(f"schemas/ids/{number}{suffix}", until) if suffix else found)
        references: dict[str, str] = {}
        size = len(text)
        for name, each in self._references(found, suffix, until, {}):
            if references.setdefault(name, each) != each:
                raise SettingError(f"it has two references of the name {name}"[:300])
            size += len(each)
            if size > MAX_ANSWER:
                raise SettingError(f"it has more than {MAX_ANSWER:,} bytes with its references")
        return Registered(form, text, references)

    def _references(
        self, schema: Mapping[str, Any], suffix: str, until: float, seen: dict[tuple[str, int], str]
    ) -> Iterator[tuple[str, str]]:
        for name, subject, version in _referencesIn(schema):
            key = subject, version
            if key not in seen:
                seen[key] = ""
                if len(seen) > _MAX_REFERENCES:
                    raise SettingError(f"it needs more than {_MAX_REFERENCES} others")
                try:
                    found = self._ask(f"subjects/{quote(subject, safe='')}/versions/{version}{suffix}", until)
                except LookupError:
                    words = f"it needs version {version} of {subject}, which the registry does not know"
                    raise SettingError(words[:300]) from None
                seen[key] = _textOf(found)
                yield from self._references(found, suffix, until, seen)
            yield name, seen[key]

    def _ask(self, path: str, until: float) -> Any:
        """Return an answer; raises LookupError if the registry has none, SettingError if it is too large, and
        RegistryGone if it does not answer until some time of the monotonic clock.
        """
        why = ""
        with waitNotice(lambda: f"the schema registry {self._url} does not answer, waiting: {why}", _log.warning):
            while True:
                try:
                    return _answer(f"{self._url}/{path}")
                except HTTPError as error:
                    isOwn = _isOwn(error)
                    if error.code in (401, 403):
                        raise RegistryGone(
                            f"the schema registry {self._url} refuses the login in {LOGIN} ({error.code})"
                        ) from None
                    if isOwn and error.code < 500 and error.code not in (408, 429):
                        raise LookupError(path) from None
                    why = f"status {error.code}"
                except (OSError, HTTPException, ValueError, RecursionError) as error:
                    why = str(getattr(error, "reason", error)) or type(error).__name__
                if time.monotonic() >= until:
                    raise RegistryGone(f"the schema registry {self._url} does not answer: {why}")
                self._wait(PAUSE)


def _isOwn(error: HTTPError) -> bool:
    """Tell whether an error is one of a registry, not that of a proxy without one, which knows no path."""
    with error:
        try:
            found = json.loads(error.read())
        except (ValueError, RecursionError):
            return False
    return isinstance(found, dict) and "error_code" in found


def _answer(url: str) -> Any:
    request = Request(url, headers={"Accept": "application/vnd.schemaregistry.v1+json, application/json"})
    if login := environ.get(LOGIN):
        # A redirection to another host must not get it.
        request.add_unredirected_header("Authorization", f"Basic {b64encode(login.encode()).decode()}")
    content = bodyOf(request, ANSWER, MAX_ANSWER)
    if len(content) > MAX_ANSWER:
        raise SettingError(f"the registry's answer has more than {MAX_ANSWER:,} bytes")
    found = json.loads(content)
    if not isinstance(found, dict):
        raise ValueError("its answer is no JSON object")
    return found


def _textOf(found: Mapping[str, Any]) -> str:
    text = found.get("schema")
    if not isinstance(text, str):
        raise SettingError("the registry's answer has no text of it")
    return text


def _referencesIn(schema: Mapping[str, Any]) -> Iterator[tuple[str, str, int]]:
    """Yield name, subject and version of each reference."""
    found = schema.get("references") or ()
    for each in found if isinstance(found, list | tuple) else (found,):
        name, subject, version = (each.get(key) for key in _REFERENCE) if isinstance(each, dict) else (None,) * 3
        if not isinstance(name, str) or not isinstance(subject, str) or not isinstance(version, int):
            raise SettingError(f"the registry's answer has a reference without {', '.join(_REFERENCE)}")
        yield name, subject, version


def split(payload: bytes) -> tuple[int, bytes]:
    """Return the number of the schema, and the bytes after the prefix; raises Misfit."""
    if payload[:1] != b"\0" or len(payload) < _PREFIX:
        raise Misfit("", "does not begin with a zero byte and the number of a schema")
    return int.from_bytes(payload[1:_PREFIX]), payload[_PREFIX:]


def messageIndexes(payload: bytes) -> tuple[tuple[int, ...], bytes]:
    """Return the indexes by which Protocol Buffers' payloads name their message, and the bytes after them."""
    number, place = _zigzag(payload, 0)
    indexes = []
    for _ in range(min(number, _MAX_REFERENCES)):
        index, place = _zigzag(payload, place)
        indexes.append(index)
    if number < 0 or number > _MAX_REFERENCES:
        raise Misfit("", "names no message of its schema")
    return tuple(indexes) or (0,), payload[place:]


def _zigzag(payload: bytes, place: int) -> tuple[int, int]:
    value = 0
    for shift, byte in enumerate(payload[place : place + 5]):
        value |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), place + shift + 1
    raise Misfit("", "names no message of its schema")


def descriptorSet(registered: Registered) -> bytes:
    """Return the descriptors of a schema of Protocol Buffers with all that it needs; raises SettingError."""
    from google.protobuf import descriptor_pb2
    from google.protobuf.message import DecodeError

    made = descriptor_pb2.FileDescriptorSet()
    known: set[str] = set()

    def add(file: Any) -> None:
        for name in file.dependency:
            if name not in known:
                try:
                    add(_wellKnown(name))
                except ImportError:
                    raise SettingError(f"it imports {name}, which is no reference of it") from None
        if file.name not in known:
            known.add(file.name)
            made.file.append(file)

    try:
        for name, text in registered.references.items():
            file = descriptor_pb2.FileDescriptorProto.FromString(b64decode(text))
            file.name = name
            add(file)
        main = descriptor_pb2.FileDescriptorProto.FromString(b64decode(registered.text))
        main.name = main.name or "schema.proto"
        add(main)
    except (DecodeError, ValueError) as error:
        raise SettingError(f"it is no descriptor of Protocol Buffers: {error}") from None
    found: bytes = made.SerializeToString()
    return found


def _wellKnown(name: str) -> Any:
    from google.protobuf import descriptor_pb2

    if not name.startswith("google/protobuf/") or not name.endswith(".proto"):
        raise ImportError(name)
    module = import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2")
    return descriptor_pb2.FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)
