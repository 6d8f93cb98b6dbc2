"""Says whether the libraries of schemas are installed, for tests that are skipped without them."""

from importlib.util import find_spec

missing: str | None = next(
    (
        f"{name} is not installed"
        for name in ("fastavro", "google.protobuf", "jsonschema_rs", "grpc_tools")
        if find_spec(name.partition(".")[0]) is None
    ),
    None,
)
