"""Reads files with schemas. A definition has their contents, so it can be recorded, and sent to other machines."""

import json
import re
import subprocess
import sys
from base64 import b64decode, b64encode
from dataclasses import dataclass
from os.path import abspath, basename, dirname, join
from tempfile import TemporaryDirectory

from fleximq.errors import SettingError, systemReason
from fleximq.schemas.misfit import ICodec, missingExtra

AVRO, PROTOBUF, JSON_SCHEMA = "avro", "protobuf", "json-schema"
FORMS = (AVRO, PROTOBUF, JSON_SCHEMA)
#: Maximum bytes of a file.
MAX_BYTES = 1 << 20
#: Seconds for the compiler of a ``.proto`` file.
_PATIENCE = 30
#: Lines of the compiler's log between its errors.
_LOG = re.compile(r"WARNING: |[IW]\d{4} ")
_EXTENSIONS = {".avsc": AVRO, ".proto": PROTOBUF, ".desc": PROTOBUF, ".binpb": PROTOBUF, ".pb": PROTOBUF}


@dataclass(frozen=True, slots=True)
class Definition:
    """A schema: for Avro the texts of all files, for Protocol Buffers the descriptors in base64 and the message's name,
    for JSON Schema the text.
    """

    form: str
    parts: tuple[str, ...]

    def codec(self) -> ICodec:
        """Return the reader of payloads; raises SettingError if the schema cannot be used, or a library is missing."""
        if self.form == AVRO:
            from fleximq.schemas.avro import AvroCodec

            return AvroCodec(self.parts)
        if self.form == PROTOBUF:
            from fleximq.schemas.protobuf import ProtobufCodec

            return ProtobufCodec(b64decode(self.parts[0]), self.parts[1])
        from fleximq.schemas.json_schema import JsonSchemaCodec

        return JsonSchemaCodec(self.parts[0])


def formOf(file: str) -> str:
    """Return the form of the schema in a file by its name, JSON Schema for unknown ones."""
    name = file.partition(",")[0]
    return next((form for extension, form in _EXTENSIONS.items() if name.endswith(extension)), JSON_SCHEMA)


def definitionOf(form: str, written: str) -> Definition:
    """Return the definition in ``FILE``, for Avro perhaps followed by files with the schemas of older writers, for
    Protocol Buffers by the message: ``FILE,MESSAGE``; the files are read. Raises SettingError.
    """
    first, *others = [each.strip() for each in written.split(",")]
    if not first:
        raise SettingError(f"{form} needs the file of a schema")
    if form == AVRO:
        return _checked(Definition(form, tuple(_text(each) for each in (first, *others))), first)
    if len(others) > (form == PROTOBUF):
        raise SettingError(f"{form} has {written!r}, but needs {'FILE,MESSAGE' if form == PROTOBUF else 'one file'}")
    if form == JSON_SCHEMA:
        return _checked(Definition(form, (_text(first),)), first)
    found = _compiled(abspath(first)) if first.endswith(".proto") else _bytes(first)
    return _checked(Definition(form, (b64encode(found).decode(), others[0] if others else "")), first)


def _checked(definition: Definition, file: str) -> Definition:
    try:
        definition.codec()
    except SettingError as error:
        if isinstance(error.__cause__, ImportError):
            raise
        raise SettingError(f"the schema {file} cannot be used: {error}") from None
    return definition


def _bytes(file: str) -> bytes:
    try:
        with open(file, "rb") as opened:
            found = opened.read(MAX_BYTES + 1)
    except OSError as error:
        raise SettingError(f"the schema {file} cannot be read: {systemReason(error)}") from None
    if len(found) > MAX_BYTES:
        raise SettingError(f"the schema {file} has more than {MAX_BYTES:,} bytes")
    return found


def _text(file: str) -> str:
    try:
        return _bytes(file).decode()
    except UnicodeDecodeError:
        raise SettingError(f"the schema {file} is not UTF-8") from None


def _compiled(file: str) -> bytes:
    """Return the descriptors of a ``.proto`` file and of those that it imports from its folder."""
    _bytes(file)
    try:
        return compiled(dirname(file), basename(file))
    except SettingError as error:
        raise SettingError(f"the schema {file} cannot be used: {error}") from error.__cause__


def compiled(folder: str, name: str) -> bytes:
    """Return the descriptors of a ``.proto`` file in a folder; raises SettingError."""
    try:
        import grpc_tools
    except ImportError as error:
        raise missingExtra(error) from error
    own = join(dirname(grpc_tools.__file__), "_proto")
    with TemporaryDirectory(prefix="fleximq-schema-") as made:
        result = join(made, "descriptors")
        # The compiler writes its errors to the process's own standard error, hence a process of its own.
        command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{folder}", f"-I{own}", "--include_imports"]
        try:
            done = subprocess.run(
                [*command, f"--descriptor_set_out={result}", name], capture_output=True, timeout=_PATIENCE, check=False
            )
        except subprocess.TimeoutExpired:
            raise SettingError(f"its compiler took more than {_PATIENCE} s") from None
        if done.returncode:
            lines = [line for line in done.stderr.decode(errors="replace").splitlines() if not _LOG.match(line)]
            raise SettingError(" ".join(" ".join(lines).split())[:300])
        with open(result, "rb") as opened:
            return opened.read()


def packed(definition: Definition) -> str:
    """Return a definition as text, for :func:`unpacked`."""
    return json.dumps([definition.form, *definition.parts])


def unpacked(text: str) -> Definition:
    """Return the definition that :func:`packed` has written."""
    form, *parts = json.loads(text)
    return Definition(form, tuple(parts))
