"""`optsched profiles`: the profiles that are kept, with their versions."""

import json
from pathlib import Path

import click

from .parts.arguments import path_option
from .parts.out import Out, Parts, answers


@click.command("profiles")
@click.argument("name", required=False)
@path_option("--store DIR", "Folder of the profiles.", required=True)
@answers
def command(name: str | None, store: Path, out: Out) -> None:
    """List the profiles in a folder, or show NAME with every version it has had.

    To change a profile, edit its file: the field "profile" of DIR/NAME.json. Faults are reported
    when it is next read, and fields edited by hand keep their values whatever is measured later.

    \b
    optsched profiles --store profiles
    optsched profiles resnet --store profiles
    """
    from ..files import plain
    from ..picture.text import table
    from ..profiling.store import Store, dump_stored

    kept = Store(store)
    if name is None:
        every = [kept.read(own) for own in kept.names()]

        def listed() -> Parts:
            if not every:
                yield f"no profiles in {store}"
                return
            rows = (
                (own.name, str(own.version), last.at, last.source, own.command or "")
                for own in every
                for last in own.versions[-1:]
            )
            heads = ("profile", "version", "of", "from", "command")
            yield table(*heads, rows=rows, numeric=("version",), folded=("command",))

        out.answer(
            lambda: [
                {
                    "name": own.name,
                    "version": own.version,
                    "source": own.versions[-1].source,
                    "user": own.user,
                    "command": own.command,
                    "profile": plain(own.profile),
                }
                for own in every
            ],
            listed,
        )
        return
    stored = kept.read(name)

    def parts() -> Parts:
        yield f"{name}: {stored.command or ''}"
        yield '"profile": ' + json.dumps(plain(stored.profile))
        if stored.by_hand:
            yield f"edited by hand: {', '.join(stored.by_hand)}"
        rows = (
            (str(version.version), version.at, version.source, "; ".join(version.notes))
            for version in stored.versions
        )
        heads = ("version", "of", "from", "what")
        yield from ("", table(*heads, rows=rows, numeric=("version",), folded=("what",)))

    out.answer(lambda: dump_stored(stored), parts)
