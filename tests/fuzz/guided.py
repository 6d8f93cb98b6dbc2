"""Inputs made by atheris (libFuzzer), which looks for those that reach code that none before has reached.

A program of its own, for what is to be watched has to be imported by atheris, and libFuzzer ends the process itself::

    python -m tests.fuzz.guided recipes SECONDS SEED
    python -m tests.fuzz.guided readers SECONDS SEED [INPUTS [FOLDER]]

``recipes`` plays conversations (:mod:`tests.fuzz.run`), ``readers`` feeds every reader (:mod:`tests.fuzz.readers`),
beginning with the corpus, and adds what it finds to FOLDER. An input that breaks something is written to a file named
``crash-...`` or ``timeout-...``.
"""

import os
import sys
import tempfile
import time

import atheris

with atheris.instrument_imports(include=["fleximq"]):
    from tests.fuzz.readers import CORPUS, LONGEST, Readers
    from tests.fuzz.run import GROWTH, WARM, Play, resident

#: Seconds that one input may take, and mebibytes that the process may have.
STUCK, MOST = 60, 2048
#: The longest recipe, in bytes.
RECIPE = 3000


def main(what: str, seconds: float, seed: int, most: str = "", folder: str = "") -> None:
    """Feed inputs for so long, or so many, then end the process: with 0 if nothing broke."""
    with atheris.instrument_imports(include=["fleximq"]):
        play, readers = Play(), Readers()  # which loads the dialects
    inputs = int(most or sys.maxsize)
    feed, longest = (readers.read, LONGEST) if what == "readers" else (play.recipe, RECIPE)
    began, cpu, memory, done = time.perf_counter(), time.process_time(), 0, 0
    folders = [folder or tempfile.mkdtemp(prefix="fuzz-"), str(CORPUS)] if what == "readers" else []

    def one(data: bytes) -> None:
        nonlocal memory, done
        feed(data)
        done += 1
        gone = time.perf_counter() - began
        if not memory and (gone > seconds * WARM or done > inputs * WARM):
            memory = resident()
        if gone >= seconds or done >= inputs:
            play.report.seconds, play.report.cpu = gone, time.process_time() - cpu
            play.world.close()
            readers.close()
            grown = play.report.grown = resident() - memory
            if what == "readers":
                took = f"{gone:.1f} s, the slowest took {readers.slowest * 1000:.1f} ms"
                print(f"{done:,} inputs for readers in {took}, memory grew by {grown / 1048576:.1f} MiB", flush=True)
            else:
                print(play.report, flush=True)
            os._exit(grown > GROWTH)

    # The corpus itself grows with what is found, so there is no bound on that of a long run but the last.
    words = (f"-seed={seed & 0x7FFFFFFF}", f"-timeout={STUCK}", f"-rss_limit_mb={MOST}", f"-max_len={longest}")
    atheris.Setup([sys.argv[0], *words, "-len_control=0", "-verbosity=0", *folders], one)
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:])
