"""GPUs that die and come back under rounds: nothing is started on them, and no round is faulty for
them."""

import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from optsched import Mode, Slot
from optsched.control.journal.events import Claim, RoundDecided, StartRefused
from optsched.control.launchable import launchable
from optsched.control.present import present
from optsched.control.room_now import RoomNow
from optsched.control.what_if.snapshot import snapshot
from optsched.executors.base import (
    AttemptKey,
    AttemptState,
    NodeStatus,
    Observation,
    Order,
    RefusedError,
)

from .test_controller import Lab
from .virtual import VirtualExecutor

IDS = {node: tuple(f"{node}-{i}" for i in range(4)) for node in ("n0", "n1")}


@dataclass
class GpuExecutor(VirtualExecutor):
    """Gives each attempt GPUs of its own, never one that is out."""

    out: frozenset[str] = frozenset()
    given: dict[AttemptKey, dict[str, tuple[str, ...]]] = field(default_factory=dict)
    late: int = 0

    def inventory(self) -> tuple[NodeStatus, ...]:
        return tuple(
            replace(status, out=tuple(one for one in IDS[status.node.name] if one in self.out))
            for status in super().inventory()
        )

    def start(self, order: Order) -> None:
        if order.key not in self.processes:
            self.pass_time()
            held = {
                gpu
                for key, ids in self.given.items()
                if self.processes[key].ended_s is None
                for one in ids.values()
                for gpu in one
            }
            found = {}
            for slot in order.placement:
                free = [one for one in IDS[slot.node] if one not in held | self.out]
                if len(free) < slot.gpus:
                    raise RefusedError(f"{slot.node} has {len(free)} GPUs left")
                found[slot.node] = tuple(free[: slot.gpus])
            super().start(order)
            self.given[order.key] = found

    def observe(self) -> tuple[Observation, ...]:
        """Which GPUs an attempt has is seen `late` turns after its start."""
        return tuple(
            replace(
                seen,
                gpu_ids=self.given.get(seen.key, {}),
                state=AttemptState.STARTING if self._fresh(seen) else seen.state,
                started_s=None if self._fresh(seen) else seen.started_s,
            )
            for seen in super().observe()
        )

    def _fresh(self, seen: Observation) -> bool:
        begun_s = self.processes[seen.key].begun_s
        return seen.state is AttemptState.RUNNING and self.clock.at_s < begun_s + self.late


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("submit"), st.integers(1, 8), st.integers(1, 40)),
        st.tuples(st.just("run"), st.integers(1, 30)),
        st.tuples(
            st.just("out"), st.frozensets(st.sampled_from([*IDS["n0"], *IDS["n1"]]), max_size=5)
        ),
        st.tuples(st.just("crash")),
    ),
    min_size=4,
    max_size=16,
)


@given(actions=ACTIONS, late=st.integers(0, 4))
@settings(max_examples=40)
def test_nothing_is_started_on_what_is_out_and_no_round_is_faulty(
    actions: list[Any], late: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        lab = Lab(Path(folder))
        lab.executor = executor = GpuExecutor(lab.executor.nodes, lab.clock, late=late)
        lab.crash()
        for number, (what, *rest) in enumerate(actions):
            if what == "submit":
                lab.submit(f"j{number}", rest[0], float(rest[1]))
            elif what == "run":
                lab.run(rest[0])
            elif what == "out":
                executor.out = rest[0]
            else:
                lab.crash()
            check(lab, executor)
        executor.out = frozenset()
        lab.run(600.0, 5.0)
        assert set(lab.status().values()) <= {"completed"}
        refused = [
            one.event
            for one in lab.controller.journal.entries()
            if isinstance(one.event, StartRefused)
        ]
        assert not refused, refused
        lab.controller.journal.close()


def check(lab: Lab, executor: GpuExecutor) -> None:
    """What a round would be given is all there."""
    controller = lab.controller
    controller.observe()
    now_s = controller.clock.now_s()
    view = present(
        controller.state, controller.cluster, controller.tenants, controller.statuses, {}, now_s
    )
    room = RoomNow(snapshot(controller))
    for node in view.instance.cluster.nodes:
        places = [*(entry.placement for entry in view.instance.running), *view.blocked]
        used = sum(slot.gpus for place in places for slot in place if slot.node == node.name)
        assert 0 <= used <= node.gpus
        if any(status.usable and status.node == node for status in controller.statuses):
            assert room._room.gpus_on(node.name) == node.gpus - used
        if not executor.late:  # what each attempt holds is known
            busy = {
                gpu
                for key, ids in executor.given.items()
                if executor.processes[key].ended_s is None
                for gpu in ids.get(node.name, ())
            }
            assert node.gpus - used <= len({*IDS[node.name]} - executor.out - busy)


def test_a_claim_is_not_started_on_what_is_out_by_then(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    lab.executor = executor = GpuExecutor(lab.executor.nodes, lab.clock)
    lab.crash()
    lab.submit("wide", 4, 10.0)
    controller = lab.controller
    claim = Claim(job="wide", mode=Mode(gpus=4, gpu_type="a"), placement=(Slot(node="n0", gpus=4),))
    controller.record(RoundDecided(round=1, claims=(claim,), stay=()))
    for out, count in ((frozenset({"n0-2"}), 0), (frozenset({"n1-0"}), 1), (frozenset(), 1)):
        executor.out = out
        controller.observe()
        found = launchable(
            controller.state,
            controller.cluster,
            controller.tenants,
            controller.statuses,
            {},
            controller.clock.now_s(),
        )
        assert len(found) == count
