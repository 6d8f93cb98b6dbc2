"""Measurements of FlexiMQ beside its peers, on one machine, with one byte pump (docs/explanation/benchmarks.rst).

:mod:`benchmarks.side_by_side` is the program. ``peers/`` holds a module for each protocol and broker, ``work/`` one
for each kind of work that is measured, and :mod:`benchmarks.scenes` the table of what is measured with what.
Nothing here imports fleximq: the broker is met as any other, over its sockets.
"""
