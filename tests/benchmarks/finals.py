"""Does a recommendation hold? Seeded studies on an engine whose truth is known; prints finals.md's table.

    python tests/benchmarks/finals.py [STUDIES] [THROUGH_TUNE] [KEEP]

STUDIES of each kind (400), the first THROUGH_TUNE of them (50) through the whole of `tune`, the others with a
scripted search of twelve configurations whose noisy figures choose the finalists. What has been run is kept
in the file KEEP, if there is one, and not run again.
"""

from __future__ import annotations

import json
import math
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "study"))

from known_studies import Outcomes, scripted, searched


def wilson(hits: int, of: int) -> tuple[float, float]:
    """95% interval of a binomial rate (Wilson 1927)."""
    if not of:
        return 0.0, 1.0
    z, rate = 1.96, hits / of
    middle = (rate + z * z / (2 * of)) / (1 + z * z / of)
    half = z / (1 + z * z / of) * math.sqrt(rate * (1 - rate) / of + z * z / (4 * of * of))
    return middle - half, middle + half


def line(what: str, rows: Sequence[Outcomes], holds: Callable[[Outcomes], bool]) -> str:
    """One row of the table."""
    hits = sum(holds(row) for row in rows)
    low, high = wilson(hits, len(rows))
    share = hits / len(rows) if rows else 0.0
    return f"| {what} | {hits} of {len(rows)} | {share:.1%} | {low:.1%} to {high:.1%} |"


def covers(row: Outcomes, gain: float) -> bool:
    return row.interval[0] <= gain <= row.interval[1]


def kept_in(file: Path) -> dict[tuple[int, bool], Outcomes]:
    """Outcomes by seed and by whether something beats the default."""
    rows = [json.loads(text) for text in file.read_text().splitlines()] if file.exists() else []
    return {
        (row["seed"], row.pop("beats")): Outcomes(**{**row, "interval": tuple(row["interval"])})
        for row in rows
    }


def main(studies: int = 400, through_tune: int = 50, keep: Path = Path("/dev/null")) -> None:
    begun = time.process_time()
    known = kept_in(keep)
    with tempfile.TemporaryDirectory() as folder, keep.open("a") as file:
        for seed in range(studies):
            for beats in (False, True):
                if (seed, beats) in known:
                    continue
                study = searched if seed < through_tune else scripted
                known[seed, beats] = row = study(seed, beats, Path(folder) / str(beats))
                print(json.dumps({"beats": beats, **asdict(row)}, default=bool), file=file, flush=True)
    nothing, something = ([known[seed, beats] for seed in range(studies)] for beats in (False, True))
    tuned = [row for row in something if row.recommended == "tuned"]
    print("| what | studies | rate | 95% interval |\n|---|---|---|---|")
    print(
        line("nothing beats the default: the default is kept", nothing, lambda r: r.recommended == "default")
    )
    print(line("something does, tuned: true gain in the interval", tuned, lambda r: covers(r, r.gain)))
    print(line("the same, gain in endless traffic", tuned, lambda r: covers(r, r.gain_long)))
    print(line("something does: exported load meets the SLO in truth", something, lambda r: r.carries))
    print(line("nothing does: exported load meets the SLO in truth", nothing, lambda r: r.carries))
    print(line("both, in endless traffic", [*nothing, *something], lambda r: r.carries_long))
    for low, high in ((0.0, 0.05), (0.05, 0.1), (0.1, 0.2), (0.2, 0.4), (0.4, 1.0)):
        some = [row for row in something if low <= row.best_gain - 1.0 < high]
        found = f"found where the best finalist gives {low:.0%} to {high:.0%}"
        print(line(found, some, lambda r: r.recommended == "tuned"))
    print(f"\n{time.process_time() - begun:.0f} CPU-seconds")


if __name__ == "__main__":
    main(*(int(value) for value in sys.argv[1:3]), *(Path(value) for value in sys.argv[3:4]))
