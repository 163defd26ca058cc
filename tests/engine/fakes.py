"""Solvers that misbehave, each in one way, and one that does not; importable by the engine's child
processes.

They plan `two_gpus`, where every list schedule by age or length ends at 7 s, the best plan at 6 s.
"""

import math
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from optsched import Instance, Job, JobPlan, Mode, Plan, Segment, Slot
from optsched.errors import SolverUnavailableError
from optsched.objectives import Objective
from optsched.plugins.options import PluginOptions
from optsched.plugins.solver import Guarantee, Report, Request
from optsched.verify import decision_now
from tests.clusters import one_node

BEST_S = {"a": 0.0, "b": 2.0, "c": 4.0, "d": 0.0, "e": 3.0}
BETTER_S = {**BEST_S, "b": 2.5, "c": 4.5}
OVERLAPPING_S = dict.fromkeys("abcde", 0.0)


def two_gpus() -> Instance:
    """Jobs of 2, 2, 2, 3 and 3 s on one node with two GPUs."""
    return Instance(
        name="two-gpus",
        cluster=one_node("n0", gpu_type="a100", gpus=2),
        jobs=tuple(Job(id=name, duration_s=2.0 if name in "abc" else 3.0) for name in "abcde"),
    )


def plan_from(instance: Instance, starts_s: dict[str, float]) -> Plan:
    """The plan that starts each job at the given time."""
    entries = []
    for job in instance.jobs:
        start_s = starts_s[job.id]
        segment = Segment(
            start_s=start_s,
            end_s=start_s + job.work_s,
            mode=Mode(gpu_type="a100", gpus=1),
            placement=(Slot(node="n0", gpus=1),),
        )
        decision = decision_now(instance, job, (segment,))
        entries.append(JobPlan(id=job.id, decision=decision, segments=(segment,)))
    return Plan(jobs=tuple(entries))


def write_pids(request: Request, *pids: int) -> None:
    """Tell the test which processes there are."""
    if request.options.pids:
        path = Path(request.options.pids)
        path.with_suffix(".new").write_text(" ".join(map(str, pids)))
        path.with_suffix(".new").replace(path)


class Fake:
    """A solver that ends at once without having found anything."""

    name = "fake"
    title = "a fake"
    needs: tuple[str, ...] = ()
    guarantee: Guarantee = "exact"

    def supports(self, instance: Instance, objective: Objective) -> str | None:
        return None

    @dataclass(frozen=True, kw_only=True)
    class Options(PluginOptions):
        pids: str = ""
        bound: float = 0.0
        sleep_s: float = 60.0
        then: str = ""
        first: bool = False

    def solve(self, request: Request, report: Report) -> None:
        pass


class Best(Fake):
    def solve(self, request: Request, report: Report) -> None:
        report.note("a note of the solver")
        report.plan(plan_from(request.instance, BEST_S))


class Prover(Fake):
    """Proves the optimum, of a sum where combinatorial bounds are not tight, without a better
    plan."""

    def solve(self, request: Request, report: Report) -> None:
        assert request.incumbent is not None
        report.bound(0, request.options.bound, "a proof")


class Raises(Fake):
    def solve(self, request: Request, report: Report) -> None:
        print("about to divide")
        raise ZeroDivisionError("no such luck")


class Refuses(Fake):
    def solve(self, request: Request, report: Report) -> None:
        raise SolverUnavailableError("its licence is used up")


class BetterThenRaises(Fake):
    def solve(self, request: Request, report: Report) -> None:
        report.plan(plan_from(request.instance, BETTER_S))
        raise ZeroDivisionError("too late to matter")


class Segfaults(Fake):
    def solve(self, request: Request, report: Report) -> None:
        import ctypes

        print("about to crash")
        ctypes.string_at(0)


class LeavesFiles(Fake):
    def solve(self, request: Request, report: Report) -> None:
        import tempfile

        Path(tempfile.mkdtemp(), "model.mps").write_text("left behind")


class Exits(Fake):
    def solve(self, request: Request, report: Report) -> None:
        os._exit(3)


class Waits(Fake):
    """Does nothing for a minute, whatever its time limit."""

    def solve(self, request: Request, report: Report) -> None:
        write_pids(request, os.getpid())
        time.sleep(60)


class Stubborn(Waits):
    """The same, deaf to polite requests."""

    def solve(self, request: Request, report: Report) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        super().solve(request, report)


class BetterThenHangs(Stubborn):
    def solve(self, request: Request, report: Report) -> None:
        report.plan(plan_from(request.instance, BETTER_S))
        super().solve(request, report)


class Compiles(Fake):
    """Compiles past its time limit, and plans then."""

    def solve(self, request: Request, report: Report) -> None:
        report.more_time_s(math.inf)
        time.sleep(request.time_limit_s + 0.5)
        report.more_time_s(request.time_limit_s + 0.5)
        Best().solve(request, report)


class Native(Fake):
    """In native code that holds the interpreter for minutes: no Python code of the process can
    run."""

    def solve(self, request: Request, report: Report) -> None:
        write_pids(request, os.getpid())
        print(len(str(3 ** (3**17))))


class HangsOnImport(Fake):
    needs = ("tests.engine.never_imported",)


class Invalid(Fake):
    def solve(self, request: Request, report: Report) -> None:
        report.bound(0, 6.9, "a wrong model")
        report.plan(plan_from(request.instance, OVERLAPPING_S))


class InvalidThenBest(Fake):
    def solve(self, request: Request, report: Report) -> None:
        report.plan(plan_from(request.instance, OVERLAPPING_S))
        report.plan(plan_from(request.instance, BEST_S))


class SaysInfeasible(Fake):
    def solve(self, request: Request, report: Report) -> None:
        report.infeasible("the model has no solution")


class Missing(Fake):
    needs = ("no_such_module", "os")


class Broken(Fake):
    """Installed, but its library cannot be imported."""

    needs = ("tests.engine.unimportable",)


class Unsupporting(Fake):
    def supports(self, instance: Instance, objective: Objective) -> str | None:
        return "it knows no GPUs"


class Junk(Fake):
    """Sends what is not a plan."""

    def solve(self, request: Request, report: Report) -> None:
        report.plan({"jobs": 3})  # type: ignore[arg-type]


class NumberTypes(Fake):
    """Sends a plan of numpy numbers, as is easily done."""

    def solve(self, request: Request, report: Report) -> None:
        import numpy as np

        starts_s = {name: np.float64(start_s) for name, start_s in BEST_S.items()}
        report.plan(plan_from(request.instance, starts_s))  # type: ignore[arg-type]


class RawJunk(Fake):
    """Writes into every pipe it finds."""

    def solve(self, request: Request, report: Report) -> None:
        report.plan(plan_from(request.instance, BETTER_S))
        for descriptor in sorted(map(int, os.listdir("/proc/self/fd")))[3:]:
            try:
                os.write(descriptor, b"\xff" * 100)
            except OSError:
                continue
        time.sleep(60)


class Evil:
    def __reduce__(self) -> tuple[object, ...]:
        return os.system, ("kill %d" % os.getppid(),)  # noqa: UP031


class RunsCode(Fake):
    """Sends an object whose unpickling would run a command."""

    def solve(self, request: Request, report: Report) -> None:
        report.plan(Evil())  # type: ignore[arg-type]


class Overclaims(Fake):
    def solve(self, request: Request, report: Report) -> None:
        report.bound(0, 8.0, "a wrong proof")
        report.bound(0, 6.9, "another")


class OverclaimsThenBest(Fake):
    def solve(self, request: Request, report: Report) -> None:
        report.bound(0, 6.5, "a wrong proof")
        report.plan(plan_from(request.instance, BEST_S))


class BadBounds(Fake):
    def solve(self, request: Request, report: Report) -> None:
        report.bound(0, float("nan"), "nothing")
        report.bound(7, 1.0, "nothing")


class Floods(Fake):
    def solve(self, request: Request, report: Report) -> None:
        while True:
            os.write(1, b"all work and no play\n" * 1000)


class FloodsNotes(Fake):
    def solve(self, request: Request, report: Report) -> None:
        i = 0
        while True:
            i += 1
            report.note(f"note {i}")


class Forks(Fake):
    """Starts more processes: one in a session of its own, one deaf to SIGTERM, one a plain fork."""

    def solve(self, request: Request, report: Report) -> None:
        sleep = [sys.executable, "-c", "import time; time.sleep(300)"]
        deaf = [sys.executable, "-c", "import signal, time; signal.signal(15, 1); time.sleep(300)"]
        started = [
            subprocess.Popen(sleep),
            subprocess.Popen(sleep, start_new_session=True),
            subprocess.Popen(deaf),
        ]
        forked = os.fork()
        if forked == 0:
            time.sleep(300)
        write_pids(request, os.getpid(), forked, *(process.pid for process in started))
        if request.options.then != "end":
            time.sleep(300)


class Slow(Fake):
    """Takes as long as it is allowed to, and says how long that was."""

    def solve(self, request: Request, report: Report) -> None:
        report.note(
            f"limit {request.time_limit_s:.6f}, seed {request.seed}, workers {request.workers}"
        )
        time.sleep(min(request.time_limit_s, request.options.sleep_s))
