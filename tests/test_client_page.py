"""The examples of docs/guides/clients.rst print what the page says, against a running broker."""

import os
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from fleximq.client import errors
from fleximq.client.settings import ClientSettings
from tests import readme
from tests.broker_process import PATIENCE, BrokerProcess
from tests.certificates import makeCertificate

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "guides" / "clients.rst").read_text()
QUEUES = (ROOT / "docs" / "guides" / "queue-clients.rst").read_text()
FORMS = ("blocking", "asyncio", "twisted")
CALLS = ("publish(", "publish_many(", "subscribe(", "request(", "serve(", "flush(")
WISHES = ("Tls(", "credentials=", "reconnect=", "on_state=")


class ExamplesTests(SynchronousTestCase):
    """Each example, as a program of its own."""

    def test_examples(self) -> None:
        """All print what stands behind them."""
        with BrokerProcess() as broker:
            for name in re.findall(r"^\.\. conversation: (\w+)$", TEXT, re.MULTILINE):
                code = readme.conversation(TEXT, name, broker.port())
                ended = subprocess.run(
                    [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE
                )
                self.assertEqual((ended.stderr, ended.stdout), ("", readme.printed(TEXT, name)), name)

    def test_secure(self) -> None:
        """The one with TLS and credentials prints what the page says; its arguments are those of all forms."""
        folder = Path(self.mktemp()).absolute()
        folder.mkdir()
        made, own = makeCertificate(folder), makeCertificate(folder, "client")
        for name, path in (
            ("our-authority.pem", made.certificate),
            ("client.pem", own.certificate),
            ("client.key", own.key),
        ):
            (folder / name).write_bytes(path.read_bytes())
        tokens = folder / "tokens"
        token = subprocess.run(
            [sys.executable, "-m", "fleximq.cli", "token", str(tokens), "somebody"],
            cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=True,
        ).stdout.strip()  # fmt: skip
        listen = (
            "--listen",
            "tls://127.0.0.1:0",
            "--tls-certificate",
            str(made.certificate),
            "--tls-key",
            str(made.key),
        )
        with BrokerProcess(*listen, "--auth", f"tokens:{tokens}") as broker:
            code = readme.labelled(TEXT, "secure", "blocking").replace("our-token", token)
            code = code.replace("broker.example.com:7891", f"localhost:{broker.port()}")
            ended = subprocess.run(
                [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, timeout=PATIENCE,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
            )  # fmt: skip
        said = [line.strip() for line in ended.stdout.splitlines()]
        self.assertEqual((ended.stderr, said), ("", readme.printed(TEXT, "secure").split()))

    def test_allAreTried(self) -> None:
        """No example in Python is left out."""
        labelled = re.findall(r"^\.\. (?:conversation|secure): \w+\n\.\. code-block:: python$", TEXT, re.MULTILINE)
        self.assertEqual(len(labelled), TEXT.count(".. code-block:: python\n"))

    def test_forms(self) -> None:
        """Every form is shown with all that one mostly needs."""
        blocks = re.findall(r"^\.\. code-block:: python\n\n((?:    .*\n|\n)+)", TEXT, re.MULTILINE)
        for name in FORMS:
            shown = "".join(each for each in blocks if f"fleximq.client.{name} " in each)
            for word in CALLS:
                self.assertIn(word, shown, name)

    def test_wishes(self) -> None:
        """One example shows the arguments of connect that one mostly needs."""
        code = readme.labelled(TEXT, "secure", "blocking")
        for word in WISHES:
            self.assertIn(word, code)

    def test_settings(self) -> None:
        """All that connect may be told is in the table."""
        for each in fields(ClientSettings):
            self.assertRegex(TEXT, rf"(?m)^``{each.name}`` ")

    def test_errors(self) -> None:
        """All errors are in the table, but the bases, and those of BlipMQ and MiniMQ, which are on their own page."""
        bases = {"ClientError", "Answered"}
        ofQueues = {"Nacked", "ProduceFailed", "ConsumeFailed"}
        classes = {
            name
            for name, value in vars(errors).items()
            if isinstance(value, type) and issubclass(value, errors.ClientError)
        }
        table = TEXT[TEXT.index("\nError  ") :]
        self.assertEqual(set(re.findall(r"(?m)^``(\w+)`` ", table)), classes - bases - ofQueues | {"TimeoutError"})
        for name in ofQueues:
            self.assertIn(f"``{name}``", QUEUES)
