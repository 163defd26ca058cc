"""`optsched demo`: real processes on a small emulated cluster, and why they were moved about."""

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..errors import InputError
from .parts.arguments import path_option
from .parts.out import Out, answers

if TYPE_CHECKING:
    from ..control.journal.events import Event


@click.command("demo")
@path_option(
    "-o, --output DIR",
    "Directory for the cluster file, the state and the picture; created if missing.",
    default="demo-output",
)
@answers
def command(output: Path, out: Out) -> int:
    """Run six jobs on an emulated cluster of eight GPUs, draw what happened, and say why.

    The jobs are real processes that train (by sleeping), save and load. One is preempted because
    that pays off; another is not because it would not. The demo takes less than a minute and needs
    no GPU. It writes cluster.toml, state/ and happened.html; `optsched rounds --config
    DIR/cluster.toml` lists the rounds that were decided.
    """
    from ..control.journal.log import line
    from ..demo.play import play
    from ..demo.story import tell
    from ..picture import can_draw

    _make_room(output)

    def show(at_s: float, event: "Event") -> None:
        text = line(at_s, event)
        if text is not None:
            click.echo(text)

    story = tell(play(output, show if out.talks else None))
    picture = output / "happened.html"
    can_draw(picture)(story.instance, story.solution, picture)
    answer = {
        "jobs": len(story.instance.jobs),
        "sentences": list(story.sentences),
        "mean_jct_s": round(story.measured_s, 3),
        "simulated_mean_jct_s": round(story.foretold_s, 3),
        "mean_error": round(story.error, 4),
        "fifo_mean_jct_s": round(story.fifo_s, 3),
        "picture": str(picture),
    }
    out.answer(
        lambda: answer,
        lambda: (
            "",
            *story.sentences,
            "",
            f"The simulator predicts a mean completion time of {story.foretold_s:.1f} s, it was "
            f"{story.measured_s:.1f} s; job by job it is off by {story.error:.1%} on average.",
            f"picture: {picture.resolve()}  (open it in a browser)",
            f"rounds:  optsched rounds --config {output / 'cluster.toml'}",
        ),
    )
    return 0


def _make_room(output: Path) -> None:
    """Make the directory, without the state of a demo that ran there before. Raises InputError."""
    from ..demo.scenario import CLUSTER

    try:
        output.mkdir(parents=True, exist_ok=True)
        config = output / "cluster.toml"
        if (output / "state").exists() or config.exists():
            if not config.is_file() or config.read_text() != CLUSTER:
                raise InputError(
                    f"-o {output}: holds something that is not a demo's; name another directory"
                )
            shutil.rmtree(output / "state", ignore_errors=True)
    except OSError as error:
        raise InputError(f"-o {output}: cannot be made: {error.strerror or error}") from None
