"""Options that select the broker and the credentials, together with the environment and a file of profiles.

Options take precedence over ``FLEXIMQ_URL`` and ``FLEXIMQ_PROFILE``, and these over the profile ``default``. The
credentials of a profile are sent only to the broker of that profile, unless the profile is selected by name.
"""

import logging
import os
import time
import tomllib
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple, TypeVar

from fleximq.cli.output import say
from fleximq.client.backoff import Backoff
from fleximq.client.blocking import Client, connect
from fleximq.client.settings import BACKOFF, MESSAGEPACK, PRIVATE_KEY, Codec, State, Tls, Watcher
from fleximq.errors import SettingError, systemReason

Number = TypeVar("Number", int, float)
Clock = Callable[[], float]  #: Returns a time in seconds.


def positive(read: Callable[[str], Number], name: str) -> Callable[[str], Number]:
    """Return a type for ``argparse``: finite numbers above 0; ``name`` is a noun for the message."""

    def number(text: str) -> Number:
        try:
            found = read(text)
        except ValueError:
            found = read("0")
        if not 0 < found < float("inf"):
            raise ArgumentTypeError(f"{text!r} is no {name}")
        return found

    return number


count = positive(int, "whole number over 0")
rate = positive(float, "number over 0")
seconds = positive(float, "number of seconds over 0")

DEFAULT_URL = "tcp://localhost:7890"  #: The URL without options, environment and profiles.
#: The keys of a profile; all values are texts.
KEYS = ("url", "token", "user", "password", "api-key", "private-key", "tls-authority", "tls-certificate", "tls-key")
_URL_WORDS = (
    "its URL, e.g. tls://broker.example:7891, or HOST:PORT; those of a cluster's nodes: HOST:PORT,HOST:PORT "
    f"[FLEXIMQ_URL, else {DEFAULT_URL}]"
)
_OPTIONS = (
    ("--url", "URL", _URL_WORDS),
    ("--profile", "NAME", "use this profile of the file of profiles"),
    ("--token", "TOKEN", "authenticate with this token; FLEXIMQ_TOKEN hides it from the list of processes"),
    ("--user", "NAME", "authenticate with this name and the password in FLEXIMQ_PASSWORD"),
    ("--api-key", "KEY", "authenticate with this API key, or that in FLEXIMQ_API_KEY"),
    ("--private-key", "KEY", "sign with this key of fleximq keypair, or that in FLEXIMQ_PRIVATE_KEY"),
    ("--tls-authority", "FILE", "trust the certificates in this PEM file only"),
    ("--tls-certificate", "FILE", "the client's certificate for TLS"),
    ("--tls-key", "FILE", "its private key, if it is not in the same file"),
)


class Outages:
    """Reports lost and new connections on standard error, unless silent; ``loss`` ends the sentence about a new one."""

    def __init__(
        self, loss: str = "; messages may be missing", monotonic: Clock = time.monotonic, isSilent: bool = False
    ) -> None:
        self._loss, self._monotonic = loss, monotonic
        self._say = (lambda sentence: None) if isSilent else say
        self._since: float | None = None
        self._joined = False
        logging.getLogger("fleximq.client").setLevel(logging.ERROR)  # its own warnings say the same

    def __call__(self, state: State, why: Exception | None) -> None:
        """Report a new state of a client; it is away several times if attempts to connect fail."""
        if state is State.AWAY and self._since is None:
            self._since = self._monotonic()
            self._say("disconnected; reconnecting")
        elif state is State.JOINED:
            self._joined = True
            if self._since is not None:
                took, self._since = self._monotonic() - self._since, None
                self._say(f"connected again after {took:.1f} s{self._loss}")
        elif state is State.CLOSED and why is not None and self._joined:
            self._say(f"disconnected: {why}")


class Address(NamedTuple):
    """A broker, the credentials for it, and a timeout in seconds."""

    url: str
    credentials: Mapping[str, str] | None = None
    tls: Tls | None = None
    timeout: float = 30.0

    def connect(
        self,
        *,
        reconnect: Backoff | None = BACKOFF,
        codec: Codec = MESSAGEPACK,
        name: str | None = None,
        on_state: Watcher | None = None,
    ) -> Client:
        """Return a client that has joined, see :class:`fleximq.client.settings.ClientSettings`; raises ClientError."""
        return connect(
            self.url, credentials=self.credentials, tls=self.tls, timeout=self.timeout,
            reconnect=reconnect, codec=codec, name=name, on_state=on_state,
        )  # fmt: skip


def addOptions(parser: ArgumentParser) -> None:
    """Add the options for the broker and the credentials."""
    group = parser.add_argument_group("the broker")
    for name, metavar, words in _OPTIONS:
        group.add_argument(name, metavar=metavar, help=words)
    words = "limit for connecting and for answers [30]"
    group.add_argument("--timeout", metavar="SECONDS", type=seconds, default=30.0, help=words)


def addressOf(arguments: Namespace, environment: Mapping[str, str] = os.environ) -> Address:
    """Return the selected broker; raises SettingError for a missing or wrong profile, or a user without a password."""
    said = _profileFor(arguments, environment)
    given = {name: getattr(arguments, name.replace("-", "_"), None) for name in KEYS}
    given["url"] = arguments.url or ("" if arguments.profile else environment.get("FLEXIMQ_URL"))
    for name in ("token", "password", "api-key", "private-key"):
        given[name] = given[name] or environment.get(f"FLEXIMQ_{name.replace('-', '_').upper()}")
    said |= {name: value for name, value in given.items() if value}
    files = [said.get(name) for name in ("tls-authority", "tls-certificate", "tls-key")]
    tls = Tls(*files) if any(files) else None
    return Address(said.get("url", DEFAULT_URL), _credentials(arguments, said), tls, arguments.timeout)


def profilesFile(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the file of profiles: ``FLEXIMQ_PROFILES``, or ``fleximq/profiles.toml`` in the user's configuration."""
    named = environment.get("FLEXIMQ_PROFILES")
    if named:
        return Path(named)
    folder = environment.get("XDG_CONFIG_HOME") or os.path.join(environment.get("HOME", "~"), ".config")
    return Path(folder).expanduser() / "fleximq" / "profiles.toml"


def profile(path: Path, name: str) -> dict[str, str]:
    """Return a profile; raises SettingError if the file cannot be read, or the profile is missing or invalid."""
    try:
        with path.open("rb") as file:
            found = tomllib.load(file)
    except OSError as error:
        words = systemReason(error)
        raise SettingError(f"the profiles in {path} cannot be read: {words}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingError(f"the profiles in {path} are not TOML: {error}") from error
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
        return profile(path, "default")
    except SettingError as error:
        if "there is no profile" in str(error):
            return {}
        raise


def _credentials(arguments: Namespace, said: Mapping[str, str]) -> dict[str, str] | None:
    if not arguments.private_key:
        if (arguments.user or not (arguments.token or arguments.api_key)) and "user" in said:
            if "password" not in said:
                words = f"there is no password for {said['user']}: put it into FLEXIMQ_PASSWORD or a profile"
                raise SettingError(words)
            return {"type": "basic", "username": said["user"], "password": said["password"]}
        if "token" in said and not arguments.api_key:
            return {"type": "token", "token": said["token"]}
        if "api-key" in said:
            return {"type": "api_key", "api_key": said["api-key"]}
    return {"type": PRIVATE_KEY, PRIVATE_KEY: said["private-key"]} if "private-key" in said else None
