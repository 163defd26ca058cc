"""Ada-SRSF message by message: what its gate is worth where it is asked for each all-reduce.

    python -m benchmarks.messages [--seeds 1,2,3]

The policy `ada-srsf` asks its gate once for each gang, as a simulation knows no steps. Here plans
of its study are played again: jobs keep their GPUs and their order, but a gang over several servers
computes, sends one message over the links of all its servers, and so on. A message that starts is
gated as by SRSF(1), which never contends, by SRSF(2), which accepts up to two on a link, and by
AdaDUAL; those that wait go shortest remaining service first. With k messages on a link each takes
k + (k - 1) eta times as long as alone; `eta` 0.3 is about what its authors measured (from memory).
Steps are SCALE times as long as real ones, which changes no ratio. `change` is that of the mean
completion time under AdaDUAL, `half` half its 95 % interval.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Literal

from benchmarks.command_line import parser_of, tell
from optsched import generate
from optsched.api import simulate
from optsched.model.instance import Instance
from optsched.physics import crossed_uplinks
from optsched.study.intervals import mean_interval
from optsched_solvers.policies.ada_srsf import worth_contending

WORKLOAD = {
    "cluster": "v100=64",
    "gpus_per_node": 1,
    "families": "resnet18,resnet50,deepspeech2,bert,vgg16,gpt2,roberta-base,yolov3",
    "gangs": "3,5,6,12",
    "run_times": "10m-5h",
    "heavy_tail": True,
    "load": 1.2,
    "uplinks": 25.0,
    "jobs": 100,
}
"""That of instances/studies/systems/ada-srsf.toml."""
PARAMETERS_M = {
    **{"resnet18": 11.7, "resnet50": 25.6, "vgg16": 138.0, "yolov3": 62.0, "bert": 110.0},
    **{"gpt2": 124.0, "roberta-base": 125.0, "deepspeech2": 87.0},
}
"""Parameters of the published models, in millions; of 4 bytes each, sent about twice by a ring."""
SCALE = 100.0
DONE_S = 1e-7
Gate = Literal["adadual", "avoid", "accept"]


@dataclass(frozen=True)
class Gang:
    """A job of so many equal steps, in the order of `start_s`; it sends where it has `links`."""

    submit_s: float
    start_s: float
    nodes: tuple[str, ...]
    links: tuple[str, ...]
    compute_s: float
    message_s: float
    steps: int


def gangs_of(instance: Instance) -> list[Gang]:
    """Return the jobs of the instance as `ada-srsf` places and orders them."""
    plan = simulate(instance, "ada-srsf", options={"gate": "accept"}).solution.plan
    assert plan is not None
    gangs = []
    for entry in plan.jobs:
        job, [segment] = instance.job[entry.id], entry.segments
        profile, links = job.profile, crossed_uplinks(instance.cluster, segment.placement)
        compute_s, message_s, steps = job.work_s, 0.0, 1
        if profile.network_gbps and links:
            gbit = PARAMETERS_M[profile.name or ""] * 1e6 * 32 * 2 / 1e9
            message_s = SCALE * gbit / profile.network_gbps
            steps = max(1, round(job.work_s * profile.network_duty / message_s))
            compute_s = message_s * (1 / profile.network_duty - 1)
        nodes = tuple(slot.node for slot in segment.placement)
        links = links if message_s else ()
        at_s = job.submit_s, segment.start_s
        gangs.append(Gang(*at_s, nodes, links, compute_s, message_s, steps))
    return sorted(gangs, key=lambda gang: gang.start_s)


class Play:
    """The gangs, by number, from event to event: `events` are submissions and ends of computing,
    `sending` the messages on links with the seconds that each had left alone."""

    def __init__(self, gangs: Sequence[Gang], gate: Gate, eta: float) -> None:
        self.gangs, self.gate, self.eta = gangs, gate, eta
        self.now_s = 0.0
        self.events = [(gang.submit_s, -1) for gang in gangs]
        heapify(self.events)
        self.queue = list(range(len(gangs)))
        self.held: set[str] = set()
        self.left = [gang.steps for gang in gangs]
        self.sending: dict[int, float] = {}
        self.on: dict[str, list[int]] = {link: [] for gang in gangs for link in gang.links}
        self.ready: list[int] = []
        self.end_s: dict[int, float] = {}

    def run(self) -> list[float]:
        """Return when each gang is complete."""
        while len(self.end_s) < len(self.gangs):
            pace = {i: self._pace(i) for i in self.sending}
            sent_s = min((left / pace[i] for i, left in self.sending.items()), default=math.inf)
            next_s = min(self.now_s + sent_s, self.events[0][0] if self.events else math.inf)
            for i in pace:
                self.sending[i] -= (next_s - self.now_s) * pace[i]
            self.now_s = next_s
            for i in [i for i, left in self.sending.items() if left <= DONE_S]:
                self._sent(i)
            while self.events and self.events[0][0] <= next_s + DONE_S:
                i = heappop(self.events)[1]
                if i >= 0:
                    self._computed(i)
            self._send()
            self._start()
        return [self.end_s[i] for i in range(len(self.gangs))]

    def _pace(self, i: int) -> float:
        most = max(len(self.on[link]) for link in self.gangs[i].links)
        return 1.0 / (most + (most - 1) * self.eta)

    def _sent(self, i: int) -> None:
        del self.sending[i]
        for link in self.gangs[i].links:
            self.on[link].remove(i)
        self.left[i] -= 1
        if self.left[i]:
            heappush(self.events, (self.now_s + self.gangs[i].compute_s, i))
        else:
            self._end(i)

    def _computed(self, i: int) -> None:
        if self.gangs[i].links:
            self.ready.append(i)
        else:
            self._end(i)

    def _end(self, i: int) -> None:
        self.end_s[i] = self.now_s
        self.held.difference_update(self.gangs[i].nodes)

    def _service(self, i: int) -> float:
        gang = self.gangs[i]
        return self.left[i] * (gang.compute_s + gang.message_s) * len(gang.nodes)

    def _send(self) -> None:
        for i in sorted(self.ready, key=lambda i: (self._service(i), i)):
            gang = self.gangs[i]
            if all(self._may_join(gang.message_s, self.on[link]) for link in gang.links):
                self.ready.remove(i)
                self.sending[i] = gang.message_s
                for link in gang.links:
                    self.on[link].append(i)

    def _may_join(self, message_s: float, others: list[int]) -> bool:
        if not others:
            return True
        if len(others) > 1 or self.gate == "avoid":
            return False
        left_s = self.sending[others[0]]
        return self.gate == "accept" or worth_contending(message_s, left_s, self.eta)

    def _start(self) -> None:
        """Start whoever's GPUs are free and not those of one before it."""
        claimed = set(self.held)
        for i in list(self.queue):
            gang = self.gangs[i]
            if gang.submit_s <= self.now_s + DONE_S and claimed.isdisjoint(gang.nodes):
                self.queue.remove(i)
                self.held.update(gang.nodes)
                heappush(self.events, (self.now_s + gang.compute_s, i))
            claimed.update(gang.nodes)


def mean_jct_s(gangs: Sequence[Gang], gate: Gate, eta: float) -> float:
    """Return the mean completion time."""
    ends_s = Play(gangs, gate, eta).run()
    return math.fsum(
        end_s - gang.submit_s for gang, end_s in zip(gangs, ends_s, strict=True)
    ) / len(gangs)


def main() -> None:
    """Print a line of JSON for each eta and rival."""
    seeds = parser_of(__doc__, seeds=list(range(1, 11))).parse_args().seeds
    played = [gangs_of(generate("even", seed=seed, **WORKLOAD)) for seed in seeds]  # type: ignore[arg-type]
    for eta in (0.0, 0.3):
        own_s = [mean_jct_s(gangs, "adadual", eta) for gangs in played]
        rivals: tuple[Gate, ...] = ("avoid", "accept")
        for rival in rivals:
            other_s = [mean_jct_s(gangs, rival, eta) for gangs in played]
            change = mean_interval([a / b - 1 for a, b in zip(own_s, other_s, strict=True)])
            line = {"eta": eta, "against": rival, "seeds": len(seeds)}
            half = round(change.half or 0.0, 4)
            tell({**line, "change": round(change.mean, 4), "half": half})


if __name__ == "__main__":
    main()
