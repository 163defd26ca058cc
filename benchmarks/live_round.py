"""What one round of a live controller costs of processor time, everything in it: the present as a
checked instance, deciding, and writing both down. Prints one line of JSON.

    python -m benchmarks.live_round [--jobs 2000] [--rounds 9]

The controller is that of `optsched run`, on virtual nodes of 8 GPUs and in virtual time; the jobs
are those of `optsched.traces.generate.synth`, half of them run. `decide_cpu_ms` is the median over
the rounds, a minute apart, `solver_cpu_ms` what of it is spent deciding, `proof_cpu_ms` what on
the gap of the plan. `reference_cpu_ms` is what `json.loads` and `json.dumps` take for the instance
of the round, in the same process: machines differ, `outside_ratio` is what to compare, of the rest
of the time.
"""

import json
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.command_line import parser_of, tell
from optsched import Node
from optsched.control.controller import Controller
from optsched.control.journal.events import Submitted
from optsched.control.journal.journal import Journal
from optsched.control.settings import NodeSettings, Settings
from optsched.control.submission import Submission
from optsched.traces.generate.synth import generate
from optsched_solvers.policies.optsched import Optsched
from optsched_solvers.policies.parts import priced_round
from tests.control.virtual import VirtualClock, VirtualExecutor


def main() -> None:
    """Fill a virtual cluster, then decide rounds a minute apart."""
    arguments = parser_of(__doc__, jobs=2000, rounds=9).parse_args()
    with tempfile.TemporaryDirectory() as folder:
        controller, clock = opened(Path(folder), arguments.jobs)
        spent: dict[str, list[float]] = {"decide": [], "solver": [], "proof": []}
        decide_round = timed(priced_round.decide, spent["solver"])  # type: ignore[attr-defined]
        priced_round.decide = decide_round  # type: ignore[attr-defined]
        told = timed(Optsched._told, spent["proof"])
        Optsched._told = told  # type: ignore[method-assign]
        decide = timed(controller.decide, spent["decide"])
        for _ in range(arguments.rounds):
            clock.at_s += 60.0
            controller.look()
            decide()
        assert controller.last_instance is not None
        running, active = len(controller.last_instance.running), len(controller.last_instance.jobs)
        text = controller.journal.round_files(controller.journal.last_round())[0]
        reference: list[float] = []
        for _ in range(arguments.rounds):
            timed(lambda: json.dumps(json.loads(text)), reference)()
        controller.journal.close()
    median = {name: statistics.median(times) for name, times in spent.items()}
    outside_ms = median["decide"] - median["solver"] - median["proof"]
    tell(
        {
            "benchmark": "live_round",
            "jobs": active,
            "running": running,
            "rounds": arguments.rounds,
            "decide_cpu_ms": round(median["decide"], 1),
            "solver_cpu_ms": round(median["solver"], 1),
            "reference_cpu_ms": round(statistics.median(reference), 1),
            "proof_cpu_ms": round(median["proof"], 1),
            "outside_ratio": round(outside_ms / statistics.median(reference), 1),
        }
    )


def opened(folder: Path, jobs: int) -> tuple[Controller, VirtualClock]:
    """Return a controller that has decided its first round, and its clock."""
    drawn = generate(jobs=jobs, gpus=2 * jobs, seed=1)
    nodes = tuple(
        Node(name=f"n{i}", gpu_type="a100", gpus=8, cpus=64) for i in range(max(1, jobs // 4))
    )
    settings = Settings(
        format="optsched-cluster/1",
        every=60.0,
        budget=10.0,
        nodes=(NodeSettings(name=f"n[0-{len(nodes) - 1}]", gpu_type="a100", gpus=8),),
    )
    clock = VirtualClock()
    controller = Controller(
        settings, VirtualExecutor(nodes, clock), Journal(folder / "journal"), clock
    )
    for job in drawn.jobs:
        profile = replace(job.profile, rate={}, power_w={}, clocks={})
        job = replace(job, submit_s=0.0, duration_s=1e6, profile=profile)
        work = Submission(job=job, argv=("work", "1000000", "1", "0"), directory="/")
        controller.record(Submitted(submission=work))
    controller.step()
    return controller, clock


def timed(call: Callable[..., Any], into: list[float]) -> Callable[..., Any]:
    """Return the call, which notes its milliseconds of processor time."""

    def noted(*given: Any, **named: Any) -> Any:
        begun_s = time.process_time()
        try:
            return call(*given, **named)
        finally:
            into.append(1e3 * (time.process_time() - begun_s))

    return noted


if __name__ == "__main__":
    main()
