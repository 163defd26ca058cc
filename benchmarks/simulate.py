"""How fast policies are replayed, all metrics included, on one core. One line of JSON for each
policy and size.

    python -m benchmarks.simulate [--jobs 100000] [--nodes 550] [--policies fifo,srtf,srsf,las]
    python -m benchmarks.simulate --jobs 1000000 --policies fifo --beside 100000 [--load 0.8]
    python -m benchmarks.simulate --jobs 10000 --nodes 128 --gpu-types 3 --policies optsched
    python -m benchmarks.simulate --jobs 500 --nodes 16 --load 1.1 --like philly --policies pollux
    python -m benchmarks.simulate --growth

Nodes have 8 GPUs; the jobs are those of `optsched.traces.generate.synth`, with its checkpoint
costs, or with `--like` those fitted to a cluster, with its nodes and quotas. `--spacing` is the
least time between two decisions; policies that prove their rounds also tell the gaps, or how many
rounds they proved. Each policy runs in a process of its own, so that memory is its own. `events`
are starts, ends and arrivals. `kernel_us` is what one push and half a pop of a heap cost at that
moment: machines are noisy, `us_per_event / kernel_us` is what to compare. `--counted` replays once
more and says how many functions are called for an event, the same on every machine. `--growth`
goes from 10,000 to 1,000,000 jobs under fifo, with a cluster of the same size: cost per event
should grow no faster than the logarithm. `--beside` replays so many jobs first: `event_ratio` is
what an event of the larger replay costs, relative to one of the smaller. An event costs more where
jobs wait, as it then tries places that do not fit and gangs are split, and `mean_queue` says how
many do: at a load of 0.95 the first 100,000 jobs, five days of them, never fill the cluster, and
1,000,000 do. At 0.8 nobody waits in either, at 1.3 jobs wait in both.
"""

import multiprocessing
import resource
import time
from typing import Any

import numpy as np

from benchmarks.command_line import parser_of, tell
from benchmarks.reference import calls, kernel_us
from optsched.plugins import registry
from optsched.simulate.metrics import measure
from optsched.simulate.run import Simulation
from optsched.traces.generate import like, synth

TARGET_S = {100_000: 5.0, 1_000_000: 60.0}


def replay(
    jobs: int,
    nodes: int,
    load: float,
    gpu_types: int,
    kind: str,
    spacing_s: float,
    counted: bool,
    policy: str,
) -> dict[str, Any]:
    """Generate, replay, measure."""
    if kind in like.MODELS:
        instance = like.generate(kind, jobs=jobs, gpus=8 * nodes, seed=1, load=load, quotas=True)
    else:
        instance = synth.generate(
            jobs=jobs, gpus=8 * nodes, seed=1, arrivals="poisson", load=load, gpu_types=gpu_types
        )
    before = kernel_us()
    start_s = time.process_time()
    chosen = registry.policy(policy)
    simulation = Simulation(instance, chosen, spacing_s=spacing_s)
    simulation.run()
    record = simulation.record()
    replayed_s = time.process_time() - start_s
    metrics = measure(record)
    total_s = time.process_time() - start_s
    events = jobs + 2 * record.rows
    kernel = min(before, kernel_us())
    counts = {}
    if counted:
        again = Simulation(instance, registry.policy(policy), spacing_s=spacing_s)
        made = calls(lambda: (again.run(), measure(again.record())))
        counts = {"calls_per_event": round(made / events, 1)}
    gaps = [e.gap for e in getattr(chosen, "rounds", ()) if e.gap is not None]
    facts: dict[str, Any] = getattr(chosen, "facts", dict)()
    return {
        "benchmark": "simulate",
        "policy": policy,
        "jobs": jobs,
        "gpus": instance.cluster.total_gpus,
        "load": load,
        "rows": record.rows,
        "cpu_s": round(total_s, 2),
        "replay_s": round(replayed_s, 2),
        "metrics_s": round(total_s - replayed_s, 2),
        "target_s": TARGET_S.get(jobs),
        "us_per_event": round(total_s / events * 1e6, 2),
        "kernel_us": round(kernel, 2),
        **counts,
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "mean_jct_s": round(float(metrics.jct_s.mean()), 1),
        "mean_waiting_s": round(float(metrics.waiting_s.mean()), 1),
        "mean_queue": round(float(metrics.waiting_s.sum() / metrics.completion_s.max())),
        "rounds": len(gaps) or facts.get("rounds", 0),
        "proven_rounds": facts.get("proven_rounds"),
        "mean_gap": round(float(np.mean(gaps)), 6) if gaps else None,
        "worst_gap": round(max(gaps), 6) if gaps else None,
    }


def _in_a_process(*arguments: Any) -> dict[str, Any]:
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        return pool.apply(replay, arguments)


def main() -> None:
    arguments = parser_of(
        __doc__,
        jobs=100_000,
        nodes=550,
        load=0.95,
        policies="fifo,srtf,srsf,las",
        gpu_types=1,
        like=("mixed", *like.MODELS),
        spacing=0.0,
        counted=False,
        beside=int,
        growth=False,
    ).parse_args()
    fixed = (
        arguments.load,
        arguments.gpu_types,
        arguments.like,
        arguments.spacing,
        arguments.counted,
    )
    if arguments.growth:
        for jobs in (10_000, 30_000, 100_000, 300_000, 1_000_000):
            tell(_in_a_process(jobs, arguments.nodes, *fixed, "fifo"))
        return
    for policy in arguments.policies.split(","):
        smaller = None
        if arguments.beside is not None:
            smaller = _in_a_process(arguments.beside, arguments.nodes, *fixed, policy)
        line = _in_a_process(arguments.jobs, arguments.nodes, *fixed, policy)
        if smaller is not None:
            line["event_ratio"] = round(line["us_per_event"] / smaller["us_per_event"], 2)
        tell(line)


if __name__ == "__main__":
    main()
