"""The compiled core, which pip builds where there is a C compiler; all else is in setup.cfg.

``FLEXIMQ_PURE=1`` leaves it out: the wheel is then one for every Python and machine.
"""

import os
from pathlib import Path

from setuptools import Extension, setup

PURE = os.environ.get("FLEXIMQ_PURE") == "1"

setup(
    ext_modules=[
        Extension(f"fleximq.compiled.{source.stem}", [str(source)], optional=True)
        for source in sorted(Path("fleximq/compiled").glob("*.pyx"))
        if not PURE
    ]
)
