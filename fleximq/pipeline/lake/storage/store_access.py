"""Access to a store for the libraries of the formats, from the environment and the profiles of the store's own tools.

For S3 these are ``AWS_ACCESS_KEY_ID`` and so on, ``AWS_PROFILE``, ``AWS_ENDPOINT_URL``, and the role of a machine, as
botocore finds them. They are looked up for each use, since credentials of a role expire, and are never recorded.
"""

import os
from typing import NamedTuple

_S3 = ("s3://", "s3a://")


class _Access(NamedTuple):
    """Access to S3; a field that is not set is empty."""

    key: str
    secret: str
    token: str
    region: str
    endpoint: str


def _access() -> _Access:
    from botocore.session import get_session

    session = get_session()
    credentials = session.get_credentials()
    frozen = None if credentials is None else credentials.get_frozen_credentials()
    found: tuple[str, str, str] = (
        ("", "", "") if frozen is None else (frozen.access_key, frozen.secret_key, frozen.token or "")
    )
    scoped = session.get_scoped_config()
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or scoped.get("endpoint_url")
    return _Access(*found, session.get_config_variable("region") or "", endpoint or "")


def _named(names: tuple[str, ...], access: _Access) -> dict[str, str]:
    return {name: value for name, value in zip(names, access, strict=True) if value}


def storageOptions(table: str) -> dict[str, str] | None:
    """Return the options for deltalake, None for a local table, and for stores whose access deltalake finds."""
    if not table.startswith(_S3):
        return None
    access = _access()
    names = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token", "aws_region", "aws_endpoint_url")
    # A commit is an object that is created only if there is none.
    own = {"aws_conditional_put": "etag"}
    if access.endpoint.startswith("http://"):
        own["aws_allow_http"] = "true"
    return {**_named(names, access), **own}


def icebergProperties(lake: str) -> dict[str, str]:
    """Return the properties for PyIceberg, none for a local lake."""
    names = ("s3.access-key-id", "s3.secret-access-key", "s3.session-token", "s3.region", "s3.endpoint")
    return _named(names, _access()) if lake.startswith(_S3) else {}
