"""`optsched verify-bound`: check the certificate of a bound."""

import click

from .parts.arguments import instance_argument, json_option, load, quiet_option
from .parts.outputs import print_json


@click.command("verify-bound")
@instance_argument
@click.argument("certificate", metavar="CERTIFICATE")
@json_option
@quiet_option
def command(instance: str, certificate: str, as_json: bool, quiet: bool) -> int:
    """Recompute a bound on INSTANCE from the prices in CERTIFICATE, and print it.

    Any prices prove some bound: the least that every job must pay, summed up, minus the worth of
    all GPU time. The sum is computed anew from what the instance says of each job, with no code
    shared with what found the prices. Exit status: 0 if it is no less than the file states, 1 if it
    is.

    \b
    optsched bound cluster.json --prices -o bound.json
    optsched verify-bound cluster.json bound.json
    """
    from ..files.certificate import read_certificate
    from ..picture.facts import level_unit
    from ..verify_bound import recomputed
    from .parts.table import with_length

    stated = read_certificate(certificate)
    value, wrong = recomputed(load(instance), stated)
    if as_json:
        print_json(
            {
                "ok": not wrong,
                "objective": stated.objective,
                "value": value,
                "claimed": stated.value,
                "violations": wrong,
            }
        )
    elif wrong:
        click.echo(f"{certificate}: does not hold", err=quiet)
        for one in wrong:
            click.echo(f"  {one}", err=quiet)
    elif not quiet:
        assert value is not None
        proved = with_length(value, level_unit(stated.objective))
        click.echo(f"OK: no plan has a smaller {stated.objective} than {proved}")
    return 1 if wrong else 0
