"""`optsched schema`: JSON Schema of the files."""

import json

import click

from .parts.arguments import Choice


@click.command("schema")
@click.argument(
    "kind",
    metavar="instance|plan|round|bound|study-summary",
    type=Choice(["instance", "plan", "round", "bound", "study-summary"]),
)
def command(kind: str) -> None:
    """Print the JSON Schema of instance, plan, round or bound files, or of a study's summary.json,
    for editors and validators.

    \b
    optsched schema instance > instance.schema.json
    """
    from .. import files
    from ..files.certificate import schema as bound_schema
    from ..round.files import schema as round_schema
    from ..study.exports import StudySummary

    schemas = {
        "round": round_schema,
        "bound": bound_schema,
        "study-summary": StudySummary.model_json_schema,
    }
    schema = schemas[kind]() if kind in schemas else files.schema(kind)  # type: ignore[arg-type]
    click.echo(json.dumps(schema, indent=2))
