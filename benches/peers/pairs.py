"""Two programs in turn. What else the machine does then meets both, and their ratio is steadier than either rate."""

import statistics
import sys
import time
from dataclasses import asdict, dataclass

# A peer this slow is not asked for all pairs.
LONG_RUN_S = 20
FEWER_PAIRS = 2


@dataclass
class Result:
    model: str
    workload: str
    peer: str
    unit: str
    ours: list
    theirs: list
    note: str = ""

    def ratios(self):
        return [ours / theirs for ours, theirs in zip(self.ours, self.theirs)]

    def row(self):
        ratios = self.ratios()
        cells = [
            self.model, self.workload, self.peer, self.unit, f"{statistics.median(self.ours):.1f}",
            f"{statistics.median(self.theirs):.1f}",
            f"{statistics.median(ratios):.2f} ({min(ratios):.2f}..{max(ratios):.2f})", str(len(ratios)), self.note,
        ]
        return f"| {' | '.join(cells)} |"

    def json(self):
        ratios = self.ratios()
        return asdict(self) | {
            "ours_median": statistics.median(self.ours), "theirs_median": statistics.median(self.theirs),
            "ratio_median": statistics.median(ratios), "ratio_min": min(ratios), "ratio_max": max(ratios),
        }


HEADER = (
    "| model | workload | peer | unit | lifelong | peer | lifelong / peer (min..max) | pairs | note |\n"
    "|---|---|---|---|---:|---:|---:|---:|---|"
)


def race(model, workload, peer, ours, prepare, pairs, unit="tok/s", note=""):
    """Pairs of runs, ours first in each; the peer gets one run that does not count, as ours takes by itself."""
    competitor = prepare()
    result = Result(model, workload, peer, unit, [], [], note)
    try:
        started = time.perf_counter()
        competitor.rate()
        if time.perf_counter() - started > LONG_RUN_S:
            pairs = min(pairs, FEWER_PAIRS)
        for pair in range(pairs):
            result.ours.append(ours.rate(workload))
            result.theirs.append(competitor.rate())
            print(
                f"{model} {workload} {peer} {pair + 1}/{pairs}: {result.ours[-1]:.1f} against {result.theirs[-1]:.1f} {unit}",
                file=sys.stderr,
            )
    finally:
        competitor.close()
    return result
