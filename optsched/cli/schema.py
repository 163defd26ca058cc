"""`optsched schema`: JSON Schema of the files."""

import json

import click


@click.command("schema")
@click.argument("kind", metavar="instance|plan|round", type=click.Choice(["instance", "plan", "round"]))
def command(kind: str) -> None:
    """Print the JSON Schema of instance, plan or round files, for editors and validators.

    \b
    optsched schema instance > instance.schema.json
    """
    from .. import files
    from ..round.files import schema as round_schema

    found = round_schema() if kind == "round" else files.schema("plan" if kind == "plan" else "instance")
    click.echo(json.dumps(found, indent=2))
