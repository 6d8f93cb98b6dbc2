"""Payloads that are one value as a whole: text, or any bytes."""

import pyarrow as pa


class Text:
    """The format ``text``: one column of text, in UTF-8."""

    def columns(self, values: pa.Array, errors: dict[int, str]) -> list[pa.Array]:
        """Return the texts; what is not UTF-8 is null and has an error."""
        try:
            return [values.cast(pa.string())]
        except pa.ArrowInvalid:
            return [
                pa.array([_text(value, place, errors) for place, value in enumerate(values.to_pylist())], pa.string())
            ]


class Raw:
    """The format ``raw``: one column of bytes, as they are."""

    def columns(self, values: pa.Array, errors: dict[int, str]) -> list[pa.Array]:
        """Return the payloads."""
        return [values]


def _text(value: bytes | None, place: int, errors: dict[int, str]) -> str | None:
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        errors[place] = "the payload is not UTF-8"
        return None
