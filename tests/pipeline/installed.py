"""Whether what the pipeline needs is installed; modules of tests take ``missing`` as their ``skip``."""

from importlib.util import find_spec

_wanted = [name for name in ("numpy", "pyarrow", "pyspark") if find_spec(name) is None]
#: Why the tests of the pipeline cannot run; None if they can.
missing = f"{' and '.join(_wanted)} not installed: pip install fleximq[spark]" if _wanted else None
