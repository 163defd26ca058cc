"""`optsched profiles`: the profiles that are kept, with their versions."""

import json
from pathlib import Path
from typing import Any

import click

from .parts.arguments import json_option, path_option, quiet_option
from .parts.outputs import print_json


@click.command("profiles")
@click.argument("name", required=False)
@path_option("--store", required=True, metavar="DIR", help="Folder of the profiles.")
@json_option
@quiet_option
def command(name: str | None, store: Path, as_json: bool, quiet: bool) -> None:
    """List the profiles in a folder, or show NAME with every version it has had.

    To change a profile, edit its file: the field "profile" of DIR/NAME.json. Faults are reported
    when it is next read, and fields edited by hand keep their values whatever is measured later.

    \b
    optsched profiles --store profiles
    optsched profiles resnet --store profiles
    """
    from ..files import plain
    from ..profiling.store import Store, dump_stored
    from .parts.table import show, table

    kept = Store(store)
    if name is None:
        found = [kept.read(one) for one in kept.names()]
        if as_json:
            print_json(
                [
                    {
                        "name": one.name,
                        "version": one.version,
                        "source": one.versions[-1].source,
                        "user": one.user,
                        "command": one.command,
                        "profile": plain(one.profile),
                    }
                    for one in found
                ]
            )
        elif not found and not quiet:
            click.echo(f"no profiles in {store}")
        elif not quiet:
            rows = table(
                "profile",
                "version",
                "of",
                "from",
                "command",
                numeric=("version",),
                folded=("command",),
            )
            for one in found:
                last = one.versions[-1]
                rows.add_row(one.name, str(one.version), last.at, last.source, one.command or "")
            show(rows)
        return
    stored = kept.read(name)
    if as_json:
        click.echo(dump_stored(stored), nl=False)
    elif not quiet:
        rows = table("version", "of", "from", "what", numeric=("version",), folded=("what",))
        for version in stored.versions:
            rows.add_row(str(version.version), version.at, version.source, "; ".join(version.notes))
        by_hand: list[Any] = (
            [f"edited by hand: {', '.join(stored.by_hand)}"] if stored.by_hand else []
        )
        show(
            f"{name}: {stored.command or ''}",
            '"profile": ' + json.dumps(plain(stored.profile)),
            *by_hand,
            "",
            rows,
        )
