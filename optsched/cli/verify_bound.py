"""`optsched verify-bound`: check the certificate of a bound."""

from collections.abc import Iterator

import click

from .parts.arguments import instance_argument, load
from .parts.out import Out, answers, show


@click.command("verify-bound")
@instance_argument
@click.argument("certificate", metavar="CERTIFICATE")
@answers
def command(instance: str, certificate: str, out: Out) -> int:
    """Recompute a bound on INSTANCE from the prices in CERTIFICATE, and print it.

    Any prices prove some bound: the least that every job must pay, summed up, minus the worth of
    all GPU time. Prices of gangs, for plans of the plan class, leave out the worth of the dearest
    gangs that fit together. The sum is computed anew from what the instance says of each job, with
    no code shared with what found the prices. Exit status: 0 if it is no less than the file states,
    1 if it is.

    \b
    optsched bound cluster.json --prices -o bound.json
    optsched solve cluster.json --certificate bound.json
    optsched verify-bound cluster.json bound.json
    """
    from ..files.certificate import read_certificate
    from ..picture.facts import level_unit
    from ..picture.text import with_length
    from ..verify_bound import recomputed

    stated = read_certificate(certificate)
    value, wrong = recomputed(load(instance), stated)
    plain = {
        "ok": not wrong,
        "objective": stated.objective,
        "plans": "of the plan class" if stated.gangs else "any",
        "value": value,
        "claimed": stated.value,
        "violations": wrong,
    }

    def parts() -> Iterator[str]:
        assert value is not None
        proved = with_length(value, level_unit(stated.objective))
        which = "no plan of the plan class" if stated.gangs else "no plan"
        yield f"OK: {which} has a smaller {stated.objective} than {proved}"

    if wrong and not out.as_json:
        says = (f"  {violation}" for violation in wrong)
        show(f"{certificate}: does not hold", *says, err=out.quiet)
    else:
        out.answer(lambda: plain, parts)
    return 1 if wrong else 0
