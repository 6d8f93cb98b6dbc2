"""Reads payloads of Protocol Buffers by a set of descriptors. The library itself bounds their depth (100)."""

from collections.abc import Iterator
from typing import Any

from fleximq.errors import SettingError
from fleximq.schemas.misfit import Misfit, missingExtra

try:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, unknown_fields
    from google.protobuf.message import DecodeError, Message
except ImportError as error:
    raise missingExtra(error) from error

#: The wire type of each type of field ("Message Structure" in the encoding's specification).
_WIRE = {
    **dict.fromkeys((3, 4, 5, 8, 13, 14, 17, 18), 0),
    **dict.fromkeys((1, 6, 16), 1),
    **dict.fromkeys((9, 11, 12), 2),
    10: 3,
    **dict.fromkeys((2, 7, 15), 5),
}
_WORDS = [
    *("double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string", "a group"),
    *("a message", "bytes", "uint32", "an enum", "sfixed32", "sfixed64", "sint32", "sint64"),
]
_WIDTHS = {1: 8, 5: 4}
#: Maximum number of fields, or messages, that are looked at one by one, in all of a payload.
_MAX_WALK = 10_000


class ProtobufCodec:
    """Reads payloads of one type of message; ``type`` is its descriptor. An empty name means the only, or first,
    message of the last file. Raises SettingError if the descriptors are broken, or lack the message.
    """

    def __init__(self, descriptors: bytes, name: str = "", indexes: tuple[int, ...] = ()) -> None:
        try:
            files = descriptor_pb2.FileDescriptorSet.FromString(descriptors).file
            pool = descriptor_pool.DescriptorPool()
            for file in files:
                pool.Add(file)
            if not name:
                name = _nameAt(files[-1], indexes or (0,))
            self.type = pool.FindMessageTypeByName(name)
            self._class = message_factory.GetMessageClass(self.type)
        except KeyError:
            known = ", ".join(sorted(_names(files[-1:]))[:10]) or "none"
            raise SettingError(f"it has no message {name!r}, only {known}") from None
        except (DecodeError, TypeError, LookupError, ValueError) as error:
            raise SettingError(f"it is no set of descriptors of Protocol Buffers: {error}"[:300]) from None

    def read(self, payload: bytes) -> Message:
        """Return the message; fields that the schema does not know are ignored, as newer writers have them."""
        try:
            message = self._class.FromString(payload)
        except (DecodeError, MemoryError) as error:
            raise _misfit(self.type, payload, error, [_MAX_WALK]) from None
        if not message.IsInitialized():
            raise Misfit(next(iter(message.FindInitializationErrors())), "is missing")
        _checkTypes(message, "", [_MAX_WALK])
        return message


def _checkTypes(message: Message, path: str, left: list[int]) -> None:
    """Raise Misfit for a field of the schema that was sent as another type, which the library only ignores; also in
    messages inside, the first ones: so many are ``left``.
    """
    left[0] -= 1
    if left[0] < 0:
        return
    unknown = unknown_fields.UnknownFieldSet(message)
    if len(unknown):
        fields = message.DESCRIPTOR.fields_by_number
        for place in range(min(len(unknown), max(0, left[0]))):
            left[0] -= 1
            each = unknown[place]
            field = fields.get(each.field_number)
            # Older readers take an unknown value of a closed enum for an unknown field.
            if field is not None and each.wire_type != _WIRE[field.type] and each.wire_type != 2:
                raise Misfit(f"{path}{field.name}", f"is sent with wire type {each.wire_type}, not as {_typeOf(field)}")
            if field is not None and each.wire_type == 2 and _WIRE[field.type] != 2:
                raise Misfit(f"{path}{field.name}", f"is sent with wire type 2, not as {_typeOf(field)}")
    if not any(field.message_type is not None for field in message.DESCRIPTOR.fields):
        return
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        if field.message_type.GetOptions().map_entry:
            if field.message_type.fields_by_name["value"].message_type is not None:
                for each in value.values():
                    _checkTypes(each, f"{path}{field.name}.", left)
        elif field.is_repeated:
            for place, each in enumerate(value):
                if left[0] > 0:
                    _checkTypes(each, f"{path}{field.name}[{place}].", left)
        else:
            _checkTypes(value, f"{path}{field.name}.", left)


def _typeOf(field: Any) -> str:
    return _WORDS[int(field.type) - 1]


def _names(files: Any) -> Iterator[str]:
    for file in files:
        for message in file.message_type:
            yield f"{file.package}.{message.name}" if file.package else message.name


def _nameAt(file: Any, indexes: tuple[int, ...]) -> str:
    """Return the full name of a message by its index in the file, and those in the messages around it."""
    names, messages = [file.package] if file.package else [], file.message_type
    for index in indexes:
        if not 0 <= index < len(messages):
            raise KeyError(index)
        names.append(messages[index].name)
        messages = messages[index].nested_type
    return ".".join(names)


def _misfit(known: Any, payload: bytes, error: BaseException, left: list[int]) -> Misfit:
    """Return the fault of the first field with broken bytes, in the outermost message and then within that field; so
    many fields are ``left`` to look at.
    """
    text = str(error)
    if "MaxDepth" in text:
        return Misfit("", "is nested too deeply")
    fields = known.fields_by_number
    for number, wireType, content in _walk(payload, left):
        field = fields.get(number)
        path = field.name if field is not None else f"field {number}" if number else ""
        if content is None:
            return Misfit(path, "is cut off" if number else "is no message of Protocol Buffers")
        if field is None or wireType != 2:
            continue
        if field.type == 9 and not _isUtf8(content):
            return Misfit(path, "is not UTF-8")
        if field.type == 11:
            try:
                message_factory.GetMessageClass(field.message_type).FromString(content)
            except DecodeError as inner:
                found = _misfit(field.message_type, content, inner, left)
                return Misfit(f"{path}.{found.path}" if found.path else path, found.words)
    return Misfit("", f"is no {known.full_name} of Protocol Buffers")


def _isUtf8(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


def _walk(payload: bytes, left: list[int]) -> Iterator[tuple[int, int, bytes | None]]:
    """Yield number, wire type and content of each field; the content is None where the bytes are broken, and for a
    number too that is 0.
    """
    place, end = 0, len(payload)
    while place < end and left[0] > 0:
        left[0] -= 1
        tag, place = _varint(payload, place)
        number, wireType = tag >> 3, tag & 7
        if place < 0 or not number or number >> 29:
            yield 0, 0, None
            return
        begin = place
        if wireType == 0:
            _, place = _varint(payload, place)
        elif wireType == 2:
            size, begin = _varint(payload, place)
            place = begin + size if begin >= 0 else -1
        else:
            place += _WIDTHS.get(wireType, 0)
        isBroken = place < 0 or place > end
        yield number, wireType, None if isBroken else payload[begin:place]
        if isBroken:
            return


def _varint(payload: bytes, place: int) -> tuple[int, int]:
    """Return a number and the place after it, -1 if it is broken."""
    value = 0
    for shift, byte in enumerate(payload[place : place + 10]):
        value |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            return value, place + shift + 1
    return value, -1
