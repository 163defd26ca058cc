"""`optsched schema`: JSON Schema of the files."""

import json

import click


@click.command("schema")
@click.argument("kind", metavar="instance|plan", type=click.Choice(["instance", "plan"]))
def command(kind: str) -> None:
    """Print the JSON Schema of instance or plan files, for editors and validators.

    \b
    optsched schema instance > instance.schema.json
    """
    from .. import files

    click.echo(json.dumps(files.schema("plan" if kind == "plan" else "instance"), indent=2))
