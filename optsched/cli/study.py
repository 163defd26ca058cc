"""`optsched study`: many runs over many instances, resumable, as one table."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .. import files
from .arguments import json_option, quiet_option

if TYPE_CHECKING:
    from ..study.results import Result


@click.command("study")
@click.argument("study", metavar="STUDY.toml", type=click.Path(path_type=Path))
@click.option("-o", "--output", metavar="DIR", type=click.Path(path_type=Path),
              help="Directory of the results (default: the study's name, here). The same command goes on where an "
                   "interrupted one stopped.")
@click.option("--workers", type=click.IntRange(1, 1024), default=1, show_default=True, metavar="N",
              help="Runs at a time.")
@json_option
@quiet_option
def command(study: Path, output: Path | None, workers: int, as_json: bool, quiet: bool) -> int:
    """Run every method of STUDY.toml over every instance, and write the table.

    A run that is finished is never repeated, whatever stopped the study; it is run again only when its instance, its
    command or the code has changed. A run that fails is a row with its reason.

    \b
    optsched study instances/studies/systems.toml -o systems --workers 2
    """
    from ..study.design import read_study
    from ..study.results import Results
    from ..study.runner import run_study
    from ..study.table import as_csv, as_markdown, rows

    asked = read_study(study)
    results = Results(output or Path(asked.name))
    with progress(asked.title, wanted=not (quiet or as_json)) as (on_start, on_result):
        found = run_study(asked, results, workers=workers, on_start=on_start, on_result=on_result)
    table = as_markdown(rows(found), asked.all_methods)
    about = f"{asked.about.strip()}\n\n" if asked.about else ""
    files.write_text(
        results.folder / "table.md", f"# {asked.title}\n\n```sh\noptsched study {study}\n```\n\n{about}{table}"
    )
    files.write_text(results.folder / "runs.csv", as_csv(found))
    failed = [one for one in found if one.answer is None]
    if as_json:
        click.echo(json.dumps({"runs": len(found), "failed": len(failed), "folder": str(results.folder)}))
    elif not quiet:
        click.echo(f"{len(found):,} runs, {len(failed):,} failed; table.md and runs.csv are in {results.folder}")
        for one in failed[:10]:
            click.echo(f"  {one.run.instance} / {one.run.method}: {one.reason}")
    return 1 if failed else 0


@contextmanager
def progress(
    title: str, wanted: bool
) -> "Iterator[tuple[Callable[[int, int], None] | None, Callable[[Result], None] | None]]":
    """A bar on stderr with the time left, and what the last run was."""
    if not wanted:
        yield None, None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    bar = Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(),
        console=Console(stderr=True), transient=True,
    )
    task = bar.add_task(title, total=None)

    def start(total: int, done: int) -> None:
        bar.update(task, total=total, completed=done)

    def result(one: "Result") -> None:
        bar.update(task, advance=1, description=f"{one.run.instance} / {one.run.method}")

    with bar:
        yield start, result
