"""The example of the page about Celery, with a worker."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.broker_process import BrokerProcess

_EXAMPLE = Path(__file__).parents[2] / "docs" / "celery"
#: Places two orders, the second one with a card that is declined twice, and prints what became of them.
_PROGRAM = """
import shop
from celery.result import AsyncResult
orders = [shop.process(1, 1000, ["tea", "cup"]), shop.process(2, 1013, ["tea"])]
print([AsyncResult(each, app=shop.app).get(timeout=120) for each in orders])
"""


class ExampleTests(SynchronousTestCase):
    """A shop."""

    if not find_spec("celery"):
        skip = "needs the extra celery"

    def test_ordersAreProcessed(self) -> None:
        """With retries, groups and results."""
        with BrokerProcess("--journal", os.path.abspath(self.mktemp())) as broker:
            root = str(Path(__file__).parents[2])
            environment = {
                **os.environ,
                "SHOP_BROKER": f"fleximq://127.0.0.1:{broker.port()}",
                "PYTHONPATH": os.pathsep.join([root, str(_EXAMPLE), os.environ.get("PYTHONPATH", "")]),
            }
            words = [sys.executable, "-m", "celery", "-A", "shop", "worker", "--pool", "solo", "--loglevel", "error"]
            worker = subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            try:
                found = subprocess.run(
                    [sys.executable, "-c", _PROGRAM], env=environment, capture_output=True, text=True, check=False
                )
            finally:
                worker.terminate()
                worker.wait()
        self.assertEqual(found.stdout, "['order 1: packed tea, packed cup', 'order 2: packed tea']\n", found.stderr)
