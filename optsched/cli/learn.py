"""`optsched learn`: trains what a policy learns, in the simulator."""

import statistics
from pathlib import Path
from typing import Any

import click

from .parts.arguments import (
    check_outputs,
    count_option,
    flag_option,
    load,
    option,
    path_option,
    seed_option,
)
from .parts.out import Out, Parts, answers

HELD_OUT = ("base", "learned", "reward")


@click.command("learn")
@click.argument("policy", metavar="POLICY")
@click.argument("instances", metavar="INSTANCE...", nargs=-1, required=True)
@option(
    "--objective NAME",
    "What is rewarded: bounded-slowdown, wait, wct, utilisation or slowdown.",
    default="bounded-slowdown",
)
@option(
    "--base RULE",
    "The rule to beat on the same jobs: a policy, wfp, f1 or smallest.",
    default="fifo",
)
@flag_option("--backfill", "While the picked job waits, those that do not delay it start.")
@seed_option(metavar="S", help="Random seed; the same seed gives the same weights.")
@count_option(
    "--generations N", "Number of generations; each takes a few seconds.", most=10_000, default=30
)
@count_option(
    "--workers N", "Number of processes; the weights do not depend on it.", most=256, default=1
)
@path_option(
    "-o, --output WEIGHTS",
    "File for the weights (docs/formats.md); during training it holds the best so far.",
)
@answers
def command(
    policy: str, instances: tuple[str, ...], output: Path | None, out: Out, **training: Any
) -> None:
    """Train POLICY in the simulator on the jobs of each INSTANCE.

    rltune learns a scorer: batches of 256 jobs are simulated with it and with the base rule, and
    the reward is (base - learned) / max(base, learned, 1) of their mean scores. It trains on the
    first 60 % of the jobs, is selected on the next 20 %, and its result on the last 20 %, which it
    has never seen, is printed. Ctrl-C ends training and keeps the best so far. Use the weights with
    `optsched simulate INSTANCE --policy rltune --option weights=WEIGHTS`.
    """
    from ..errors import InputError
    from ..files import instance_hash, write_text
    from ..picture.text import table
    from ..plugins import registry

    learn = getattr(registry.policy(policy), "learn", None)
    if learn is None:
        raise InputError(f"policy {policy} learns nothing; rltune does")
    check_outputs({"-o": output}, instances[0])
    loaded = [load(source, now_only=False) for source in instances]
    words = ["optsched", "learn", policy, *(Path(source).name for source in instances)]
    context = click.get_current_context()
    for own in context.command.params:
        value = context.params.get(str(own.name))
        if own.name not in training or own.name == "workers" or value == own.default:
            continue
        if value is not False:
            words += [own.opts[0]] if value is True else [own.opts[0], str(value)]
    about = {
        "command": " ".join(words),
        "instances": [instance_hash(instance) for instance in loaded],
        **{name: training[name] for name in ("objective", "base", "seed")},
    }
    saved: list[int] = []

    def save(best: Any) -> None:
        if output is not None:
            write_text(output, best.scorer.dump(about | {"generation": best.generation}))

    def tell(generation: int, rewarded: float, best: Any) -> None:
        if best.generation not in saved:
            saved.append(best.generation)
            save(best)
        out.say(
            f"generation {generation} of {training['generations']}: mean reward {rewarded:+.3f}, "
            f"best so far {best.selected:+.3f} (generation {best.generation})",
            err=True,
        )

    best, held_out = learn(loaded, on_generation=tell, **training)
    save(best)

    def parts() -> Parts:
        rows = (
            (str(i), f"{plain:,.6g}", f"{learned:,.6g}", f"{reward:+.3f}")
            for i, (plain, learned, reward) in enumerate(held_out, 1)
        )
        yield table("held-out batch", training["base"], policy, "reward", rows=rows)
        mean = statistics.fmean(reward for _, _, reward in held_out)
        weights = "" if output is None else f"; weights in {output}"
        yield f"mean reward on held-out batches {mean:+.3f}{weights}"

    out.answer(
        lambda: {
            "generation": best.generation,
            "selected_reward": best.selected,
            "held_out": [dict(zip(HELD_OUT, batch, strict=True)) for batch in held_out],
        },
        parts,
    )
