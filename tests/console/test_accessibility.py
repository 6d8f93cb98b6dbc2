"""What axe-core says about every page in both themes; it is fetched when these tests run."""

import atexit
import functools
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SkipTest

from tests.console.case import PAGES, ConsoleCase
from tests.nightly import nightly

_SERIOUS = ("serious", "critical")
_RUN = "async () => (await axe.run(document, {resultTypes: ['violations']})).violations"


@functools.cache
def axe() -> str:
    """Return the path of axe-core's script; raises SkipTest if it cannot be fetched."""
    folder = Path(tempfile.mkdtemp(prefix="fleximq-axe-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    npm = shutil.which("npm")
    if npm is None:
        raise SkipTest("axe-core is fetched by npm, which is missing")
    ended = subprocess.run([npm, "pack", "axe-core"], cwd=folder, capture_output=True, text=True, timeout=300)
    archives = list(folder.glob("*.tgz"))
    if ended.returncode or not archives:
        raise SkipTest(f"axe-core cannot be fetched: {ended.stderr[-300:]}")
    with tarfile.open(archives[0]) as archive:
        archive.extract("package/axe.min.js", folder, filter="data")
    return str(folder / "package" / "axe.min.js")


@nightly
class AccessibilityTests(ConsoleCase):
    """Pages that everybody can use."""

    def test_allPages(self) -> None:
        """No page has a serious finding, in either theme."""
        found = []
        for theme in ("light", "dark"):
            for segments, text in PAGES:
                # The policy of the pages would refuse the script of axe.
                page = self.show(*segments, until=text, theme=theme, bypass_csp=True)
                page.add_script_tag(path=axe())
                found += [_words(theme, segments, each) for each in page.evaluate(_RUN) if each["impact"] in _SERIOUS]
                page.close()
        self.assertEqual(found, [])


def _words(theme: str, segments: tuple[str, ...], violation: Any) -> str:
    places = ", ".join(str(node["target"]) for node in violation["nodes"][:3])
    return f"{theme} {'/'.join(segments)}: {violation['id']}, {violation['help']}: {places}"
