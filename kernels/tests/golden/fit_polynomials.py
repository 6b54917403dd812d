"""Prints the coefficients of src/cpu/math.rs: minimax fits by iteratively reweighted least squares (Lawson's method).

Run with: python3 fit_polynomials.py   (needs numpy)
"""

import math

import numpy as np


def fit(function, low, high, degree, weight):
    count = 4000
    nodes = np.cos(np.pi * (np.arange(count) + 0.5) / count)
    x = nodes * (high - low) / 2 + (low + high) / 2
    y = np.array([function(value) for value in x])
    scale = np.array([weight(value) for value in x])
    basis = np.polynomial.chebyshev.chebvander(nodes, degree)
    lawson = np.ones(count)
    for _ in range(60):
        root = np.sqrt(lawson) * scale
        coefficients, *_ = np.linalg.lstsq(basis * root[:, None], y * root, rcond=None)
        error = np.abs((basis @ coefficients - y) * scale)
        lawson *= error / error.max() + 1e-3
        lawson /= lawson.mean()
    series = np.polynomial.chebyshev.Chebyshev(coefficients, domain=[low, high])
    return series.convert(kind=np.polynomial.Polynomial).coef, error.max()


def show(name, result):
    coefficients, error = result
    print(name, [float(np.float32(value)) for value in coefficients], f"error {error:.1e}")


def exp_tail(r):
    """(e^r - 1 - r) / r^2"""
    return (math.expm1(r) - r) / (r * r) if abs(r) > 1e-3 else 0.5 + r / 6 + r * r / 24 + r**3 / 120


def erf_near(s):
    """erf(x) / x - 1 of s = x^2"""
    return math.erf(math.sqrt(s)) / math.sqrt(s) - 1


def erf_far(t):
    """-ln(1 - erf(t)) / t"""
    return -math.log(math.erfc(t)) / t


half_ln2 = math.log(2) / 2 * 1.0001
show("exp tail", fit(exp_tail, -half_ln2, half_ln2, 4, lambda r: r * r / math.exp(r) + 1e-12))
show("erf near", fit(erf_near, 1e-13, 0.92**2, 5, lambda s: 1.0))
show("erf far", fit(erf_far, 0.9, 4.0, 5, lambda t: math.erfc(t) * t))
