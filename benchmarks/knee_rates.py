"""How often a knee of a packing is found: where there is none, by the noise around the line, and where there is one.

Simulated start-up times go through the fit of the product. Of noise that is independent from container to container a
knee is promised in one curve of a hundred. A host whose speed wanders (a random walk) makes curves that bend by
themselves, and a packing that is repeated has another walk each time.

    python benchmarks/knee_rates.py [--curves N] [--containers N]
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt
from aa import line
from common import parser_of

from bench_master.verdicts.knee import LEVEL, fit_curve
from bench_master.verdicts.student import binomial_interval

Values = npt.NDArray[np.float64]

SPREAD: Final = 0.1
"""Standard deviation of the noise, of the walk over all containers; as a share of a start-up time."""
START_S: Final = 0.3
SLOPE_S: Final = 0.01
"""By how much a start-up time grows with each container after the knee, where there is one."""
PACKINGS: Final = (1, 3, 6)


def independent(rng: np.random.Generator, count: int) -> Values:
    """Return noise of which each container has its own."""
    return rng.standard_normal(count)


def correlated(rng: np.random.Generator, count: int) -> Values:
    """Return noise of which each value has half of the one before it."""
    noise = rng.standard_normal(count)
    for place in range(1, count):
        noise[place] += 0.5 * noise[place - 1]
    return noise


def walk(rng: np.random.Generator, count: int) -> Values:
    """Return noise that wanders as a host does whose speed changes slowly."""
    return np.asarray(np.cumsum(rng.standard_normal(count)) / np.sqrt(count))


NOISES: Final[dict[str, Callable[[np.random.Generator, int], Values]]] = {
    "independent": independent,
    "half of the one before": correlated,
    "random walk": walk,
}


def packed(
    rng: np.random.Generator, containers: int, packings: int, noise: Callable[[np.random.Generator, int], Values]
) -> tuple[Values, Values]:
    """Return the number of each container, and its start-up time where there is no knee."""
    numbers = np.tile(np.arange(1.0, containers + 1.0), packings)
    times = [START_S * np.exp(SPREAD * noise(rng, containers)) for _ in range(packings)]
    return numbers, np.concatenate(times)


def main() -> int:
    """Print a row for each noise and number of packings; exit with 1 if independent noise has too many knees."""
    parser = parser_of(__doc__)
    parser.add_argument("--curves", type=int, default=300, metavar="N", help="curves of each row (default: 300)")
    parser.add_argument("--containers", type=int, default=100, metavar="N", help="of each packing (default: 100)")
    options = parser.parse_args()
    rng = np.random.default_rng(1)
    print(f"{options.curves} curves a row, packings of {options.containers} containers\n")
    print("no knee is there, one is found:")
    promised = 0
    for name, noise in NOISES.items():
        for packings in PACKINGS:
            curves = (packed(rng, options.containers, packings, noise) for _ in range(options.curves))
            found = sum(fit_curve(*curve).knee is not None for curve in curves)
            print(line(f"{name}, {packings} packing{'s' if packings > 1 else ''}", found, options.curves))
            promised = max(promised, found) if noise is independent else promised
    print("\na knee is there:")
    where = 0.6 * options.containers
    found = covered = 0
    for _ in range(options.curves):
        numbers, times = packed(rng, options.containers, 3, independent)
        knee = fit_curve(numbers, times * (1 + SLOPE_S / START_S * np.maximum(0.0, numbers - where))).knee
        found += knee is not None
        covered += knee is not None and knee.low <= where <= knee.high
    print(line("it is found", found, options.curves))
    print(line("its interval (95 %) has the true place", covered, found or 1))
    return int(binomial_interval(promised, options.curves)[0] > LEVEL)


if __name__ == "__main__":
    sys.exit(main())
