"""`optsched study`: many runs over many instances, resumable, as one table and one report."""

import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .. import files
from ..errors import InputError
from .parts.arguments import count_option, option, path_option
from .parts.out import Out, answers

if TYPE_CHECKING:
    from ..study.results import Result


@click.command("study")
@click.argument("study", metavar="STUDY.toml", type=click.Path(path_type=Path))
@path_option(
    "-o, --output DIR",
    "Directory for the results (default: the name of the study). Repeat an interrupted "
    "command to continue it.",
)
@count_option(
    "--workers N",
    "Number of runs at a time (default: 1; with --on, the number of cores of the cluster).",
    most=1024,
)
@option(
    "--on ADDRESS",
    "Run on an existing cluster: ray://HOST:PORT (Ray Client), HOST:PORT (Ray, from one of "
    "its machines), ray://local, or tcp://HOST:PORT of a Dask scheduler. Its workers need the "
    "same version of optsched.",
)
@count_option("--limit N", "Use at most N instances of each `files` entry, evenly spaced.")
@option(
    "--set NAME=VALUES",
    "Comma-separated values that replace those of a parameter or seed of the study; repeatable.",
    "settings",
    multiple=True,
)
@answers
def command(
    study: Path,
    output: Path | None,
    workers: int | None,
    on: str | None,
    limit: int | None,
    settings: tuple[str, ...],
    out: Out,
) -> int:
    """Run every method of STUDY.toml over every instance, and write tables and a report.

    A finished run is never repeated, whatever stopped the study; it is run again only if its
    instance, its command or the code has changed. A run that fails becomes a row with the reason.

    \b
    optsched study instances/studies/policies.toml -o policies --workers 2
    optsched study instances/studies/known-optima.toml --limit 20
    optsched study instances/studies/preemption-cost.toml --set seed=1 --set checkpoint=0,5m
    """
    from ..files.columns import columns_csv
    from ..study.choice import chosen
    from ..study.design import read_study
    from ..study.exports import long_parquet, long_table, summary
    from ..study.fallbacks import fallbacks_markdown
    from ..study.latex import as_latex
    from ..study.report import write_report
    from ..study.results import Results
    from ..study.runner import run_study
    from ..study.summary import across_markdown, summaries, summary_markdown
    from ..study.table import as_csv, as_markdown, rows
    from ..study.verdicts import findings, verdicts_markdown

    asked = chosen(
        read_study(study), settings=[_pair(setting) for setting in settings], limit=limit
    )
    results = Results(output or Path(asked.name))
    with progress(asked.title, wanted=out.talks) as (on_start, on_result):
        runs = run_study(
            asked, results, workers=workers, on=on, on_start=on_start, on_result=on_result
        )
    seen = findings(asked, runs)
    table = "\n".join(
        part
        for part in (
            verdicts_markdown(seen),
            *(across_markdown(runs, across) for across in asked.across),
            summary_markdown(summaries(runs)),
            as_markdown(rows(runs), asked.all_methods),
            fallbacks_markdown(runs),
        )
        if part
    )
    introduction = f"{asked.introduction}\n\n" if asked.introduction else ""
    files.write_text(
        results.folder / "table.md",
        f"# {asked.title}\n\n```sh\noptsched study {study}\n```\n\n{introduction}{table}",
    )
    files.write_text(results.folder / "runs.csv", as_csv(runs))
    files.write_text(results.folder / "table.tex", as_latex(rows(runs)))
    long = long_table(runs)
    files.write_text(results.folder / "long.csv", columns_csv(long))
    parquet = long_parquet(long)
    if parquet is not None:
        files.write_bytes(results.folder / "long.parquet", parquet)
    words = ["optsched", "study", str(study)]
    words += ["--limit", str(limit)] if limit else []
    words += [word for setting in settings for word in ("--set", setting)]
    again = shlex.join(words)
    told = summary(asked, again, runs, seen).model_dump_json(indent=1)
    files.write_text(results.folder / "summary.json", told + "\n")
    write_report(asked, study, again, runs, results)
    failed = [result for result in runs if result.answer is None]

    def parts() -> Iterator[str]:
        names = (
            *("table.md", "table.tex", "summary.json", "runs.csv", "long.csv", "long.parquet"),
            *("report.html", "figures"),
        )
        there = ", ".join(name for name in names if (results.folder / name).exists())
        yield f"{len(runs):,} runs, {len(failed):,} failed; in {results.folder}: {there}"
        for result in failed[:10]:
            yield f"  {result.run.instance} / {result.run.method}: {result.reason}"
        for finding in seen:
            claim = finding.claim
            yield f"  {claim.method} against {claim.against}: {finding.verdict}, {finding.why}"

    counts = {"runs": len(runs), "failed": len(failed), "folder": str(results.folder)}
    out.answer(lambda: counts, parts)
    return 1 if failed else 0


def _pair(text: str) -> tuple[str, str]:
    name, runs, values = text.partition("=")
    if not runs or not name or not values:
        raise InputError(f"--set {text}: is NAME=VALUE or NAME=VALUE,VALUE")
    return name, values


@contextmanager
def progress(
    title: str, wanted: bool
) -> "Iterator[tuple[Callable[[int, int], None] | None, Callable[[Result], None] | None]]":
    """Yield a bar on stderr with the time left, and what the last run was."""
    if not wanted:
        yield None, None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    task = bar.add_task(title, total=None)

    def start(total: int, done: int) -> None:
        bar.update(task, total=total, completed=done)

    def result(done: "Result") -> None:
        bar.update(task, advance=1, description=f"{done.run.instance} / {done.run.method}")

    with bar:
        yield start, result
