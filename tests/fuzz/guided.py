"""Recipes made by atheris (libFuzzer), which looks for those that reach code that none before has reached.

A program of its own, for what is to be watched has to be imported by atheris, and libFuzzer ends the process itself.
"""

import os
import sys
import time

import atheris

with atheris.instrument_imports(include=["fleximq"]):
    from tests.fuzz.run import GROWTH, WARM, Play, resident

#: Seconds that one recipe may take, and mebibytes that the process may have.
STUCK, MOST = 60, 2048


def main(seconds: float, seed: int) -> None:
    """Play recipes for so long, then end the process: with 0 if nothing broke."""
    with atheris.instrument_imports(include=["fleximq"]):
        play = Play()  # which loads the dialects
    report = play.report
    began, cpu, memory = time.perf_counter(), time.process_time(), 0

    def one(recipe: bytes) -> None:
        nonlocal memory
        play.recipe(recipe)
        report.seconds = time.perf_counter() - began
        if not memory and report.seconds > seconds * WARM:
            memory = resident()
        if report.seconds >= seconds:
            report.cpu = time.process_time() - cpu
            play.world.close()
            report.grown = resident() - memory
            print(report, flush=True)
            os._exit(report.grown > GROWTH)

    # The corpus itself grows with what is found, so there is no bound on that of a long run but the last.
    words = (f"-seed={seed & 0x7FFFFFFF}", f"-timeout={STUCK}", f"-rss_limit_mb={MOST}", "-max_len=3000")
    atheris.Setup([sys.argv[0], *words, "-len_control=0", "-verbosity=0"], one)
    atheris.Fuzz()


if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[2]))
