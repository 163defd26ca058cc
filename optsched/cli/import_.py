"""`optsched import`: a trace or benchmark file becomes an instance."""

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from ..api.workloads import import_trace
from ..model.instance import Instance
from ..plugins import registry
from ..plugins.options import DeclaredOption
from ..plugins.registry import Listed
from ..traces.imported import Imported
from .parts.arguments import check_outputs, count_option, json_option, quiet_option

LONG = 10_000
"""Sources of more lines than this show their progress on a terminal."""


def _formats() -> dict[str, "Listed"]:
    return {found.name: found for found in registry.listed("importers")}


Command = TypeVar("Command", bound=Callable[..., Any])


def _format_options(command: Command) -> Command:
    """Add one option for each flag that some format declares; its help names the formats."""
    formats: dict[str, dict[str, list[str]]] = {}
    declared: dict[str, DeclaredOption] = {}
    for name, known in _formats().items():
        for option in known.options:
            formats.setdefault(option.flag, {}).setdefault(option.meaning, []).append(name)
            declared.setdefault(option.flag, option)
    for flag, meanings in reversed(formats.items()):
        said = " ".join(f"{', '.join(names)}: {meaning}" for meaning, names in meanings.items())
        settings: dict[str, Any] = {"help": said, "default": None, "metavar": "VALUE"}
        if declared[flag].default == "yes":
            settings = {"help": said, "default": None, "is_flag": True, "flag_value": "no"}
        command = click.option(flag, declared[flag].field, type=str, **settings)(command)
    return command


@click.command("import")
@click.argument("trace_format", metavar="FORMAT", type=click.Choice(registry.names("importers")))
@click.argument("source", metavar="SOURCE", type=click.Path(path_type=Path))
@click.option(
    "-o", "--output", metavar="INSTANCE", help="File to write (.json or .json.gz); - is stdout."
)
@count_option("--jobs", help="Keep the first N jobs only.")
@_format_options
@click.option(
    "--profiles",
    type=click.Choice(["measured", "none"]),
    help="Profiles for jobs whose trace has none: measured ones, drawn by rule (the default), or "
    "none.",
)
@count_option("--seed", least=0, help="Random seed of that draw (default: 0).")
@json_option
@quiet_option
def command(
    trace_format: str,
    source: Path,
    output: str | None,
    jobs: int | None,
    profiles: str | None,
    seed: int | None,
    as_json: bool,
    quiet: bool,
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
        profiles=profiles,
        seed=seed,
        overheads=given.pop("overheads", "yes") == "yes",
        track=_track,
        **given,
    )
    write_checked(imported.instance, output)
    if not quiet:
        summary = (
            _json(imported, source, output) if as_json else _sentences(imported, source, output)
        )
        click.echo(summary, err=output in (None, "-"))


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


def _json(imported: Imported, source: Path, output: str | None) -> str:
    return json.dumps(
        {
            "source": str(source),
            "instance": imported.instance.name,
            "read": imported.read,
            "kept": imported.kept,
            "dropped": imported.dropped,
            "nodes": len(imported.instance.cluster.nodes),
            "gpus": imported.instance.cluster.total_gpus,
            "output": output or "-",
        }
    )


def _sentences(imported: Imported, source: Path, output: str | None) -> str:
    lines = [f"read {imported.read} jobs from {source}, kept {imported.kept}"]
    lines += [f"  dropped {count}: {reason}" for reason, count in imported.dropped.items()]
    if imported.instance.cluster.nodes:
        lines.append(
            f"cluster of {len(imported.instance.cluster.nodes)} nodes, "
            f"{imported.instance.cluster.total_gpus} GPUs"
        )
    if output not in (None, "-"):
        lines.append(f"wrote {output}")
    return "\n".join(lines)
