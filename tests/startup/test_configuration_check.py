"""Faults of settings that are found before anything starts, and warnings about valid ones."""

import os
from collections.abc import Mapping
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from fleximq.config.extension_options import EnabledExtension
from fleximq.config.option_values import count
from fleximq.config.settings import Settings
from fleximq.dialects.registry import Registry, installed
from fleximq.errors import SettingError
from fleximq.plugin import Dialect, Extension
from fleximq.startup.configuration_check import adviceAbout, configurationOf, faults
from tests.security.secrets_on_disk import secretFile


def configure(options: Mapping[str, object]) -> Any:
    """Read the options of the extension ``sample``: a number ``n``; ``broken`` breaks it."""
    if "broken" in options:
        raise ValueError("I am broken")
    return count("n", options.get("n", 7))


REGISTRY = Registry.of(
    [*(each for each in installed().dialects.values()), Dialect("plus")],
    [
        Extension("sample", "A sample.", "tests.startup.test_configuration_check.configure", "builtins.dict"),
        Extension("gone", "Not there.", "there.is.no.such", "builtins.dict"),
    ],
)


class FaultsTests(SynchronousTestCase):
    """Sentences about settings."""

    def faults(self, **values: object) -> list[str]:
        """Return everything that is wrong with these values; in names an underscore stands for a dash."""
        return list(faults({name.replace("_", "-"): value for name, value in values.items()}, REGISTRY))

    def test_good(self) -> None:
        """Nothing is said about what is right, plug-ins included."""
        self.assertEqual(self.faults(), [])
        self.assertEqual(self.faults(keepalive=3, listen="plus+tcp:1", extension={"sample": {"n": 3}}), [])

    def test_onlyAnApplicationsBrokerMayBeWithoutAListener(self) -> None:
        self.assertEqual(self.faults(listen=[]), ["listen is empty, but must name an endpoint, e.g. tcp:7890"])
        self.assertEqual(list(faults({"listen": []}, REGISTRY, embedded=True)), [])

    def test_onlyOneStdio(self) -> None:
        """There is only one standard input."""
        self.assertEqual(self.faults(listen=["stdio:", "tcp:1"]), [])
        self.assertEqual(
            self.faults(listen=["stdio:", "minimq+stdio://"]),
            ["listen is stdio: and minimq+stdio://, but only one client can be at standard input"],
        )

    def test_withoutJournal(self) -> None:
        """What only a journal can do is not promised without one."""
        for name, value in (("durable", "a"), ("retain", "a"), ("retention", "a=1d"), ("history", 3)):
            self.assertEqual(
                self.faults(**{name: value}),
                [f"{name} is set, but nothing is kept without a journal: name its folder with journal (--journal)"],
            )
            self.assertEqual(self.faults(journal="j", **{name: value}), [])

    def test_twoFiles(self) -> None:
        """A journal that is bounded has room for two files at least, else it could never get rid of one."""
        self.assertEqual(self.faults(journal="j", journal_segment="1MiB", journal_max_bytes="2MiB"), [])
        self.assertEqual(
            self.faults(journal="j", journal_segment="1MiB", journal_max_bytes=2097151),
            ["journal-max-bytes is 2097151, but must be 0 or at least twice journal-segment, which is 2097152"],
        )

    def test_cluster(self) -> None:
        """A node of a cluster has a name and a folder; addresses, names and sizes are checked."""
        urls = ["nats://a:4222", "tls://b"]
        self.assertEqual(self.faults(cluster=urls, node="a-1", journal="j", cluster_bytes="1GiB"), [])
        listen = "minimq+tcp:1:principal=w"
        self.assertEqual(
            self.faults(cluster=urls, node="a-1", journal="j", cluster_bytes="1GiB", listen=[listen]),
            [f"listen is {listen!r}, but a listener of a cluster's node cannot have a principal"],
        )
        self.assertEqual(
            self.faults(cluster=urls),
            [
                "cluster is set, but not node: each node of a cluster needs a name",
                "cluster is set, but not journal: the folder of this node's copy of the messages",
            ],
        )
        self.assertEqual(
            self.faults(cluster_key="k"),
            ["cluster-key is set, but not cluster-certificate: the certificate that it belongs to"],
        )
        self.assertEqual(self.faults(cluster=urls, node="a", journal="j", mesh=True, spawn=["true"]), [])
        for name, value, sentence in (
            ("mesh", True, "mesh is set, but not cluster: the NATS servers by which the nodes reach each other"),
            ("cluster_auth", "hidden", "cluster-auth must be password:FILE, token:FILE or creds:FILE"),
            (
                "cluster",
                ["nats://user:hidden@a"],
                "cluster has a URL with credentials, which belong in a file named by cluster-auth",
            ),
            ("cluster", ["http://a"], "cluster is 'http://a', but must be like nats://host:4222 or tls://host:4222"),
            ("node", "a.b", "node is 'a.b', but must be 1 to 64 letters, digits, - or _"),
            ("node_address", "a", "node-address is 'a', but must be like 10.0.0.1:7800"),
            ("node_address", "a:65536", "node-address is 'a:65536', but must be like 10.0.0.1:7800"),
            ("cluster_name", "", "cluster-name is '', but must be 1 to 64 letters, digits, - or _"),
        ):
            self.assertEqual(self.faults(**{name: value}), [sentence])

    def test_all(self) -> None:
        """Everything that is wrong is said, not only the first: names, types, values, listeners, extensions."""
        self.assertEqual(
            self.faults(
                keep_alive=3,
                keepalive=True,
                max_clients=0,
                listen=["foo:1", "tcp:1", "mqtt+tcp:1"],
                extension=["none", "sample:n=many"],
            ),
            [
                "there is no setting named keep-alive, did you mean keepalive?",
                "keepalive is True, but must be a number of seconds, e.g. 30 or 0.5",
                "max-clients is 0, but must be between 1 and 281474976710656",
                "listen is 'foo:1', but there is no kind of endpoint named 'foo': use tcp:7890, unix:PATH or tls://0.0.0.0:7891",
                f"listen names the dialect 'mqtt', but must name one of {', '.join(REGISTRY.dialects)}, or none",
                "there is no extension named 'none'; installed: gone, sample",
                "extension sample: n is 'many', but must be a whole number",
            ],
        )

    def test_claims(self) -> None:
        """Dialects that claim the same bytes are refused where one port serves both, and only there."""
        registry = Registry.of([*REGISTRY.dialects.values(), *(Dialect(x, beginnings=[b"\x7f"]) for x in "xy")], [])
        for values, number in (
            ({}, 1),
            ({"listen": ["x+tcp:1", "y+tcp:2", "wss://h:1"]}, 1),  # there is no certificate
            ({"listen": ["x+tcp:1", "y+tcp:2", "ws://h:1"]}, 0),
            ({"disable-dialect": "y"}, 0),
            ({"disable-dialect": "y", "listen": ["7890", "y+tcp:2"]}, 1),
            ({"disable-dialect": ["y", "z"]}, 2),
        ):
            self.assertEqual(len(list(faults(values, registry))), number, values)

    def test_auth(self) -> None:
        """What is wrong with checkers is said for each of them, and with their files too."""
        missing, unknown, empty = self.faults(auth=["certificate:", "tokens:/none/such", "none:x", "jwt:"])
        self.assertEqual(missing, "auth tokens: /none/such cannot be read: no such file or directory")
        self.assertTrue(
            unknown.startswith("auth is 'none', but there is no such scheme; installed: apikeys, "), unknown
        )
        self.assertEqual(
            empty,
            "auth jwt: exactly one of secret=FILE, key=FILE and jwks=FILE or URL must be given, or issuer=URL alone",
        )

    def test_elsewhere(self) -> None:
        """Sockets that systemd passes need not be here where the broker is not."""
        values = {"listen": ["minimq+systemd:domain=INET:index=0", "haproxy:systemd:domain=INET:index=1"]}
        self.assertEqual(len(list(faults(values, REGISTRY))), 2)
        self.assertEqual(list(faults(values, REGISTRY, elsewhere=True)), [])

    def test_tables(self) -> None:
        """A table where none makes sense is refused as any other wrong value."""
        self.assertEqual(
            self.faults(listen={"tcp": 1}), ["listen is {'tcp': 1}, but must be a text or a list of texts"]
        )
        self.assertEqual(self.faults(limits={"max-line": 1}), ["there is no setting named limits"])


class ConfigurationTests(SynchronousTestCase):
    """The options of one extension."""

    def refused(self, name: str, **options: object) -> str:
        """Return the sentence with which these options are refused."""
        return str(self.assertRaises(SettingError, configurationOf, EnabledExtension(name, options), REGISTRY))

    def test_read(self) -> None:
        """The extension says what its options are."""
        self.assertEqual(configurationOf(EnabledExtension("sample", {"n": "3"}), REGISTRY), 3)

    def test_unknown(self) -> None:
        """An unknown name is answered by those that are installed."""
        self.assertEqual(self.refused("x"), "there is no extension named 'x'; installed: gone, sample")
        error = self.assertRaises(SettingError, configurationOf, EnabledExtension("x"), Registry.of([], []))
        self.assertEqual(str(error), "there is no extension named 'x'; installed: none")

    def test_broken(self) -> None:
        """One that cannot be loaded, or breaks, is a sentence as well."""
        self.assertIn("the extension gone cannot be loaded: ", self.refused("gone"))
        self.assertEqual(self.refused("sample", broken=1), "the extension sample cannot be loaded: I am broken")


class AdviceTests(SynchronousTestCase):
    """Files open to all users, and brokers without an admin."""

    def advice(self, path: str | None = None, **values: Any) -> list[str]:
        """Return the warnings about these values."""
        settings = Settings.of({name.replace("_", "-"): value for name, value in values.items()})
        return list(adviceAbout(settings, path))

    def test_none(self) -> None:
        """A broker for its own machine needs no warning, nor do closed files."""
        self.assertEqual(self.advice(secretFile(self, mode=0o644)), [])
        closed = secretFile(self, mode=0o640)
        self.assertEqual(self.advice(closed, spawn=("program",), tls_key=closed), [])

    def test_settingsFile(self) -> None:
        """A settings file that may hold secrets is named if all users can read it."""
        path = secretFile(self, mode=0o644)
        self.assertEqual(
            self.advice(path, spawn=("program",)), [f"{path} is open to all users of this machine: chmod o= {path}"]
        )

    def test_keys(self) -> None:
        """Private keys are, whether an option or an endpoint names them."""
        path, certificate = secretFile(self, mode=0o604), secretFile(self, mode=0o604)
        for values in (
            {"tls_key": path, "tls_certificate": certificate},
            {"tls_certificate": path},
            {"listen": (f"fleximqtls:cert={certificate}:key={path}:inner=tcp\\:7890",)},
            {"listen": (f"fleximqtls:cert={path}:inner=tcp\\:7890",)},
            {"http": (f"ssl:0:privateKey={path}",)},
        ):
            [sentence] = self.advice(**values)
            self.assertTrue(sentence.startswith(path))

    def test_credentialsOfSystemd(self) -> None:
        """Nobody else reaches the files in the folder of systemd's credentials."""
        path = secretFile(self, mode=0o644)
        self.patch(os, "environ", {"CREDENTIALS_DIRECTORY": os.path.dirname(path)})
        self.assertEqual(self.advice(tls_key=path), [])

    def test_listener(self) -> None:
        """The principal of a listener has no rights of its own without a table, if there are tables."""
        listen = ("tcp:7890", "minimq+tcp:5677:principal=workers")
        self.assertEqual(self.advice(listen=listen), [])
        [sentence] = self.advice(listen=listen, principals={"worker": {"consume": True}})
        self.assertIn("there is no [principals.workers]", sentence)
        [sentence] = self.advice(listen=listen, roles={"everyone": {}})
        self.assertIn("there is no [principals.workers]", sentence)
        self.assertEqual(self.advice(listen=listen, principals={"workers": {"consume": True}}), [])

    def test_admin(self) -> None:
        """A broker for others without tables has no admin; the sentence says how to name one."""
        for values in ({"auth": ("unix",)}, {"allow_anonymous": True}):
            [sentence] = self.advice(**values)
            self.assertIn("[principals.NAME]", sentence)
            self.assertEqual(self.advice(**values, roles={}), [])
