"""Block bootstrap of latencies: arrivals are correlated, so blocks of neighbours are drawn, not requests.

The same blocks are drawn for every configuration, which makes comparisons paired: a burst that is in the
sample is in it for all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from tuner.traces.trace import F64, I64

DRAWS = 2000
Statistic = Callable[[F64], F64]
"""Takes rows of latencies, gives one figure a row."""

_CELLS = 1 << 22  # latencies gathered at a time: 32 MiB
_FEWEST_BLOCKS = 10


def p99_rows(rows: F64) -> F64:
    """P99 by nearest rank of every row (last axis); infinities count."""
    rank = max(1, math.ceil(0.99 * rows.shape[-1] - 1e-9))
    return np.asarray(np.partition(rows, rank - 1, axis=-1)[..., rank - 1], np.float64)


def block_bootstrap(
    latencies: Sequence[NDArray[np.float64]],
    *,
    block: int,
    draws: int = DRAWS,
    seed: int,
    statistic: Statistic = p99_rows,
) -> F64:
    """The statistic of every configuration in every draw, shape (draws, configurations).

    Args:
        latencies: one array a configuration, of the same n requests in order of arrival: shape (n,), or
            (repeats, n) where several replays of the workload are pooled.
        block: neighbours drawn together; `block_length` chooses.
        draws: how often.
        seed: of the blocks, which are the same for all configurations.
        statistic: what is computed of the drawn latencies.

    The circular bootstrap (Politis and Romano 1992): blocks may begin anywhere and go round the end.

    Raises:
        ValueError: no latencies, or of different numbers of requests.
    """
    tables = [np.atleast_2d(np.asarray(values, np.float64)) for values in latencies]
    sizes = {table.shape[1] for table in tables}
    if len(sizes) != 1 or 0 in sizes:
        raise ValueError(f"latencies of the same requests are needed, not of {sorted(sizes)}")
    n = sizes.pop()
    block = min(max(1, block), n)
    rng = np.random.default_rng(seed)
    starts = rng.integers(0, n, (draws, -(-n // block)))
    result = np.empty((draws, len(tables)))
    if statistic is p99_rows:
        weights = _weights(starts, block, n)
        for column, table in enumerate(tables):
            result[:, column] = _weighted_p99(table, weights)
        return result
    at_once = max(1, _CELLS // (n * max(len(table) for table in tables)))
    for low in range(0, draws, at_once):
        rows = _rows(starts[low : low + at_once], block, n)
        for column, table in enumerate(tables):
            drawn = table[:, rows]  # repeats, draws, n
            pooled = np.moveaxis(drawn, 0, 1).reshape(len(rows), -1) if len(table) > 1 else drawn[0]
            result[low : low + len(rows), column] = statistic(pooled)
    return result


def _rows(starts: I64, block: int, n: int) -> I64:
    """Indices of the requests drawn, shape (draws, n)."""
    rows = (starts[:, :, None] + np.arange(block)).reshape(len(starts), -1)[:, :n]
    return np.asarray(np.where(rows >= n, rows - n, rows), np.int64)


def _weights(starts: I64, block: int, n: int) -> NDArray[np.int32]:
    """How often each request is in each draw, shape (n, draws)."""
    draws, blocks = starts.shape
    lengths = np.full(blocks, block)
    lengths[-1] = n - (blocks - 1) * block  # the last block is cut, so that a draw has n requests
    width = n + block + 1
    base = np.arange(draws)[:, None] * width + starts
    change = np.bincount(base.ravel(), minlength=draws * width).astype(np.int32)
    change -= np.bincount((base + lengths).ravel(), minlength=draws * width).astype(np.int32)
    counts = change.reshape(draws, width).cumsum(axis=1, dtype=np.int32)
    counts[:, :block] += counts[:, n : n + block]
    return np.ascontiguousarray(counts[:, :n].T)


def _weighted_p99(table: F64, weights: NDArray[np.int32]) -> F64:
    """P99 by nearest rank of every draw: only the largest latencies have to be looked at."""
    n, values = table.shape[1], table.ravel()
    total = len(values)
    above = total - max(1, math.ceil(0.99 * total - 1e-9))  # so many of a draw lie above its P99
    wanted = min(total, 4 * above + 20)
    while True:
        tail = np.argpartition(values, total - wanted)[total - wanted :]
        tail = tail[np.argsort(values[tail])[::-1]]
        seen = weights[tail % n].cumsum(axis=0, dtype=np.int32)
        if wanted == total or int(seen[-1].min()) > above:
            return np.asarray(values[tail[(seen > above).argmax(axis=0)]], np.float64)
        wanted = min(total, 2 * wanted)


def block_length(latencies: Sequence[NDArray[np.float64]]) -> int:
    """How many neighbours to draw together: the longest that any of the series asks for.

    Politis and White (2004), as corrected by Patton, Politis and White (2009), for the circular bootstrap,
    on the ranks of the latencies (failures are infinite). At least the cube root of n, at most a tenth of n.
    """
    series = [row for values in latencies for row in np.atleast_2d(np.asarray(values, np.float64))]
    n = min((len(row) for row in series), default=1)
    shortest, longest = math.ceil(n ** (1 / 3)), max(1, n // _FEWEST_BLOCKS)
    wanted = max((_politis_white(_ranks(row)) for row in series), default=1.0)
    return int(min(max(math.ceil(wanted), shortest), longest))


def _ranks(values: F64) -> F64:
    """Ranks from -1/2 to 1/2, equal ones for equal values."""
    distinct, inverse = np.unique(values, return_inverse=True)
    counts = np.bincount(inverse, minlength=len(distinct))
    middle = np.cumsum(counts) - (counts + 1) / 2
    return np.asarray(middle[inverse] / max(len(values) - 1, 1) - 0.5, np.float64)


def _politis_white(x: F64) -> float:
    """The block length that minimises the mean squared error of the bootstrap's variance of a mean."""
    n = len(x)
    covariance = _autocovariance(x)
    if n < 8 or covariance[0] <= 0:
        return 1.0
    run = max(5, math.ceil(math.sqrt(math.log10(n))))
    small = np.abs(covariance[1:] / covariance[0]) < 2.0 * math.sqrt(math.log10(n) / n)
    quiet = np.convolve(small, np.ones(run), "valid") >= run if len(small) >= run else np.zeros(0, bool)
    m = int(np.argmax(quiet)) if quiet.any() else n // 4
    if m == 0:
        return 1.0
    reach = min(2 * m, n // 2)
    lags = np.arange(1, reach + 1)
    window = np.minimum(1.0, 2.0 * (1.0 - lags / reach))
    spread = 2.0 * float(window @ (lags * covariance[1 : reach + 1]))
    level = float(covariance[0] + 2.0 * (window @ covariance[1 : reach + 1]))
    if level <= 0:
        return float(n)
    return float((1.5 * spread**2 / level**2 * n) ** (1 / 3))


def _autocovariance(x: F64) -> F64:
    """Autocovariance at lags 0, 1, …, through the Fourier transform."""
    n = len(x)
    transformed = np.fft.rfft(x - x.mean(), 2 * n)
    return np.asarray(np.fft.irfft(np.abs(transformed) ** 2)[:n] / n, np.float64)
