"""Every policy drives real nodes as it does a simulation: the same starts and stops at the same
times, on random instances, over an executor in virtual time."""

import math
import random
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from optsched import Cluster, Instance, Job, Node, Profile
from optsched.control.controller import Controller
from optsched.control.journal.events import Submitted
from optsched.control.journal.journal import Journal
from optsched.control.settings import NodeSettings, Settings
from optsched.control.submission import Submission
from optsched.driver.state import Ending
from optsched.executors.base import Order
from optsched.model.job import first_come
from optsched.objectives import parse
from optsched.physics import hold_to_save_s
from optsched.plugins import registry
from optsched.simulate.run import Simulation

from .virtual import Process, VirtualClock, VirtualExecutor

STEPS = 10**12
"""Of a whole job, so that what it reports of itself is exact."""
SLACK_S = 1e-2
LATEST_S = 20_000.0
INSTANCES = 200
NOT_LIVE: dict[str, str] = {}
"""Policies that decide otherwise on live nodes, each with the reason."""

Act = tuple[float, str, str, tuple[str, ...]]
"""When, what ("start" or "stop"), the job, and the nodes."""


def instance(seed: int) -> Instance:
    """A small cluster with more work than it can do at once."""
    draw = random.Random(seed)
    types = draw.choice((("a",), ("a", "b")))
    nodes = tuple(
        Node(name=f"n{i}", gpu_type=types[i % len(types)], gpus=draw.choice((2, 4)))
        for i in range(draw.randint(1, 4))
    )
    most = sum(node.gpus for node in nodes if node.gpu_type == "a")
    save_s = draw.choice((0.0, 0.0, 20.0))
    jobs, at_s = [], 0.0
    for i in range(draw.randint(4, 14)):
        at_s += draw.choice((0.0, round(draw.expovariate(1 / 100), 2)))
        profile = Profile(
            startup_s=draw.choice((0.0, 5.0)),
            checkpoint_s=save_s,
            restore_s=draw.choice((0.0, 10.0)),
            rate={name: draw.choice((0.5, 1.0, 2.0)) for name in types},
        )
        jobs.append(
            Job(
                id=f"j{i}",
                submit_s=1000.0 + at_s,
                gpus=min(most, draw.choice((1, 1, 2, 4))),
                duration_s=round(draw.lognormvariate(5.5, 1.0), 2),
                profile=profile,
                weight=draw.choice((1.0, 1.0, 3.0)),
                priority=draw.choice((0, 0, 0, 1)),
                min_run_s=draw.choice((0.0, 0.0, 60.0)),
            )
        )
    return Instance(cluster=Cluster(nodes=nodes), jobs=tuple(jobs), now_s=jobs[0].submit_s)


def simulated(made: Instance, name: str) -> tuple[list[Act], float]:
    """What the policy does in a simulation, and when all is done, or `LATEST_S`: some start jobs
    again and again."""
    simulation = Simulation(made, registry.policy(name, parse("wct")))
    simulation.world.run_times_hold = False  # as live rounds see it
    simulation.run(until=lambda: simulation.world.now_s > LATEST_S)
    record = simulation.record()
    acts: list[Act] = []
    for row, job in enumerate(record.job.tolist()):
        nodes = tuple(sorted(slot.node for slot in record.placements[row]))
        acts.append((float(record.start_s[row]), "start", made.jobs[job].id, nodes))
        if record.ending[row] == Ending.PREEMPTED:
            stop_s = float(record.end_s[row]) - hold_to_save_s(made.jobs[job])
            acts.append((stop_s, "stop", made.jobs[job].id, nodes))
    return acts, simulation.world.now_s


@dataclass
class Acting(VirtualExecutor):
    """Attempts run as long as the model says: set-up, work at their rate, and a save when they are
    asked to stop."""

    jobs: dict[str, Job] = field(default_factory=dict)
    left: dict[str, float] = field(default_factory=dict)
    acts: list[Act] = field(default_factory=list)
    controller: Controller | None = None

    def start(self, order: Order) -> None:
        if order.key in self.processes:
            return
        assert self.controller is not None
        self.check(order)
        attempt = self.controller.state.attempt(order.key)
        length_s = attempt.setup_s + self.left[order.key.job] / attempt.rate
        self.processes[order.key] = Process(order, self.clock.at_s, self.clock.at_s + length_s)
        nodes = tuple(sorted(slot.node for slot in order.placement))
        self.acts.append((self.clock.at_s, "start", order.key.job, nodes))

    def pass_time(self) -> None:
        assert self.controller is not None
        now_s = self.clock.at_s
        for key, process in self.processes.items():
            if process.ended_s is not None or process.order is None:
                continue
            job, attempt = self.jobs[key.job], self.controller.state.attempt(key)
            began_s = process.begun_s + attempt.setup_s
            until_s = now_s if process.asked_s is None else min(now_s, process.asked_s)
            done_s = max(0.0, until_s - began_s) * attempt.rate
            step = STEPS - (self.left[key.job] - done_s) / job.work_s * STEPS
            first = STEPS - self.left[key.job] / job.work_s * STEPS
            said: dict[str, object] = {
                "step": round(step),
                "at_s": until_s,
                "first_step": round(first),
                "saved_step": round(step),
                "total_steps": STEPS,
            }
            if until_s > began_s:
                said["began_s"] = began_s
                restore_s = attempt.setup_s - job.profile.startup_s
                said |= {"restore_s": restore_s} if restore_s > 0 else {}
            self.reports[key.job] = said
            if process.ends_s <= now_s and process.asked_s is None:
                process.ended_s, process.status = process.ends_s, 0
            elif process.asked_s is not None and process.asked_s + hold_to_save_s(job) <= now_s:
                process.ended_s, process.status = process.asked_s + hold_to_save_s(job), 85
                self.left[key.job] -= done_s
                nodes = tuple(sorted(slot.node for slot in process.order.placement))
                self.acts.append((process.asked_s, "stop", key.job, nodes))

    def next_s(self) -> float:
        """When an attempt ends, or has saved."""
        return min(
            (
                process.ends_s
                if process.asked_s is None
                else process.asked_s + hold_to_save_s(self.jobs[key.job])
                for key, process in self.processes.items()
                if process.ended_s is None
            ),
            default=math.inf,
        )


def lived(made: Instance, name: str, folder: Path, until_s: float) -> list[Act]:
    """What the policy does on live nodes that work as the instance says."""
    clock = VirtualClock(made.now_s)
    jobs = {job.id: job for job in made.jobs}
    left = {job.id: job.work_s for job in made.jobs}
    executor = Acting(made.cluster.nodes, clock, jobs=jobs, left=left)
    settings = Settings(
        format="optsched-cluster/1",
        policy=name,
        every="1000d",
        nodes=tuple(
            NodeSettings(name=node.name, gpu_type=node.gpu_type, gpus=node.gpus)
            for node in made.cluster.nodes
        ),
    )
    controller = Controller(settings, executor, Journal(folder / "journal"), clock)
    executor.controller = controller

    def fail(what: str, error: Exception) -> None:
        raise error

    controller.bug = fail
    coming = sorted(made.jobs, key=first_come, reverse=True)
    while coming or controller.state.open:
        policy = controller.policy
        assert policy is not None
        next_s = min(
            executor.next_s(),
            policy.next_wake_s(clock.at_s),
            coming[-1].submit_s if coming else math.inf,
        )
        if next_s > until_s + SLACK_S:
            break  # what is not done by then is done otherwise
        clock.at_s = next_s
        while coming and coming[-1].submit_s <= clock.at_s:
            job = coming.pop()
            submission = Submission(job=job, argv=("work",), directory="/", grace_s=1e6)
            controller.record(Submitted(submission=submission))
        for _ in range(20):
            before = controller.journal.last
            controller.step()
            if controller.journal.last == before:
                break
    controller.journal.close()
    return executor.acts


def assert_same(live: list[Act], virtual: list[Act]) -> None:
    """The same acts at the same times; of those at one time the order means nothing."""

    def ordered(acts: list[Act]) -> list[Act]:
        return sorted(acts, key=lambda act: (act[2], act[1], act[0]))

    live, virtual = ordered(live), ordered(virtual)
    assert [act[1:] for act in live] == [act[1:] for act in virtual]
    for ours, theirs in zip(live, virtual, strict=True):
        assert ours[0] == pytest.approx(theirs[0], abs=SLACK_S), (ours, theirs)


def cases() -> Iterator[object]:
    for number, name in enumerate(sorted(registry.names("policies"))):
        if name in NOT_LIVE:
            continue
        quick = pytest.param(name, (number,), id=f"{name}-sampled")
        yield quick
        yield pytest.param(name, range(INSTANCES), id=name, marks=pytest.mark.slow)


@pytest.mark.parametrize(("name", "seeds"), list(cases()))
def test_a_policy_decides_live_as_in_a_simulation(name: str, seeds: range, tmp_path: Path) -> None:
    for seed in seeds:
        made = instance(seed)
        virtual, end_s = simulated(made, name)
        with tempfile.TemporaryDirectory(dir=tmp_path) as folder:
            live = lived(made, name, Path(folder), end_s)
        assert_same(live, virtual)


def test_beside_who_takes_a_kept_place_when_it_is_due_others_start_that_are_done_by_then() -> None:
    """j5, of a higher priority, takes two of the four GPUs that are kept for j4: until it is done
    j4 cannot start, but j1 and j2 can be."""
    acts, _ = simulated(instance(73), "optsched")
    starts_s = {job: at_s for at_s, act, job, _ in acts if act == "start"}
    ends_s = starts_s["j4"]  # when j5 is done
    assert starts_s["j5"] == starts_s["j1"] < starts_s["j2"] < ends_s
