"""Whether a well-behaved client keeps its latency within twice of what it was while others attack.

``python -m benchmarks.under_attack`` runs the attacks of ``tests/attacks`` one after the other, each several times, and
prints the median round trip of a client beside, before and during the attack, and what the broker's memory grew by. The
best of the runs counts, for the attackers and everything else on the machine take their share of it. The exit code is 0
if each attack kept to :data:`FACTOR`, those aside that no rate was set against.
"""

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from tests.attacks.case import AttackCase, Outcome, attacked
from tests.attacks.test_attacks import ConnectionTests, RateTests, SecureTests, SenderTests, SlowTests
from tests.attacks.test_passwords import ProcessTests

#: The most by which the median may grow.
FACTOR = 2.0
#: A round trip is not measured more exactly than this, in seconds.
EXACT = 0.00005

#: What is attacked, and how.
ATTACKS: tuple[tuple[type[AttackCase], tuple[str, ...]], ...] = (
    (RateTests, ("connects",)),
    (RateTests, ("joins",)),
    (ConnectionTests, ("crowd",)),
    (ConnectionTests, ("silence",)),
    (SenderTests, ("subscriptions",)),
    (SenderTests, ("topics",)),
    (SenderTests, ("publishes",)),
    (SenderTests, ("bytes",)),
    (SenderTests, ("queues",)),
    (SlowTests, ("trickle:fleximq", "trickle:blipmq", "trickle:minimq")),
    (SlowTests, ("trickle:identity", "trickle:fleximq-ws", "trickle:http")),
    (RateTests, ("bombs:proxied",)),
    (RateTests, ("requests:proxied",)),
    (SecureTests, ("trickle:tls",)),
    (ProcessTests, ("passwords",)),
)
#: The same where no rate is set, which takes the processor from others; shown beside, and not held to the factor.
UNLIMITED: tuple[tuple[type[AttackCase], tuple[str, ...]], ...] = (
    (SlowTests, ("bombs",)),
    (SlowTests, ("requests",)),
)


def measure(kind: type[AttackCase], names: Sequence[str], seconds: float, times: int) -> Outcome:
    """Attack so many times, and return the best outcome by latency, with the largest growth of all but the first."""
    case: Any = kind("setUp")
    case.setUp()
    try:
        port = case.broker.port(case.port)
        outcomes = [attacked(case.broker, port, case.good, names, seconds) for _ in range(times + 1)][1:]
    finally:
        case.doCleanups()
    best = min(outcomes, key=lambda outcome: outcome.attacked / max(outcome.quiet, EXACT))
    return best._replace(grown=max(outcome.grown for outcome in outcomes))


def main(arguments: Sequence[str]) -> int:
    """Measure, print, and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.under_attack", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--seconds", type=float, default=2.0, help="how long each attack lasts (default: 2)")
    parser.add_argument("--times", type=int, default=3, help="how often it is looked at (default: 3)")
    parser.add_argument("names", nargs="*", help="only the attacks of these names")
    options = parser.parse_args(arguments)
    worst = 0.0
    for kind, names in ATTACKS + UNLIMITED:
        if options.names and not set(options.names).intersection(names):
            continue
        outcome = measure(kind, names, options.seconds, options.times)
        factor = outcome.attacked / max(outcome.quiet, EXACT)
        held = (kind, names) in ATTACKS
        worst = max(worst, factor * held)
        print(f"{' + '.join(names)}{'' if held else ', no rate set'}: {outcome}, x {factor:.2f}", flush=True)
    print(f"worst where rates are set: x {worst:.2f}")
    return 0 if worst <= FACTOR else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
