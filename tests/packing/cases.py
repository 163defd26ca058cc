"""Small clusters and jobs for the tests of packing."""

from hypothesis import strategies as st

from optsched.model.cluster import Cluster, Node
from optsched.model.instance import Instance
from optsched.model.job import Job
from optsched.model.profile import Profile, Sharing
from optsched.packing.problem import WHOLE


def job(
    id_: str,
    gpus: int = 1,
    part: float | None = None,
    cpus: int = 0,
    gib: float = 0.0,
    types: str = "",
) -> Job:
    """A job that asks for so many GPUs (or a part of one), cores for each GPU, and GiB in all."""
    if not gpus:
        return Job(id=id_, gpus=0, cpus=cpus, memory_gib=gib, duration_s=1)
    return Job(
        id=id_,
        gpus=gpus,
        duration_s=1,
        profile=Profile(
            rate=dict.fromkeys(types.split(), 1.0),
            cpus_per_gpu={cpus: 1.0} if cpus else {},
            memory_gib_per_gpu=gib / gpus,
            sharing=None if part is None else Sharing(duty=part),
        ),
    )


def instance(nodes: list[Node], jobs: list[Job]) -> Instance:
    return Instance(name="small", cluster=Cluster(nodes=tuple(nodes)), jobs=tuple(jobs))


def node(
    name: str,
    gpus: int,
    cpus: int | None = None,
    gib: float | None = None,
    type_: str | None = None,
) -> Node:
    return Node(name=name, gpus=gpus, cpus=cpus, memory_gib=gib, gpu_type=type_)


@st.composite
def instances(draw: st.DrawFn, most_jobs: int = 6) -> Instance:
    """One to three nodes of up to 3 GPUs, and jobs of all sorts; the first asks for a GPU."""
    nodes = [
        node(
            f"n{i}",
            draw(st.integers(0 if i else 1, 3)),
            draw(st.sampled_from([None, 4, 8])),
            draw(st.sampled_from([None, 8.0])),
            draw(st.sampled_from(["a", "b"])),
        )
        for i in range(draw(st.integers(1, 3)))
    ]
    jobs = [job("j0", 1)]
    for i in range(1, draw(st.integers(1, most_jobs))):
        gpus = draw(st.integers(0, 3))
        part = draw(st.sampled_from([None, 0.19, 0.3, 0.47, 0.5, 0.81])) if gpus == 1 else None
        jobs.append(
            job(
                f"j{i}",
                gpus,
                part,
                draw(st.sampled_from([0, 1, 2, 4])) if gpus else draw(st.integers(1, 4)),
                draw(st.sampled_from([0.0, 2.0, 4.0])),
                draw(st.sampled_from(["", "a", "a b"])) if gpus else "",
            )
        )
    return instance(nodes, jobs)


def most_units(found: Instance) -> int:
    """The most millionths of GPUs that any choice of jobs and places allocates, by trying all."""
    nodes = found.cluster.nodes
    jobs = list(found.jobs)

    def best(
        i: int, left: tuple[tuple[int, ...], ...], cpus: tuple[float, ...], gib: tuple[float, ...]
    ) -> int:
        if i == len(jobs):
            return 0
        one, most = jobs[i], best(i + 1, left, cpus, gib)
        gpus = one.gpus
        assert isinstance(gpus, int)
        duty = one.profile.sharing.duty if one.profile.sharing else None
        each = WHOLE if duty is None else round(duty * WHOLE)
        own_cpus = max(one.profile.cpus_per_gpu, default=0) * gpus if gpus else one.cpus
        own_gib = one.profile.memory_gib_per_gpu * gpus if gpus else one.memory_gib
        for n, where in enumerate(nodes):
            types = one.profile.rate
            if (
                own_cpus > cpus[n]
                or own_gib > gib[n]
                or (gpus and types and where.gpu_type not in types)
            ):
                continue
            able = [gpu for gpu, rest in enumerate(left[n]) if rest >= each]
            if len(able) < gpus:
                continue
            choices = [able[:gpus]] if each == WHOLE or not gpus else [[gpu] for gpu in able]
            for choice in choices:
                after = tuple(
                    rest - each if gpu in choice else rest for gpu, rest in enumerate(left[n])
                )
                most = max(
                    most,
                    gpus * each
                    + best(
                        i + 1,
                        (*left[:n], after, *left[n + 1 :]),
                        (*cpus[:n], cpus[n] - own_cpus, *cpus[n + 1 :]),
                        (*gib[:n], gib[n] - own_gib, *gib[n + 1 :]),
                    ),
                )
        return most

    return best(
        0,
        tuple((WHOLE,) * one.gpus for one in nodes),
        tuple(float("inf") if one.cpus is None else float(one.cpus) for one in nodes),
        tuple(float("inf") if one.memory_gib is None else one.memory_gib for one in nodes),
    )
