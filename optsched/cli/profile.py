"""`optsched profile`: runs a command briefly and measures it."""

import json
import os
import shlex
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from ..duration import human
from ..errors import InputError
from .parts.arguments import check_outputs, count_option, option, path_option, time_option
from .parts.out import Out, Parts, answers

if TYPE_CHECKING:
    from ..profiling.measured import Measured
    from ..profiling.result import Result

NO_PROFILE = 1


def core_counts(value: str | None) -> tuple[int, ...]:
    """Read an option that is core counts with commas between."""
    words = (value or "").split(",")
    if not all(word.strip().isdecimal() and 1 <= int(word) <= 100_000 for word in words):
        raise click.BadParameter(f"{value!r} is not a list of core counts; write 1,2,4,8")
    return tuple(sorted({int(word) for word in words}))


@click.command("profile", context_settings={"allow_interspersed_args": False})
@click.argument("words", metavar="-- COMMAND...", nargs=-1, required=True, type=click.UNPROCESSED)
@time_option(
    "--for TIME",
    "Length of each run, start-up included, before it is asked to stop.",
    "for_s",
    default="30s",
)
@option(
    "--cpus 1,2,4,8",
    "Also find how many cores each GPU needs (with --gpus 0, the whole job), trying these counts.",
    type=core_counts,
)
@count_option("--repeats N", "Number of runs per core count.", most=100, default=3)
@count_option("--gpus N", "Number of GPUs given to the command.", least=0, most=1024, default=1)
@option(
    "--gpu-type NAME", "Name of these GPUs in the cluster; by default the one that NVML reports."
)
@time_option(
    "--grace TIME",
    "Time the command has to save and stop before it is killed.",
    "grace_s",
    default="30s",
)
@path_option("-o, --output FILE", "Write the profile and the measurements to this file.")
@path_option("--plot FILE.svg", "With --cpus: draw rate against cores.")
@path_option(
    "--store DIR", "Store the profile in this folder under --name, next to its earlier versions."
)
@option("--name NAME", "Name of the profile.")
@answers
def command(
    words: tuple[str, ...],
    for_s: float,
    cpus: tuple[int, ...] | None,
    repeats: int,
    gpus: int,
    gpu_type: str | None,
    grace_s: float,
    output: Path | None,
    plot: Path | None,
    store: Path | None,
    name: str | None,
    out: Out,
) -> int:
    """Run COMMAND briefly on this host and measure it: the profile of a job.

    The command is run once and asked to save and stop (SIGTERM). If it does (exit status 85), it is
    started again from what it saved; with --cpus it is then run several times per core count. It
    really runs: whatever it writes is written. Steps are those that it reports to the file
    OPTSCHED_PROGRESS, or those of PyTorch's optimizers, which need no change. What could not be
    measured is left out, with the reason. Exit status: 0 with a profile, 1 if the command failed, 2
    for bad input.

    \b
    optsched profile -- python train.py --batch 32
    optsched profile --for 2m --cpus 1,2,4,8 -o train.profile.json -- python train.py
    """
    from ..files import write_bytes, write_text
    from ..profiling.cores import check_counts, sweep
    from ..profiling.gpus import open_gpus
    from ..profiling.host import usable_cores
    from ..profiling.picture import svg
    from ..profiling.probe import ProbeError, probe
    from ..profiling.result import dump_result, result, result_object
    from ..profiling.run import Setting
    from ..profiling.store import Store

    _check(cpus, output, plot, store, name)
    cores = usable_cores()
    if cpus is not None:
        check_counts(cpus, gpus, len(cores))
    given = cores if cpus is None else cores[: max(cpus) * max(1, gpus)]
    kept = None if store is None else Store(store)
    if kept is not None and name in kept.names():
        kept.read(str(name))  # a fault in the file is told before any time is spent
    nvml = open_gpus(gpus)

    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        setting = Setting(
            argv=words, for_s=for_s, grace_s=grace_s, cores=tuple(given), gpus=gpus, nvml=nvml
        )
        runs = 3 + len(cpus or ()) * repeats  # the second may take twice the time
        out.say(f"at most {human(runs * for_s)}, and what it takes to save and stop", err=True)
        measured = probe(setting, gpu_type=gpu_type)
        cpu_sweep = None
        if cpus is not None:
            if measured.step_s is None:
                raise ProbeError(
                    f"without steps there are no rates to compare; {measured.absent['step_s']}"
                )
            cpu_sweep = sweep(
                setting,
                cpus,
                repeats,
                lambda count, repeat: out.say(
                    f"repeat {repeat + 1} of {repeats}: "
                    f"cores{' for each GPU' if gpus > 1 else ''}: {count}",
                    err=True,
                ),
            )
    except ProbeError as error:
        click.echo(f"optsched: no profile: {error}", err=True)
        return NO_PROFILE
    finally:
        signal.signal(signal.SIGTERM, before)
        if nvml is not None:
            nvml.close()
    outcome = result(measured, cpu_sweep, name)
    if output is not None:
        write_text(output, dump_result(outcome))
    if plot is not None and cpu_sweep is not None:
        write_bytes(
            plot, svg(cpu_sweep, shlex.join(words), "cores for each GPU" if gpus else "cores")
        )
    if kept is not None:
        kept.add(str(name), outcome)
    out.answer(lambda: result_object(outcome), lambda: _parts(outcome, output))
    return 0


def _check(
    cpus: tuple[int, ...] | None,
    output: Path | None,
    plot: Path | None,
    store: Path | None,
    name: str | None,
) -> None:
    """Raise InputError for options that do not go together, and files that cannot be written."""
    from ..profiling.store import check_name

    if plot is not None and cpus is None:
        raise InputError(
            "--plot draws rate against cores; say which counts with --cpus, as in --cpus 1,2,4,8"
        )
    if plot is not None and plot.suffix != ".svg":
        raise InputError(f"--plot {plot}: the picture is an SVG; give a name that ends in .svg")
    if (store is None) != (name is None):
        raise InputError(
            "--store DIR and --name NAME go together: a folder, and the profile's name in it"
        )
    if name is not None:
        check_name(name)
    check_outputs({"-o": output, "--plot": plot}, "-")


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Stop as Ctrl-C does: the command must not go on alone."""
    raise KeyboardInterrupt


def _parts(outcome: "Result", output: Path | None) -> Parts:
    from ..files import plain
    from ..picture.text import table
    from ..profiling.picture import bars

    yield os.path.basename(outcome.measured.command or "")
    yield from ("", table("measured", "value", "", rows=_rows(outcome.measured)))
    if outcome.cores is not None:
        yield from ("", "rate by cores" + " for each GPU" * bool(outcome.measured.gpus))
        yield from bars(outcome.cores)
        if not outcome.cores.sure:
            yield (
                f"Single repeats disagree on who is within {outcome.cores.within:.0%} of the "
                "plateau; longer runs (--for) or more --repeats would decide."
            )
    yield from ("", '"profile": ' + json.dumps(plain(outcome.profile)))
    if output is not None:
        yield f"all of it is in {output}"


FIGURES: tuple[tuple[str, str, Callable[[Any], str], str], ...] = (
    ("step_s", "step", human, "{0.steps} steps {0.step_source}"),
    ("step_median_s", "step, median", human, ""),
    ("step_p90_s", "step, 90 % at most", human, ""),
    ("startup_s", "start-up", human, "from exec to the first step"),
    ("stop_s", "stop", human, "from SIGTERM to the end, having saved"),
    ("save_s", "save", human, "writing a checkpoint alone"),
    ("save_every_s", "saves every", human, "unasked"),
    ("restore_s", "restore", human, "what reading a checkpoint adds"),
    ("checkpoint_gib", "checkpoint", "{:.3g} GiB".format, ""),
    ("memory_gib", "host memory, peak", "{:.3g} GiB".format, ""),
    (
        "gpu_memory_gib",
        "GPU memory, peak",
        "{:.3g} GiB".format,
        "of the fullest GPU, CUDA contexts included",
    ),
    ("torch_gpu_memory_gib", "GPU memory, PyTorch", "{:.3g} GiB".format, "reserved by PyTorch"),
    ("gpu_duty", "GPU duty", "{:.0%}".format, "of the time a kernel ran"),
    ("cpu_use", "CPU use", "{:.3g} cores".format, "busy, of {0.cpus}"),
)
"""Fields of what was measured: what each is called, how it is written, and what it is."""


def _rows(measured: "Measured") -> Iterator[tuple[str, str, str]]:
    """Yield what was measured, then what was not and why, then what else is to be known."""
    for field, title, text, more in FIGURES:
        value = getattr(measured, field)
        if value is not None:
            yield title, text(value), more.format(measured)
    titles = {field: title for field, title, _, _ in FIGURES}
    for field, why in measured.absent.items():
        yield titles.get(field, field), "not measured", why
    yield from (("note", "", note) for note in measured.notes)
