"""Which broker is meant: options before variables before profiles, and whose credentials go where."""

import io
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from unittest.mock import patch

from twisted.trial.unittest import SynchronousTestCase

from fleximq.cli.client_commands.broker_options import (
    DEFAULT_URL,
    Address,
    Outages,
    addOptions,
    addressOf,
    profilesFile,
)
from fleximq.client.errors import ConnectionLost
from fleximq.client.settings import State, Tls
from fleximq.errors import SettingError

PROFILES = """
[default]
url = "tcp://home:1"
token = "home's"

[work]
url = "tls://work:2"
user = "ann"
password = "secret"
tls-authority = "our.pem"
"""


def given(*words: str) -> Namespace:
    """Return these options, read."""
    parser = ArgumentParser()
    addOptions(parser)
    return parser.parse_args(words)


class AddressTests(SynchronousTestCase):
    """:func:`addressOf`."""

    def setUp(self) -> None:
        """Write a file of profiles."""
        self.path = Path(self.mktemp())
        self.path.write_text(PROFILES)
        self.variables = {"FLEXIMQ_PROFILES": str(self.path)}

    def found(self, *words: str, **variables: str) -> Address:
        """Return what these options and variables name."""
        return addressOf(given(*words), self.variables | variables)

    def refused(self, *words: str, **variables: str) -> str:
        """Return the sentence that these are refused with."""
        return str(self.assertRaises(SettingError, self.found, *words, **variables))

    def test_nothing(self) -> None:
        """Without a word, and without a file, it is the usual address and nothing is shown there."""
        self.assertEqual(addressOf(given(), {"FLEXIMQ_PROFILES": self.mktemp()}), Address(DEFAULT_URL))

    def test_outages(self) -> None:
        """The loss of a connection, however many attempts fail, and its return are told; the beginning is not."""
        times = iter((10.0, 12.13))
        with patch.object(sys, "stderr", io.StringIO()) as errors:
            report = Outages(monotonic=lambda: next(times))
            Outages()(State.CLOSED, ConnectionLost("never joined"))
            lost = ConnectionLost("gone")
            for state, why in ((State.JOINED, None), (State.AWAY, lost), (State.AWAY, lost), (State.JOINED, None),
                               (State.CLOSED, None), (State.CLOSED, lost)):  # fmt: skip
                report(state, why)
        self.assertEqual(errors.getvalue(), (
            "disconnected; reconnecting\nconnected again after 2.1 s; messages may be missing\ndisconnected: gone\n"
        ))  # fmt: skip

    def test_default(self) -> None:
        """The profile named default is taken where nothing else is said."""
        self.assertEqual(self.found(), Address("tcp://home:1", {"type": "token", "token": "home's"}))

    def test_noDefault(self) -> None:
        """A file without that profile changes nothing."""
        self.path.write_text("[work]\nurl = 'tcp://work:2'\n")
        self.assertEqual(self.found(), Address(DEFAULT_URL))

    def test_profile(self) -> None:
        """A profile is named by an option or a variable."""
        wanted = Address(
            "tls://work:2", {"type": "basic", "username": "ann", "password": "secret"}, Tls(authority="our.pem")
        )
        self.assertEqual(self.found("--profile", "work"), wanted)
        self.assertEqual(self.found(FLEXIMQ_PROFILE="work"), wanted)

    def test_urlWithoutProfile(self) -> None:
        """Who names an address shows it nothing of the default profile."""
        self.assertEqual(self.found("--url", "tcp://evil:3"), Address("tcp://evil:3"))
        self.assertEqual(self.found(FLEXIMQ_URL="tcp://evil:3"), Address("tcp://evil:3"))

    def test_urlAgainstVariable(self) -> None:
        """An address on the command line leaves out the profile that a variable names."""
        self.assertEqual(self.found("--url", "tcp://evil:3", FLEXIMQ_PROFILE="work"), Address("tcp://evil:3"))

    def test_privateKey(self) -> None:
        """A private key is an option, a variable, or in a profile."""
        wanted = {"type": "private_key", "private_key": "k"}
        self.assertEqual(self.found("--private-key", "k", FLEXIMQ_TOKEN="t").credentials, wanted)
        self.assertEqual(self.found("--url", "tcp://a:1", FLEXIMQ_PRIVATE_KEY="k").credentials, wanted)
        self.path.write_text("[default]\nprivate-key = 'k'\n")
        self.assertEqual(self.found().credentials, wanted)

    def test_profileAgainstVariable(self) -> None:
        """A profile on the command line wins over the address of a variable."""
        self.assertEqual(self.found("--profile", "work", FLEXIMQ_URL="tcp://evil:3").url, "tls://work:2")

    def test_urlForProfile(self) -> None:
        """Both on the command line: the profile's credentials for that address."""
        found = self.found("--profile", "work", "--url", "tls://other:4")
        self.assertEqual((found.url, found.credentials and found.credentials["type"]), ("tls://other:4", "basic"))

    def test_secrets(self) -> None:
        """Tokens, keys and passwords may stand in variables."""
        url = ("--url", DEFAULT_URL)
        for words, variables, wanted in (
            ((), {"FLEXIMQ_TOKEN": "t"}, {"type": "token", "token": "t"}),
            ((), {"FLEXIMQ_API_KEY": "k"}, {"type": "api_key", "api_key": "k"}),
            (("--user", "u"), {"FLEXIMQ_PASSWORD": "p"}, {"type": "basic", "username": "u", "password": "p"}),
            (("--token", "o"), {"FLEXIMQ_TOKEN": "t"}, {"type": "token", "token": "o"}),
            (("--api-key", "o"), {"FLEXIMQ_TOKEN": "t"}, {"type": "api_key", "api_key": "o"}),
        ):
            self.assertEqual(self.found(*url, *words, **variables).credentials, wanted, (words, variables))

    def test_optionBeforeProfile(self) -> None:
        """An option is shown instead of what the profile has."""
        self.assertEqual(
            self.found("--profile", "work", "--token", "mine").credentials, {"type": "token", "token": "mine"}
        )

    def test_noPassword(self) -> None:
        """A name without a password is refused, with where to put one."""
        self.assertIn("FLEXIMQ_PASSWORD", self.refused("--url", DEFAULT_URL, "--user", "u"))

    def test_unknown(self) -> None:
        """A profile that is not there is refused with those that are."""
        self.assertIn("there are: default, work", self.refused("--profile", "wrok"))

    def test_noFile(self) -> None:
        """A profile is asked for, and there is no file."""
        self.path.unlink()
        self.assertIn("cannot be read", self.refused("--profile", "work"))

    def test_noToml(self) -> None:
        """A file that is no TOML is refused, whoever needs it."""
        self.path.write_text("[")
        self.assertIn("are not TOML", self.refused())

    def test_wrongKey(self) -> None:
        """A key that means nothing is refused with those that do."""
        self.path.write_text("[work]\nulr = 'x'\n")
        self.assertIn("'ulr', but may have url,", self.refused("--profile", "work"))

    def test_wrongType(self) -> None:
        """A value that is no text is refused."""
        self.path.write_text("[work]\nurl = 7\n")
        self.assertIn("url of the profile work", self.refused("--profile", "work"))

    def test_where(self) -> None:
        """The file is in the user's settings unless a variable says otherwise."""
        self.assertEqual(profilesFile({"HOME": "/h"}), Path("/h/.config/fleximq/profiles.toml"))
        self.assertEqual(profilesFile({"HOME": "/h", "XDG_CONFIG_HOME": "/c"}), Path("/c/fleximq/profiles.toml"))
        self.assertEqual(profilesFile({"FLEXIMQ_PROFILES": "/p"}), Path("/p"))
