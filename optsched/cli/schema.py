"""`optsched schema`: JSON Schema of the files."""

import json

import click


@click.command("schema")
@click.argument(
    "kind",
    metavar="instance|plan|round|bound",
    type=click.Choice(["instance", "plan", "round", "bound"]),
)
def command(kind: str) -> None:
    """Print the JSON Schema of instance, plan, round or bound files, for editors and validators.

    \b
    optsched schema instance > instance.schema.json
    """
    from .. import files
    from ..files.certificate import schema as bound_schema
    from ..round.files import schema as round_schema

    if kind == "round":
        found = round_schema()
    elif kind == "bound":
        found = bound_schema()
    else:
        found = files.schema("plan" if kind == "plan" else "instance")
    click.echo(json.dumps(found, indent=2))
