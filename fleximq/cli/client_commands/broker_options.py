"""Which broker a command talks to, and as whom: options, the environment, and a file of profiles.

What is written on the command line wins over ``FLEXIMQ_URL`` and ``FLEXIMQ_PROFILE``, and these over the profile named
``default``. Credentials of a profile are shown only to the broker that the profile names, unless it is asked for by
its name.

Numbers over 0 on a command line, as types for ``argparse``.
"""

import os
import tomllib
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple, TypeVar

from fleximq.client.backoff import Backoff
from fleximq.client.blocking import Client, connect
from fleximq.client.settings import BACKOFF, MESSAGEPACK, Codec, Tls
from fleximq.errors import SettingError

Number = TypeVar("Number", int, float)


def positive(read: Callable[[str], Number], name: str) -> Callable[[str], Number]:
    """Return what reads a finite number that is over 0, and raises ArgumentTypeError for anything else.

    :param name: what its sentence calls it.
    """

    def number(text: str) -> Number:
        try:
            found = read(text)
        except ValueError:
            found = read("0")
        if not 0 < found < float("inf"):
            raise ArgumentTypeError(f"{text!r} is no {name}")
        return found

    return number


#: How many.
count = positive(int, "whole number over 0")
#: How often a second.
rate = positive(float, "number over 0")
#: How long.
seconds = positive(float, "number of seconds over 0")


#: Where a broker is that nothing is said of.
DEFAULT_URL = "tcp://localhost:7890"
#: What a profile may say, each a text.
KEYS = ("url", "token", "user", "password", "api-key", "tls-authority", "tls-certificate", "tls-key")
_DEFAULT = "default"


class Address(NamedTuple):
    """Where a broker is, what is shown to it, and how long it is waited for, in seconds."""

    url: str
    credentials: Mapping[str, str] | None = None
    tls: Tls | None = None
    timeout: float = 30.0

    def connect(self, *, reconnect: Backoff | None = BACKOFF, codec: Codec = MESSAGEPACK) -> Client:
        """Return a client that has joined.

        The keyword arguments are described in :class:`fleximq.client.settings.ClientSettings`.

        :raises ClientError: no broker answers, or it does not let this client in.
        """
        return connect(
            self.url,
            credentials=self.credentials,
            tls=self.tls,
            timeout=self.timeout,
            reconnect=reconnect,
            codec=codec,
        )


def addOptions(parser: ArgumentParser) -> None:
    """Add the options that say which broker, and as whom."""
    group = parser.add_argument_group("the broker")
    group.add_argument(
        "--url", metavar="URL", help=f"where it is, e.g. tls://broker.example:7891 [FLEXIMQ_URL, else {DEFAULT_URL}]"
    )
    group.add_argument("--profile", metavar="NAME", help="take what the file of profiles says under this name")
    group.add_argument("--token", help="show this token; FLEXIMQ_TOKEN keeps it out of the list of processes")
    group.add_argument("--user", metavar="NAME", help="show this name, and the password that is in FLEXIMQ_PASSWORD")
    group.add_argument("--api-key", metavar="KEY", help="show this API key, or what is in FLEXIMQ_API_KEY")
    group.add_argument("--tls-authority", metavar="FILE", help="trust the certificates in this PEM file only")
    group.add_argument("--tls-certificate", metavar="FILE", help="show this certificate inside TLS")
    group.add_argument("--tls-key", metavar="FILE", help="the key to it, if that is not in the same file")
    group.add_argument("--timeout", metavar="SECONDS", type=seconds, default=30.0, help="how long to wait for it [30]")


def addressOf(arguments: Namespace, environment: Mapping[str, str] = os.environ) -> Address:
    """Return the broker that these arguments, this environment and the file of profiles name.

    :raises SettingError: the profile is not there or wrong, or a name comes without its password.
    """
    profile = _profileFor(arguments, environment)
    said = profile | {
        name: value
        for name, value in (
            ("url", arguments.url or ("" if arguments.profile else environment.get("FLEXIMQ_URL"))),
            ("token", arguments.token or environment.get("FLEXIMQ_TOKEN")),
            ("user", arguments.user),
            ("password", environment.get("FLEXIMQ_PASSWORD")),
            ("api-key", arguments.api_key or environment.get("FLEXIMQ_API_KEY")),
            ("tls-authority", arguments.tls_authority),
            ("tls-certificate", arguments.tls_certificate),
            ("tls-key", arguments.tls_key),
        )
        if value
    }
    files = [said.get(name) for name in ("tls-authority", "tls-certificate", "tls-key")]
    tls = Tls(*files) if any(files) else None
    return Address(said.get("url", DEFAULT_URL), _credentials(arguments, said), tls, arguments.timeout)


def profilesFile(environment: Mapping[str, str] = os.environ) -> Path:
    """Return where profiles are kept: ``FLEXIMQ_PROFILES``, else ``fleximq/profiles.toml`` in the user's settings."""
    named = environment.get("FLEXIMQ_PROFILES")
    if named:
        return Path(named)
    folder = environment.get("XDG_CONFIG_HOME") or os.path.join(environment.get("HOME", "~"), ".config")
    return Path(folder).expanduser() / "fleximq" / "profiles.toml"


def profile(path: Path, name: str) -> dict[str, str]:
    """Return what a file says under a name.

    :raises SettingError: it cannot be read, there is no such name, or something under it is not as it must be.
    """
    try:
        with path.open("rb") as file:
            found = tomllib.load(file)
    except OSError as error:
        raise SettingError(
            f"the profiles in {path} cannot be read: {(error.strerror or str(error)).lower()}"
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingError(f"the profiles in {path} are no TOML: {error}") from error
    chosen = found.get(name)
    if not isinstance(chosen, dict):
        known = ", ".join(each for each, table in found.items() if isinstance(table, dict)) or "none"
        raise SettingError(f"there is no profile {name!r} in {path}; there are: {known}")
    for key, value in chosen.items():
        if key not in KEYS:
            raise SettingError(f"the profile {name} in {path} has {key!r}, but may have {', '.join(KEYS)}")
        if not isinstance(value, str):
            raise SettingError(f"{key} of the profile {name} in {path} is {value!r}, but must be a text")
    return dict(chosen)


def _profileFor(arguments: Namespace, environment: Mapping[str, str]) -> dict[str, str]:
    path = profilesFile(environment)
    name = arguments.profile or ("" if arguments.url else environment.get("FLEXIMQ_PROFILE"))
    if name:
        return profile(path, name)
    if arguments.url or environment.get("FLEXIMQ_URL") or not path.is_file():
        return {}
    try:
        return profile(path, _DEFAULT)
    except SettingError as error:
        if "there is no profile" in str(error):
            return {}
        raise


def _credentials(arguments: Namespace, said: Mapping[str, str]) -> dict[str, str] | None:
    """Return what to show; what is given as an option is shown before anything else."""
    if (arguments.user or not (arguments.token or arguments.api_key)) and "user" in said:
        if "password" not in said:
            raise SettingError(f"there is no password for {said['user']}: put it into FLEXIMQ_PASSWORD or a profile")
        return {"type": "basic", "username": said["user"], "password": said["password"]}
    if "token" in said and not arguments.api_key:
        return {"type": "token", "token": said["token"]}
    if "api-key" in said:
        return {"type": "api_key", "api_key": said["api-key"]}
    return None
