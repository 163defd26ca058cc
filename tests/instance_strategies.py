"""Hypothesis strategies for instances: any shape a file may have, all of them sound."""

from dataclasses import replace
from typing import Literal

from hypothesis import strategies as st

from optsched import (
    Clock,
    Cluster,
    Elastic,
    Instance,
    Job,
    Locality,
    Mode,
    Node,
    Profile,
    Running,
    Sharing,
    Slot,
    Suspended,
    Tenant,
)
from optsched.model.quantity import is_zero_or_counts
from optsched.physics import held_resources

TYPES = ("a100", "v100")
NAMES = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="[]"), min_size=1, max_size=6
)


def amounts(most: float, least: float = 0.0) -> st.SearchStrategy[float]:
    """Floats as people and programs write them: round, short, or with all digits."""
    return st.one_of(
        st.integers(int(least) + (least > int(least)), int(most)).map(float),
        st.decimals(min_value=str(least), max_value=str(most), places=3).map(float),
        st.floats(least, most, allow_subnormal=False).filter(is_zero_or_counts),
    )


def maybe(strategy: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    return st.one_of(st.none(), strategy)


SECONDS = amounts(1e6)
RATES = amounts(2.0, 0.01)


@st.composite
def profiles(draw: st.DrawFn) -> Profile:
    """Profiles with any of their fields; both GPU types have a rate, so that every job runs
    somewhere."""
    steps = sorted(draw(st.lists(RATES, min_size=3, max_size=3)), reverse=True)
    return Profile(
        name=draw(maybe(NAMES)),
        rate=draw(st.one_of(st.just({}), st.fixed_dictionaries({name: RATES for name in TYPES}))),
        gpus=draw(st.dictionaries(st.integers(1, 16), RATES, max_size=3)),
        cpus_per_gpu=draw(st.dictionaries(st.integers(1, 2), RATES, max_size=2)),
        locality=draw(
            st.sampled_from(
                [
                    None,
                    Locality(node=steps[0]),
                    Locality(node=steps[0], rack=steps[1], cluster=steps[2]),
                ]
            )
        ),
        sharing=draw(
            maybe(
                st.builds(
                    Sharing,
                    duty=maybe(amounts(1.0, 0.01)),
                    partners=st.dictionaries(NAMES, RATES, max_size=2),
                )
            )
        ),
        gpu_memory_gib=draw(amounts(16.0, 9.0)),
        memory_gib_per_gpu=draw(amounts(8.0, 5.0)),
        memory_rates=draw(st.dictionaries(amounts(4.5, 0.5), RATES, max_size=2)),
        gpu_memory_rates=draw(st.dictionaries(amounts(8.5, 0.5), amounts(1.0, 0.01), max_size=2)),
        network_gbps=draw(amounts(100.0)),
        network_duty=draw(amounts(1.0, 0.01)),
        memory_gbps=draw(amounts(100.0)),
        memory_duty=draw(amounts(1.0, 0.01)),
        checkpoint_s=draw(SECONDS),
        restore_s=draw(SECONDS),
        startup_s=draw(SECONDS),
        model_gib=2.5,
        fetch_s=draw(SECONDS),
        checkpoint_every_s=draw(maybe(SECONDS)),
        power_w=draw(st.dictionaries(st.sampled_from(TYPES), amounts(1000.0), max_size=2)),
        clocks=draw(
            st.dictionaries(
                st.integers(1, 3000), st.builds(Clock, rate=RATES, power=RATES), max_size=2
            )
        ),
    )


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    """One to six nodes that each have room for the largest demand of `profiles`."""
    names = draw(
        st.lists(
            st.one_of(
                NAMES,
                st.integers(0, 120).map(lambda n: f"n{n}"),
                st.integers(0, 12).map(lambda n: f"gpu-{n:03d}"),
            ),
            min_size=1,
            max_size=6,
            unique=True,
        )
    )
    kinds = [
        Node(
            name="",
            gpus=draw(st.integers(2, 4)),
            gpu_type=draw(st.sampled_from(TYPES)),
            cpus=draw(st.sampled_from([None, 32])),
            memory_gib=draw(st.sampled_from([None, 64.0])),
            gpu_memory_gib=draw(st.sampled_from([None, 16.0, 40.5])),
            rack=draw(maybe(NAMES)),
            gpu_price_per_h=draw(amounts(5.0)),
            memory_gbps=draw(maybe(amounts(200.0, 0.5))),
            model_cache_gib=draw(maybe(amounts(80.0))),
        )
        for _ in range(2)
    ]
    nodes = tuple(replace(draw(st.sampled_from(kinds)), name=name) for name in names)
    racks = [rack for rack in dict.fromkeys(node.rack for node in nodes) if rack is not None]
    uplinks: Literal["reserved", "shared"] = draw(st.sampled_from(["reserved", "shared"]))
    resources = {"licence": 4.0}
    if draw(st.booleans()):
        resources["power_w"] = draw(amounts(9000.0, 2000.0))
    return Cluster(
        nodes=nodes,
        resources=resources,
        budgets=draw(st.sampled_from([{}, {"energy kWh": 1e4}])),
        uplinks=uplinks,
        rack_uplink_gbps={
            rack: draw(amounts(200.0, 0.001 if uplinks == "shared" else 0.0))
            for rack in racks
            if draw(st.booleans())
        },
        reference_gpu=draw(maybe(st.sampled_from(TYPES))),
    )


@st.composite
def jobs(
    draw: st.DrawFn, name: str, earlier: tuple[str, ...], kinds: list[Profile], cluster: Cluster
) -> Job:
    shape = draw(st.sampled_from(["gang", "gang", "elastic", "cpu", "token", "modes"]))
    fields: dict[str, object] = {
        "gang": {"gpus": draw(st.integers(1, 2)), "duration_s": draw(amounts(1e6, 0.001))},
        "elastic": {
            "gpus": Elastic(min=1, max=draw(st.integers(1, 16))),
            "duration_s": draw(amounts(1e6, 0.001)),
        },
        "cpu": {
            "gpus": 0,
            "cpus": draw(st.integers(0, 8)),
            "memory_gib": draw(amounts(32.0)),
            "duration_s": draw(amounts(1e6, 0.001)),
        },
        "token": {"gpus": 0, "duration_s": 1.5, "resources": {"licence": draw(amounts(4.0))}},
        "modes": {
            "modes": tuple(
                Mode(
                    duration_s=draw(amounts(1e6, 0.001)),
                    gpus=gpus,
                    budgets={name: 2.5 for name in cluster.budgets},
                )
                for gpus in draw(st.lists(st.integers(0, 2), min_size=1, max_size=3))
            )
        },
    }[shape]
    profile = draw(st.sampled_from(kinds))
    return Job(
        id=name,
        submit_s=draw(st.one_of(SECONDS, st.just(1.5e9 + 0.25))),
        weight=draw(amounts(100.0)),
        tenant=draw(st.sampled_from([None, "blue"])),
        priority=draw(st.integers(-5, 5)),
        deadline_s=draw(maybe(SECONDS)),
        preemptible=draw(st.booleans()),
        min_run_s=draw(SECONDS),
        max_preemptions=draw(maybe(st.integers(0, 5))),
        after=tuple(draw(st.lists(st.sampled_from(earlier), max_size=2, unique=True)))
        if earlier
        else (),
        profile=profile,
        **fields,  # type: ignore[arg-type]
    )


@st.composite
def instances(draw: st.DrawFn) -> Instance:
    """Sound instances with up to six jobs, the first of which may be running and the second
    suspended."""
    cluster = draw(clusters())
    kinds = draw(st.lists(profiles(), min_size=1, max_size=2))
    names = draw(st.lists(NAMES, max_size=6, unique=True))
    found: list[Job] = []
    now_s = draw(st.sampled_from([0.0, 1.6e9]))
    running: tuple[Running, ...] = ()
    suspended: tuple[Suspended, ...] = ()
    for i, name in enumerate(names):
        if i < 2 and draw(st.booleans()):
            job = Job(
                id=name,
                gpus=1,
                duration_s=10.0,
                tenant="blue",
                profile=draw(st.sampled_from(kinds)),
            )
            if i == 0:
                node = draw(st.sampled_from(cluster.nodes))
                cores = min(job.profile.cpus_per_gpu, default=0)
                mode = Mode(
                    gpus=1,
                    cpus_per_gpu=cores,
                    clock_mhz=draw(st.sampled_from([None, *job.profile.clocks])),
                    memory_gib_per_gpu=draw(st.sampled_from([None, *job.profile.memory_rates])),
                    gpu_memory_gib=draw(st.sampled_from([None, *job.profile.gpu_memory_rates])),
                )
                mode = replace(mode, resources=held_resources(cluster, job, mode, node.gpu_type))
                running = (
                    Running(
                        job=name,
                        mode=mode,
                        placement=(Slot(node=node.name, gpus=1, cpus=cores),),
                        started_s=now_s - 5.5,
                        remaining_s=draw(amounts(10.0, 0.5)),
                        setup_s=0.25,
                    ),
                )
            else:
                suspended = (
                    Suspended(job=name, remaining_s=draw(amounts(10.0, 0.5)), preemptions=2),
                )
        else:
            job = draw(jobs(name, tuple(names[:i]), kinds, cluster))
        found.append(job)
    quota = draw(maybe(st.integers(2, 9)))
    blue = Tenant(
        name="blue",
        gpu_quota=quota,
        borrow_gpus=draw(st.integers(0, 3)) if quota else 0,
        weight=draw(amounts(3.0)),
    )
    red = Tenant(
        name="red",
        parent=draw(st.sampled_from([None, "blue"])),
        gpu_quota=draw(maybe(st.integers(0, 9))),
    )
    return Instance(
        name=draw(st.text(st.characters(exclude_categories=["Cs"]), max_size=5)),
        now_s=now_s,
        cluster=cluster,
        tenants=(blue, red),
        jobs=tuple(found),
        running=running,
        suspended=suspended,
    )
