"""Writes metric.json: statistics of small seeded inputs as SciPy and NumPy give them.

    python3 make.py > metric.json

Needs numpy and scipy. Exact bootstrap distributions are enumerated here draw by draw (n to the n), which shares
nothing with the multinomial form of the program.
"""

import itertools
import json
import sys

import numpy
import scipy
from scipy import stats

rng = numpy.random.default_rng(20260731)


def mean_difference(values, axis):
    return numpy.mean(values, axis=axis)


def bootstrap(values):
    result = stats.bootstrap((values,), numpy.mean, n_resamples=200_000, method="percentile", vectorized=True, rng=rng)
    low, high = result.confidence_interval
    return {"values": list(values), "low": low, "high": high, "standard_error": float(result.standard_error)}


def exact_bootstrap(values):
    n = len(values)
    means = sorted(sum(draw) / n for draw in itertools.product(values, repeat=n))
    # Smallest mean with at least 2.5 % of all draws at or below it, and its mirror image.
    need = -(-len(means) // 40)
    return {
        "values": list(values),
        "low": means[need - 1],
        "high": means[-need],
        "standard_error": float(numpy.std(means)),
    }


def kendall(left, right):
    return {"left": list(left), "right": list(right), "tau": float(stats.kendalltau(left, right).statistic)}


def permutation(values):
    exact = stats.permutation_test(
        (values,), mean_difference, permutation_type="samples", n_resamples=numpy.inf, vectorized=True
    )
    return {"values": list(values), "p": float(exact.pvalue)}


def grid(n, levels):
    return [float(v) / (levels - 1) for v in rng.integers(0, levels, n)]


out = {
    "made_with": {"numpy": numpy.__version__, "scipy": scipy.__version__},
    "bootstrap": [bootstrap([round(float(v), 3) for v in rng.normal(0.2, 0.5, n)]) for n in (12, 25, 50)]
    + [bootstrap(grid(40, 2)), bootstrap(grid(30, 5))],
    "exact_bootstrap": [
        exact_bootstrap(v)
        for v in (
            [1.0, 0.0, 1.0],
            [-1.0, 0.0, 1.0, 1.0, 0.0],
            [0.25, 0.5, -0.75, 0.0, 1.0],
            [1.0, 1.0, 1.0, 1.0, 1.0],
            [0.0, 1.0, -1.0, 1.0, 0.5, 0.5, 1.0],
        )
    ],
    "kendall": [
        kendall(grid(n, levels), grid(n, levels)) for n, levels in ((5, 50), (12, 4), (30, 3), (60, 1000), (8, 2))
    ],
    "permutation": [permutation([round(float(v), 3) for v in rng.normal(m, 1.0, n)]) for m, n in ((0.0, 8), (0.7, 12), (1.5, 10))],
    "ranks": [
        {"values": v, "ranks": [int(r) for r in stats.rankdata([-x for x in v], method="min")]}
        for v in (grid(6, 3), grid(10, 5))
    ],
    "mean": [
        {"values": v, "mean": float(numpy.mean(v)), "stderr": float(stats.sem(v)), "median": float(numpy.median(v))}
        for v in (grid(7, 11), grid(20, 2))
    ],
}
json.dump(out, sys.stdout, indent=1)
print()
