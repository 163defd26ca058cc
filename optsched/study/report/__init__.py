"""The report of a study: one offline page (plotly), and its figures for papers (matplotlib)."""

from collections.abc import Sequence
from pathlib import Path

from ... import files
from ...picture.panels import Chart
from ...picture.paper import pictures
from ..commands import TRACE
from ..design import Study
from ..results import Result, Results
from . import behaviour, quality
from .compare import Comparison, Entry, compare
from .foot import commands, foot
from .gantt import write_gantts
from .page import page

FIGURES, PAGE = "figures", "report.html"


def write_report(
    study: Study, path: Path, again: str, finished: Sequence[Result], results: Results
) -> None:
    """Write report.html and figures/ into the folder of a study that was read from `path` and is
    made by the command line `again`; the same results give the same files.

    Raises InputError naming a file that cannot be written.
    """
    table = compare(study, finished)
    pairs = quality.differences(table)
    folder = results.folder / FIGURES
    folder.mkdir(exist_ok=True)
    baseline = study.baseline or study.all_methods[0].name
    charts = [chart for chart in _charts(table, pairs, results, baseline) if chart is not None]
    below = foot(study, path, again, finished)
    if pairs:
        files.write_text(folder / "significance.csv", quality.significance_csv(pairs, table))
    files_of: dict[str, list[str]] = {}
    for chart in charts:
        for kind, data in pictures(chart, below).items():
            files.write_bytes(folder / f"{chart.key}.{kind}", data)
            files_of.setdefault(chart.key, []).append(f"{chart.key}.{kind}")
    gantts = write_gantts(finished, results)
    untested = quality.too_few_seeds(table)
    text = page(study, finished, table, charts, below, commands(study), gantts, files_of, untested)
    files.write_text(results.folder / PAGE, text)


def _charts(
    table: Comparison, pairs: list[quality.Pair], results: Results, baseline: str
) -> list[Chart | None]:
    def trace_of(entry: Entry) -> quality.Trace:
        address = entry.result.address
        return quality.read_trace(results.beside(address, TRACE)) if address else []

    return [
        quality.gaps(table),
        quality.profiles(table),
        quality.anytime(table, trace_of),
        behaviour.average_and_tail(table),
        behaviour.completion_times(table),
        behaviour.speedups(table, baseline),
        behaviour.use_over_time(table),
        behaviour.lost_time(table),
        quality.significance(table, pairs),
    ]
