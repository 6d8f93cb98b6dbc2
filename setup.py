"""The compiled core, which pip builds where there is a C compiler; all else is in setup.cfg."""

from pathlib import Path

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(f"fleximq.compiled.{source.stem}", [str(source)], optional=True)
        for source in sorted(Path("fleximq/compiled").glob("*.pyx"))
    ]
)
