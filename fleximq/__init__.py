"""FlexiMQ: one message broker that speaks four wire dialects over one topic space.

Start it with ``twistd -n fleximq --listen tcp:7890``. ``docs/architecture.rst`` describes the rooms of this package and
which of them may import each other.
"""

__version__ = "0.1.0"
__all__ = ["__version__"]
