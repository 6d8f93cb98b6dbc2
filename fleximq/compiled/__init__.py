"""The compiled core: Cython twins of the hottest loops of ``wire`` and ``values``, used where they were built.

Each twin overrides a class of ``wire``, or replaces a function of it, and gives the same results and errors; the Python
code is the reference. :mod:`fleximq.compiled.choice` has the implementation in use.
"""
