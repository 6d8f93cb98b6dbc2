"""FlexiMQ: one message broker that speaks four small wire dialects over one topic space.

Start it with ``twistd -n fleximq --listen tcp:7890``. The rooms of this package and the direction in which
they may import each other are described in ``docs/architecture.rst``.
"""

__version__ = "0.1.0"
__all__ = ["__version__"]
