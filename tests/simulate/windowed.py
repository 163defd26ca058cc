"""Random instances with windows in which nodes are not there, or only for some."""

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from optsched import Instance
from optsched.model.cluster import Window

from .random_instances import instances


@st.composite
def windowed(draw: Any, base: st.SearchStrategy[Instance] | None = None) -> Instance:
    """Return an instance with one to three windows, some of them for the user of some jobs."""
    instance = draw(instances() if base is None else base)
    names = [node.name for node in instance.cluster.nodes]
    windows = []
    for i in range(draw(st.integers(1, 3))):
        from_s = instance.now_s + draw(st.sampled_from([-2.0, 0.0, 3.0, 7.5, 20.0, 60.0]))
        windows.append(
            Window(
                nodes=tuple(draw(st.lists(st.sampled_from(names), min_size=1, unique=True))),
                from_s=from_s,
                to_s=from_s + draw(st.sampled_from([4.0, 11.0, 50.0])),
                name=f"window {i}",
                users=draw(st.sampled_from([(), (), ("keeper",)])),
                resources={
                    name: amount * draw(st.sampled_from([0.0, 0.4, 1.0]))
                    for name, amount in instance.cluster.resources.items()
                    if draw(st.integers(0, 2)) == 0
                },
                quotas={
                    tenant.name: draw(st.integers(0, tenant.gpu_quota))
                    for tenant in instance.tenants
                    if tenant.gpu_quota is not None and draw(st.integers(0, 2)) == 0
                },
            )
        )
    keepers = draw(st.sets(st.sampled_from([job.id for job in instance.jobs])))
    jobs = tuple(replace(job, user="keeper") if job.id in keepers else job for job in instance.jobs)
    return replace(instance, cluster=replace(instance.cluster, windows=tuple(windows)), jobs=jobs)
