"""`optsched shares`: who is entitled to what, and who has used it."""

from typing import Any

import click

from ..duration import human
from ..picture.text import table
from .parts.controller import Client, asks_controller
from .parts.out import Out, Parts, answers_aloud

NUMBERS = ("weight", "share", "entitled", "GPU-h", "used", "LevelFS", "FairShare", "factor")


@click.command("shares")
@answers_aloud
@asks_controller
def command(client: Client, out: Out) -> int:
    """Show what tenants and users are entitled to, what they have used lately, and by how much that
    raises or lowers the weight of their jobs.

    Shares and use are those among siblings; FairShare and LevelFS are the numbers of Slurm's
    sshare. Of users you see yourself, administrators see all.

    \b
    optsched shares
    optsched shares --json
    """
    answer = client.get("/v1/shares")

    def parts() -> Parts:
        if answer["half_life_s"] is None:
            yield "use is not counted: cluster.toml has no table [shares]"
            return
        yield table(
            "tenant",
            "user",
            *NUMBERS,
            rows=(_cells(row) for row in answer["rows"]),
            numeric=NUMBERS,
        )
        yield f"half of all use is forgotten in {human(answer['half_life_s'])}"

    out.answer(lambda: answer, parts)
    return 0


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    name = row["tenant"] or "(none)"
    level_fs = "inf" if row["level_fs"] is None else f"{row['level_fs']:.6f}"
    return (
        "" if row["is_user"] else "  " * (row["level"] - 1) + name,
        (row["user"] or "(none)") if row["is_user"] else "",
        f"{row['weight']:g}",
        f"{row['share']:.1%}",
        f"{row['entitled']:.1%}",
        f"{row['used_gpu_s'] / 3600:.2f}",
        f"{row['effective']:.1%}",
        level_fs,
        "" if row["fair_share"] is None else f"{row['fair_share']:.6f}",
        "" if row["factor"] is None else f"{row['factor']:.3g}",
    )
