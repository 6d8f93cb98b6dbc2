"""Warnings about valid settings."""

import os
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from fleximq.config.settings import Settings
from fleximq.startup.advice import adviceAbout
from tests.security.secrets_on_disk import secretFile


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

    def test_admin(self) -> None:
        """A broker for others without tables has no admin; the sentence says how to name one."""
        for values in ({"auth": ("unix",)}, {"allow_anonymous": True}):
            [sentence] = self.advice(**values)
            self.assertIn("[principals.NAME]", sentence)
            self.assertEqual(self.advice(**values, roles={}), [])
