"""`optsched import`: a trace or benchmark file becomes an instance."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from ..api.workloads import import_trace
from ..model import Instance
from ..noun import number_of
from ..plugins import registry
from ..plugins.options import DeclaredOption
from ..traces.imported import Imported
from .parts.arguments import Choice, Command, check_outputs, count_option, flag_option, option
from .parts.out import Out, answers

LONG = 10_000
"""Sources of more lines than this show their progress on a terminal."""


def _format_options(command: Command) -> Command:
    """Add one option for each flag that some format declares; its help names the formats."""
    formats: dict[str, dict[str, list[str]]] = {}
    declared: dict[str, DeclaredOption] = {}
    for format in registry.listed("importers"):
        for own in format.options:
            formats.setdefault(own.flag, {}).setdefault(own.meaning, []).append(format.name)
            declared.setdefault(own.flag, own)
    for flag, meanings in reversed(formats.items()):
        help = " ".join(f"{', '.join(names)}: {meaning}" for meaning, names in meanings.items())
        if declared[flag].default == "yes":
            add = option(flag, help, declared[flag].field, is_flag=True, flag_value="no", type=str)
        else:
            add = option(f"{flag} VALUE", help, declared[flag].field, type=str)
        command = add(command)
    return command


@click.command("import")
@click.argument("trace_format", metavar="FORMAT", type=Choice(registry.names("importers")))
@click.argument("source", metavar="SOURCE", type=click.Path(path_type=Path))
@option("-o, --output INSTANCE", "File to write (.json or .json.gz); - is stdout.")
@count_option("--jobs N", "Keep the first N jobs only.")
@count_option(
    "--past N",
    "Make the first N jobs history that is over before the rest begins: estimates learn from "
    "them, but they are neither scheduled nor measured.",
)
@_format_options
@option(
    "--profiles",
    "Profiles for jobs whose trace has none: measured ones, drawn by rule (the default), or none.",
    type=Choice(["measured", "none"]),
)
@flag_option(
    "--resample",
    "Draw --jobs jobs (default: as many as there are) from the whole trace, with replacement, and "
    "the intervals between their arrivals: another workload of the same kind for each seed.",
)
@count_option("--seed N", "Random seed of these draws (default: 0).", least=0)
@answers
def command(
    trace_format: str,
    source: Path,
    output: str | None,
    jobs: int | None,
    past: int | None,
    profiles: str | None,
    resample: bool,
    seed: int | None,
    out: Out,
    **options: Any,
) -> None:
    """Turn the trace or benchmark file SOURCE into an instance.

    `optsched list formats` names the formats. Without -o, the instance goes to stdout and the
    summary to stderr. Jobs that cannot be used are dropped and counted, with the reason. Jobs of
    formats that say nothing about speed, memory and checkpoints get measured profiles by a seeded
    rule (docs/formats.md).
    """
    if output not in (None, "-"):
        check_outputs({"-o": Path(output)}, str(source))
    given = {name: value for name, value in options.items() if value is not None}
    imported = import_trace(
        trace_format,
        source,
        jobs=jobs,
        profiles=profiles or "",
        resample=resample,
        seed=seed,
        overheads=given.pop("overheads", "yes") == "yes",
        past=past,
        track=_track,
        **given,
    )
    write_checked(imported.instance, output)
    if not out.quiet:
        out.answer(
            lambda: _plain(imported, source, output),
            lambda: _lines(imported, source, output),
            err=output in (None, "-"),
        )


def write_checked(instance: Instance, output: str | None) -> None:
    """Check an instance as a file would be, then write it to a file, or to stdout for None or `-`.

    Raises InputError naming every fault.
    """
    from .. import files

    files.check_instance(instance)
    text = files.dump_instance(instance)
    if output in (None, "-"):
        click.echo(text, nl=False)
    else:
        files.write_text(output, text)


def _track(lines: Sequence[str]) -> Iterable[str]:
    if len(lines) < LONG or not sys.stderr.isatty():
        return lines
    from rich.console import Console
    from rich.progress import track

    return track(lines, description="reading", console=Console(stderr=True), transient=True)


def _plain(imported: Imported, source: Path, output: str | None) -> dict[str, Any]:
    return {
        "source": str(source),
        "instance": imported.instance.name,
        "read": imported.read,
        "kept": imported.kept,
        "dropped": imported.dropped,
        **({"past": len(imported.instance.past)} if imported.instance.past else {}),
        "nodes": len(imported.instance.cluster.nodes),
        "gpus": imported.instance.cluster.total_gpus,
        "output": output or "-",
    }


def _lines(imported: Imported, source: Path, output: str | None) -> Iterator[str]:
    yield f"read {number_of(imported.read, 'job')} from {source}, kept {imported.kept}"
    for reason, count in imported.dropped.items():
        yield f"  dropped {count}: {reason}"
    if imported.instance.past:
        yield f"  {len(imported.instance.past)} before them are done, for estimates to learn from"
    cluster = imported.instance.cluster
    if cluster.nodes:
        nodes, gpus = len(cluster.nodes), cluster.total_gpus
        yield f"cluster of {number_of(nodes, 'node')}, {number_of(gpus, 'GPU')}"
    if output not in (None, "-"):
        yield f"wrote {output}"
