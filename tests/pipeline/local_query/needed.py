"""Whether what local queries need is installed; modules of tests take ``missing`` as their ``skip``."""

from importlib.metadata import PackageNotFoundError, version

from tests.pipeline.installed import missing as _missing


def _found() -> str | None:
    try:
        installed = version("duckdb")
    except PackageNotFoundError:
        installed = "0"
    return None if int(installed.partition(".")[0]) >= 2 else "duckdb 2 is not installed: pip install fleximq[sql]"


#: Why the tests of local queries cannot run; None if they can.
missing = _missing or _found()
