"""The policy and the solver are found by name, take their options, and make plans that hold."""

import pytest
from optsched_examples.random_restarts import RandomRestarts
from optsched_examples.widest_first import WidestFirst

from optsched import Cluster, Instance, Job, Node
from optsched.engine import solve
from optsched.errors import InputError
from optsched.plugins import registry
from optsched.plugins.options import described
from optsched.simulate.run import simulate

INSTANCE = Instance(
    cluster=Cluster(nodes=(Node(name="n", gpus=4),)),
    jobs=tuple(
        Job(id=name, gpus=gpus, duration_s=seconds)
        for name, gpus, seconds in (("a", 1, 30.0), ("b", 4, 10.0), ("c", 2, 20.0), ("d", 3, 10.0))
    ),
)


def starts(**options: object) -> list[str]:
    plan = simulate(INSTANCE, registry.policy("widest-first", options=options))
    return [job.id for job in sorted(plan.jobs, key=lambda job: (job.segments[0].start_s, job.id))]


def test_the_policy_and_its_option() -> None:
    assert starts() == ["b", "a", "d", "c"]  # a fits beside d
    assert starts(alike="1") == ["a", "c", "d", "b"]
    assert isinstance(registry.policy("widest-first"), WidestFirst)
    with pytest.raises(InputError, match="option alike of policy widest-first: '0'; expected a"):
        registry.policy("widest-first", options={"alike": "0"})


def test_the_solver_and_its_option() -> None:
    found = solve(INSTANCE, solver="random-restarts", options={"restarts": "20"}, time_limit_s=10)
    assert found.plan is not None and not found.fallback
    [option] = described(RandomRestarts.Options)
    assert (option.name, option.default) == ("restarts", "100")
    with pytest.raises(InputError, match=r"has no option restart; it has restarts \(did you mean"):
        solve(INSTANCE, solver="random-restarts", options={"restart": "20"})


def test_they_are_listed() -> None:
    assert "widest-first" in registry.names("policies")
    listed = {one.name: one for one in registry.listed("executors")}
    assert listed["pbs"].title == "Jobs of PBS, one on each node"
    assert "queue" in {option.name for option in listed["pbs"].options}
