"""`optsched profile`: runs a command briefly and measures it."""

import json
import os
import shlex
import signal
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from ..duration import human
from ..errors import InputError
from .parts.arguments import (
    check_outputs,
    count_option,
    json_option,
    path_option,
    quiet_option,
    time_option,
)
from .parts.outputs import print_json

if TYPE_CHECKING:
    from ..profiling.result import Result

NO_PROFILE = 1


def core_counts(value: str | None) -> tuple[int, ...]:
    """Read an option that is core counts with commas between."""
    words = (value or "").split(",")
    if not all(word.strip().isdecimal() and 1 <= int(word) <= 100_000 for word in words):
        raise click.BadParameter(f"{value!r} is no list of core counts; write 1,2,4,8")
    return tuple(sorted({int(word) for word in words}))


@click.command("profile", context_settings={"allow_interspersed_args": False})
@click.argument("words", metavar="-- COMMAND...", nargs=-1, required=True, type=click.UNPROCESSED)
@time_option(
    "--for",
    "for_s",
    default="30s",
    help="Length of each run, start-up included, before it is asked to stop.",
)
@click.option(
    "--cpus",
    type=core_counts,
    metavar="1,2,4,8",
    help="Also find how many cores each GPU needs (with --gpus 0, the whole job), trying these "
    "counts.",
)
@count_option("--repeats", most=100, default=3, help="Number of runs per core count.")
@count_option("--gpus", least=0, most=1024, default=1, help="Number of GPUs given to the command.")
@click.option(
    "--gpu-type",
    metavar="NAME",
    help="Name of these GPUs in the cluster; by default the one that NVML reports.",
)
@time_option(
    "--grace",
    "grace_s",
    default="30s",
    help="Time the command has to save and stop before it is killed.",
)
@path_option(
    "-o", "--output", metavar="FILE", help="Write the profile and the measurements to this file."
)
@path_option("--plot", metavar="FILE.svg", help="With --cpus: draw rate against cores.")
@path_option(
    "--store",
    metavar="DIR",
    help="Store the profile in this folder under --name, next to its earlier versions.",
)
@click.option("--name", metavar="NAME", help="Name of the profile.")
@json_option
@quiet_option
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
    as_json: bool,
    quiet: bool,
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

    def tell(text: str) -> None:
        if not quiet and not as_json:
            click.echo(text, err=True)

    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        setting = Setting(
            argv=words, for_s=for_s, grace_s=grace_s, cores=tuple(given), gpus=gpus, nvml=nvml
        )
        runs = 3 + (
            0 if cpus is None else len(cpus) * repeats
        )  # the second may take twice the time
        tell(f"at most {human(runs * for_s)}, and what it takes to save and stop")
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
                lambda count, repeat: tell(
                    f"repeat {repeat + 1} of {repeats}: "
                    f"cores{' for each GPU' if gpus > 1 else ''}: {count}"
                ),
            )
    except ProbeError as error:
        click.echo(f"optsched: no profile: {error}", err=True)
        return NO_PROFILE
    finally:
        signal.signal(signal.SIGTERM, before)
        if nvml is not None:
            nvml.close()
    found = result(measured, cpu_sweep, name)
    if output is not None:
        write_text(output, dump_result(found))
    if plot is not None and cpu_sweep is not None:
        write_bytes(
            plot, svg(cpu_sweep, shlex.join(words), "cores for each GPU" if gpus else "cores")
        )
    if kept is not None:
        kept.add(str(name), found)
    if as_json:
        print_json(result_object(found))
    elif not quiet:
        _print(found, output)
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
    """As Ctrl-C does: the command must not go on alone."""
    raise KeyboardInterrupt


def _print(found: "Result", output: Path | None) -> None:
    from ..files import plain
    from ..profiling.picture import bars
    from .parts.table import show, table

    rows = table("measured", "value", "")
    for row in _rows(found):
        rows.add_row(*row)
    parts: list[Any] = [os.path.basename(found.measured.command or ""), "", rows]
    if found.cores is not None:
        parts += [
            "",
            "rate by cores" + (" for each GPU" if found.measured.gpus else ""),
            *bars(found.cores),
        ]
        if not found.cores.sure:
            parts.append(
                f"Single repeats disagree on who is within {found.cores.within:.0%} of the "
                "plateau; longer runs (--for) or more --repeats would decide."
            )
    parts += ["", '"profile": ' + json.dumps(plain(found.profile))]
    if output is not None:
        parts.append(f"all of it is in {output}")
    show(*parts)


def _rows(found: "Result") -> list[tuple[str, str, str]]:
    """Return what was measured, then what was not and why, then what else is to be known."""
    one = found.measured
    absent = one.absent
    rows: list[tuple[str, str, str]] = []

    def add(title: str, value: float | None, text: str, more: str = "") -> None:
        if value is not None:
            rows.append((title, text.format(value), more))

    def time(title: str, value: float | None, more: str = "") -> None:
        if value is not None:
            rows.append((title, human(value), more))

    time("step", one.step_s, f"{one.steps} steps {one.step_source}")
    time("step, median", one.step_median_s)
    time("step, 90 % at most", one.step_p90_s)
    time("start-up", one.startup_s, "from exec to the first step")
    time("stop", one.stop_s, "from SIGTERM to the end, having saved")
    time("save", one.save_s, "writing a checkpoint alone")
    time("saves every", one.save_every_s, "unasked")
    time("restore", one.restore_s, "what reading a checkpoint adds")
    add("checkpoint", one.checkpoint_gib, "{:.3g} GiB")
    add("host memory, peak", one.memory_gib, "{:.3g} GiB")
    add(
        "GPU memory, peak",
        one.gpu_memory_gib,
        "{:.3g} GiB",
        "of the fullest GPU, CUDA contexts included",
    )
    add("GPU memory, PyTorch", one.torch_gpu_memory_gib, "{:.3g} GiB", "reserved by PyTorch")
    add("GPU duty", one.gpu_duty, "{:.0%}", "of the time a kernel ran")
    add("CPU use", one.cpu_use, "{:.3g} cores", f"busy, of {one.cpus}")
    names = {
        "step_s": "step",
        "startup_s": "start-up",
        "stop_s": "stop",
        "save_s": "save",
        "restore_s": "restore",
        "checkpoint_gib": "checkpoint",
        "memory_gib": "host memory, peak",
        "gpu_memory_gib": "GPU memory, peak",
        "gpu_duty": "GPU duty",
        "cpu_use": "CPU use",
    }
    rows += [(names.get(field, field), "not measured", why) for field, why in absent.items()]
    rows += [("note", "", note) for note in one.notes]
    return rows
