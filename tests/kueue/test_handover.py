"""Passes over Kueue in memory: who is admitted is who the round says, with few writes."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optsched.errors import InputError

from .memory import Memory
from .objects import NOW_S, admitted, cluster_queue, workload


def test_the_short_one_comes_first() -> None:
    """Smith's rule on 8 GPUs: 10 minutes, then an hour, though that came before. Kueue by itself
    does the reverse."""

    def both() -> Memory:
        return Memory(
            workload("hour", 8, created_s=NOW_S - 60, duration="1h"),
            workload("minutes", 8, duration="10m"),
        )

    assert both().kueue_schedules() == ["hour"]
    memory = both()
    found = memory.hand_over()
    assert memory.why(found) == {"minutes": "is to be admitted now", "hour": "waits"}
    assert memory.kueue_schedules() == ["minutes"]


@pytest.mark.parametrize("policy", ["LowerPriority", "LowerOrNewerEqualPriority"])
def test_what_is_in_order_needs_no_write(policy: str) -> None:
    """Those that are best are also the first; but where equals are preempted, who runs must be
    above who waits: one write for each of the two that run and the two that are next, at the
    most."""
    jobs = [workload(f"w{i}", 4, created_s=NOW_S - 100 + i, duration=f"{i + 1}h") for i in range(6)]
    queue = cluster_queue("main", {"a100": 8})
    queue["spec"]["preemption"]["withinClusterQueue"] = policy
    memory = Memory(*jobs, queues=[queue])
    for _ in range(3):
        memory.hand_over()
        assert memory.kueue_schedules() == ["w0", "w1"]
    assert len(memory.written) <= (0 if policy == "LowerPriority" else 2)


def test_equals_that_may_be_preempted_are_put_below() -> None:
    queue = cluster_queue("main", {"a100": 8})
    queue["spec"]["preemption"]["withinClusterQueue"] = "LowerOrNewerEqualPriority"
    memory = Memory(
        admitted(workload("runs", 8, duration="1h"), NOW_S - 60),
        workload("waits", 8, created_s=NOW_S - 3600, duration="2h"),
        queues=[queue],
    )
    places = [one.workload.priority + one.boost for one in memory.hand_over().order]
    assert places[0] > places[1]


def test_a_running_one_gives_way_where_it_pays() -> None:
    """Preempting r for w pays where rem_r > lost_r + rem_w, and lost_r again: ten hours and a
    minute since it saved, against five minutes."""
    long = admitted(
        workload("long", 8, created_s=NOW_S - 4000, duration="11h", checkpoint_every="59m"),
        NOW_S - 3600,
    )
    memory = Memory(long, workload("short", 8, created_s=NOW_S, duration="5m"))
    found = memory.hand_over()
    assert memory.why(found) == {"short": "is to be admitted now", "long": "gives way"}
    assert memory.kueue_schedules() == ["short"]


def test_a_running_one_stays_where_it_does_not_pay() -> None:
    """The same, but what it has done would be lost: one hour, and two more to go, against 90
    minutes."""
    long = admitted(workload("long", 8, created_s=NOW_S - 4000, duration="3h"), NOW_S - 3600)
    memory = Memory(long, workload("short", 8, created_s=NOW_S, duration="90m"))
    found = memory.hand_over()
    assert memory.why(found) == {"long": "goes on", "short": "waits"}
    assert memory.kueue_schedules() == ["long"]
    assert len(memory.written) <= 1


def test_nobody_else_gives_way_while_the_first_is_being_evicted() -> None:
    """Two that are alike run, one gives way for a short one; as long as it takes to save, the other
    stays."""
    memory = Memory(
        *(
            admitted(workload(name, 4, duration="100h", checkpoint_every="1m"), NOW_S - 3600)
            for name in ("a", "b")
        ),
        workload("short", 4, duration="5m"),
    )
    why = memory.why(memory.hand_over())
    [victim] = [name for name, one in why.items() if one == "gives way"]
    memory.workloads[victim]["status"]["conditions"].append({"type": "Evicted", "status": "True"})
    memory.written.clear()
    found = memory.hand_over()
    other = "b" if victim == "a" else "a"
    assert memory.why(found) == {other: "goes on", "short": "is to be admitted now"}
    assert found.left_out == {f"team/{victim}": "is being evicted"} and memory.written == []


def test_a_queue_that_does_not_preempt() -> None:
    long = admitted(workload("long", 8, duration="100h", checkpoint_every="1m"), NOW_S - 3600)
    memory = Memory(
        long,
        workload("short", 8, duration="1m"),
        queues=[cluster_queue("main", {"a100": 8}, preempts=False)],
    )
    assert memory.why(memory.hand_over()) == {"long": "goes on", "short": "waits"}


def test_nobody_gives_way_to_another_queue() -> None:
    """Kueue preempts across queues by rules of its own: what a round would gain so is left."""
    queues = [cluster_queue(name, {"a100": 4}, cohortName="lab") for name in ("main", "other")]
    long = admitted(workload("long", 8, duration="100h", checkpoint_every="1m"), NOW_S - 3600)
    memory = Memory(long, workload("short", 4, queue="other", duration="1m"), queues=queues)
    assert memory.why(memory.hand_over())["long"] == "goes on"


def test_what_is_not_to_be_preempted_is_not() -> None:
    """One gives way, the other stays, although Kueue would take the newer one."""
    stays = admitted(workload("stays", 4, duration="30m"), NOW_S - 1200)
    goes = admitted(workload("goes", 4, duration="50h", checkpoint_every="1m"), NOW_S - 3600)
    memory = Memory(stays, goes, workload("short", 4, created_s=NOW_S, duration="2m"))
    memory.hand_over()
    assert memory.kueue_schedules() == ["short", "stays"]


def test_weight_moves_the_order() -> None:
    """At step 4 a priority higher is worth four times the time: 3 h before 1 h, 5 h after it."""
    for hours, first in ((3, "important"), (5, "plain")):
        memory = Memory(
            workload("plain", 8, duration="1h"),
            workload("important", 8, priority=10, duration=f"{hours}h"),
            kueue={"step": 4},
        )
        memory.hand_over()
        assert memory.kueue_schedules() == [first]


def test_priorities_are_strict() -> None:
    """However long it is, and whatever weighs against it: a higher priority goes first."""
    memory = Memory(
        workload("plain", 8, duration="1m"), workload("important", 8, priority=10, duration="100h")
    )
    found = memory.hand_over()
    assert memory.why(found) == {"important": "is to be admitted now", "plain": "waits"}
    assert memory.kueue_schedules() == ["important"]


@pytest.mark.parametrize(
    ("preempts", "holds"), [("any", "important"), ("lower", "important"), ("never", "runs")]
)
def test_a_higher_priority_takes_the_place_of_lower_ones_as_its_tier_says(
    preempts: str, holds: str
) -> None:
    """Two minutes are left of what runs, which saves: by worth alone it would stay."""
    runs = admitted(workload("runs", 8, duration="1h", checkpoint_every="1m"), NOW_S - 3480)
    memory = Memory(
        runs,
        workload("important", 8, priority=10_000, duration="100h"),
        tiers=[{"name": "urgent", "priority": 10_000, "preempts": preempts}],
    )
    found = memory.hand_over()
    assert memory.kueue_schedules() == [holds]
    whys = [entry.why for entry in found.order if entry.workload.name == "runs"]
    gives_way = "gives way: what starts in its place is of a higher priority"
    assert whys == ["goes on" if holds == "runs" else gives_way]


@pytest.mark.slow
@settings(max_examples=300)
@given(
    st.lists(
        st.tuples(
            st.integers(1, 8),  # GPUs
            st.sampled_from((-500_000, -5, 0, 7, 400_000)),
            st.integers(1, 300),  # minutes
            st.booleans(),  # saves
            st.integers(0, 600),  # has run for so many minutes, 0: waits
        ),
        min_size=1,
        max_size=12,
    )
)
def test_no_priority_is_inverted(jobs: list[tuple[int, int, int, bool, int]]) -> None:
    """No Workload waits while another of a lower priority, which would save, holds what it
    needs."""
    free, workloads = 8, []
    for i, (gpus, priority, minutes, saves, ran) in enumerate(jobs):
        made = workload(
            f"w{i}",
            gpus,
            created_s=NOW_S - 60 * ran - i,
            priority=priority,
            duration=f"{minutes}m",
            checkpoint_every="1m" if saves else None,
        )
        if ran and gpus <= free:
            free -= gpus
            made = admitted(made, NOW_S - 60 * ran)
        workloads.append(made)
    memory = Memory(*workloads)
    found = memory.hand_over()
    stays = {entry.workload.name for entry in found.order if entry.tier == 0}
    for _ in range(2):  # it evicts, then it admits
        holders = memory.kueue_schedules()
    assert stays <= {*holders}
    of = {f"w{i}": job for i, job in enumerate(jobs)}
    free = 8 - sum(of[name][0] for name in holders)
    for name, (gpus, priority, *_) in of.items():
        below = [of[own] for own in holders if of[own][1] < priority and of[own][3]]
        room = free + sum(own[0] for own in below if own[4])
        assert name in holders or gpus > room, name


def test_a_hundred_passes_with_kueue_in_between() -> None:
    """Jobs come, run and finish; whoever the round wants is who holds quota, nobody is preempted
    twice in a row, and few annotations are written."""
    memory = Memory()
    finished: list[str] = []
    came = 0
    for turn in range(100):
        if turn < 60:
            name = f"w{turn}"
            hours = 1 + turn * 7 % 5
            memory.workloads[name] = workload(
                name,
                (1, 2, 4, 8)[turn % 4],
                created_s=memory.now_s,
                duration=f"{hours * 10}m",
                checkpoint_every="1m",
            )
            came += 1
        found = memory.hand_over()
        wanted = {one.workload.name for one in found.order if one.tier < 2}
        assert set(memory.kueue_schedules()) >= wanted
        memory.now_s += 300
        for name in memory.holders():
            one = memory.workloads[name]
            ran_s = one.setdefault("ran_s", 0) + 300
            one["ran_s"] = ran_s
            if ran_s >= 60 * int(
                one["spec"]["podSets"][0]["template"]["metadata"]["annotations"][
                    "optsched.io/duration"
                ].removesuffix("m")
            ):
                del memory.workloads[name]
                finished.append(name)
    assert len(finished) > 30
    assert len(memory.written) < 3 * came


def test_nothing_to_decide() -> None:
    found = Memory().hand_over()
    assert (found.order, found.round, found.left_out) == ((), None, {})


def test_too_large_for_its_quota() -> None:
    memory = Memory(workload("huge", 9), workload("one", 1))
    found = memory.hand_over()
    assert list(found.left_out) == ["team/huge"] and "quota" in found.left_out["team/huge"]
    assert memory.kueue_schedules() == ["one"]


def test_an_unknown_queue() -> None:
    with pytest.raises(InputError, match="there is no ClusterQueue 'mian'; there are main"):
        Memory(kueue={"queues": ["mian"]}).decide()


def test_boosts_of_others_are_undone_where_they_are_in_the_way() -> None:
    memory = Memory(
        workload("hour", 8, duration="1h", annotations={"kueue.x-k8s.io/priority-boost": "500"}),
        workload("minutes", 8, duration="10m"),
    )
    memory.hand_over()
    assert memory.kueue_schedules() == ["minutes"]


@settings(max_examples=40)
@given(
    st.lists(
        st.tuples(
            st.integers(1, 8),
            st.integers(1, 600),
            st.booleans(),
            st.sampled_from([0, 10]),
            st.integers(-3, 3),
            st.sampled_from([None, "1m"]),
        ),
        max_size=8,
    )
)
def test_whoever_is_there(jobs: list[tuple[int, int, bool, int, int, str | None]]) -> None:
    """After any pass Kueue's scheduler keeps who is to go on, admits who is to start, and preempts
    nobody but those who give way; and the next pass, nothing having happened, writes nothing."""
    free, found = 8, []
    for i, (gpus, minutes, runs, priority, boost, every) in enumerate(jobs):
        one = workload(
            f"w{i}",
            gpus,
            created_s=NOW_S - 50 + 7 * i % 40,
            priority=priority,
            duration=f"{minutes}m",
            checkpoint_every=every,
            annotations={"kueue.x-k8s.io/priority-boost": str(boost)},
        )
        if runs and gpus <= free:
            free -= gpus
            one = admitted(one, NOW_S - 60 * i)
        found.append(one)
    memory = Memory(*found)
    before = set(memory.holders())
    decided = memory.hand_over()
    wanted = {one.workload.name for one in decided.order if one.tier < 2}
    leave = {one.workload.name for one in decided.order if one.why.startswith("gives way")}
    assert sum(one.gpus for one in decided.order if one.tier < 2) <= 8
    written = len(memory.written)
    memory.decide()
    memory.hand_over()
    assert len(memory.written) == written
    after = set(memory.kueue_schedules())
    assert after >= wanted and before - after <= leave
