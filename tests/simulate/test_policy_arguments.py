"""Policies that are given the objective and options, by name, as a solver, and through the
engine."""

from dataclasses import dataclass
from importlib.metadata import EntryPoint
from typing import Annotated, Any

import pytest

from optsched import Instance, Job, engine
from optsched.driver.world import World
from optsched.errors import InputError
from optsched.model.plan import Plan
from optsched.objectives import Objective, parse
from optsched.plugins import registry
from optsched.plugins.options import PluginOptions, read_options
from optsched.plugins.solver import Report, Request, ignore
from optsched.round.decide import decide
from optsched.simulate.policy_solver import PolicySolver
from tests.clusters import one_node

WCT = parse("wct")
INSTANCE = Instance(
    cluster=one_node(gpus=1), jobs=(Job(id="a", duration_s=1.0), Job(id="b", duration_s=2.0))
)
MADE: list[Any] = []


class Plain:
    """Takes nothing."""

    name = title = "plain"

    def __init__(self) -> None:
        MADE.append(self)

    def decide(self, world: World) -> None:
        for job_id in list(world.waiting):
            if (found := world.fit(job_id)) is not None:
                world.start(job_id, *found)


class Judged(Plain):
    """Takes the objective and an option."""

    name = title = "judged"

    @dataclass(frozen=True, kw_only=True)
    class Options(PluginOptions):
        depth: Annotated[int, "How deep."] = 1

    def __init__(self, options: Options, objective: Objective | None = None) -> None:
        super().__init__()
        self.objective, self.options = objective, options


class Unready:
    """Cannot be made here."""

    name = title = "unready"

    def __init__(self) -> None:
        raise ValueError("no luck")


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    MADE.clear()
    entries = {
        kind.name: EntryPoint(kind.name, f"{__name__}:{kind.__name__}", "optsched.policies")
        for kind in (Plain, Judged, Unready)
    }
    real = registry.entries
    monkeypatch.setattr(
        registry,
        "entries",
        lambda group: {**real(group), **entries} if group == "policies" else real(group),
    )


def test_a_policy_is_given_what_its_constructor_takes() -> None:
    found = registry.policy("judged", WCT, {"depth": "3"})
    assert isinstance(found, Judged) and (found.objective, found.options.depth) == (WCT, 3)
    found = registry.policy("judged")
    assert isinstance(found, Judged) and (found.objective, found.options.depth) == (None, 1)
    assert isinstance(registry.policy("plain", WCT, {}), Plain)
    assert registry.policy("srtf", WCT).name == "srtf"


def test_options_that_nobody_takes_are_refused() -> None:
    for name in ("plain", "fifo"):
        with pytest.raises(
            InputError, match=f"policy {name} takes no options; leave out depth, width"
        ):
            registry.policy(name, WCT, {"depth": "3", "width": "1"})
    with pytest.raises(InputError, match="policy judged has no option width; it has depth"):
        registry.policy("judged", WCT, {"width": "1"})


def solved(name: str, options: dict[str, str]) -> tuple[list[Plan], list[str]]:
    plans: list[Plan] = []
    notes: list[str] = []
    report = Report(plan=plans.append, bound=ignore, infeasible=ignore, note=notes.append)
    request = Request(
        instance=INSTANCE,
        objective=parse("makespan"),
        time_limit_s=1.0,
        options=read_options(f"policy {name}", PolicySolver(name).Options, options),
    )
    solver = PolicySolver(name)
    assert solver.supports(INSTANCE, request.objective) is None
    solver.solve(request, report)
    return plans, notes


def test_the_solver_of_a_policy_hands_them_over() -> None:
    plans, notes = solved("judged", {"depth": "2"})
    assert len(plans) == 1 and not notes
    assert (MADE[-1].objective.name, MADE[-1].options.depth) == ("makespan", 2)
    with pytest.raises(InputError, match="takes no options"):
        solved("plain", {"depth": "2"})


def test_the_engine_hands_them_to_the_policy_that_is_the_solver() -> None:
    found = engine.solve(
        INSTANCE, "makespan", solver="judged", options={"depth": "2"}, time_limit_s=5
    )
    assert (found.solver, found.value) == ("judged", 3.0)
    assert (MADE[-1].objective.name, MADE[-1].options.depth) == ("makespan", 2)
    MADE.clear()
    for name, message in (("plain", "takes no options"), ("judged", "no option width")):
        with pytest.raises(InputError, match=message):
            engine.solve(INSTANCE, solver=name, options={"width": "1"}, time_limit_s=5)


def test_the_options_of_an_exact_solver_are_not_for_policies(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(engine, "HEURISTICS", ("judged", "plain"))

    class Silent:
        name, title, needs, guarantee = "silent", "finds nothing", (), "none"

        def supports(self, instance: Instance, objective: Objective) -> str | None:
            return None

        @dataclass(frozen=True, kw_only=True)
        class Options(PluginOptions):
            width: Annotated[int, "How wide."] = 0

        def solve(self, request: Request, report: Report) -> None:
            assert request.options.width == 1

    found = engine.solve(
        INSTANCE, solver=Silent(), options={"width": "1"}, time_limit_s=5, isolate=False
    )
    assert found.plan is not None and not found.fallback
    assert (
        [type(one) for one in MADE] == [Judged, Plain]
        and MADE[0].objective == WCT
        and MADE[0].options == Judged.Options()
    )
    MADE.clear()
    with pytest.raises(InputError, match="solver silent has no option depth; it has width"):
        engine.solve(INSTANCE, solver=Silent(), options={"depth": "1"}, isolate=False)
    assert not MADE, "no heuristic runs before options are known to be right"


@pytest.mark.parametrize("name", ("auto", *registry.names("solvers"), *registry.names("policies")))
def test_no_solver_and_no_policy_takes_an_option_that_it_does_not_have(name: str) -> None:
    with pytest.raises(InputError, match=r"nonsense; it has|takes no options; leave out"):
        engine.solve(INSTANCE, solver=name, options={"nonsense": "1"}, isolate=False)


@pytest.mark.parametrize("name", registry.names("rounds"))
def test_no_round_solver_takes_an_option_that_it_does_not_have(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("optsched.round.decide.build", None)  # nothing is begun
    with pytest.raises(
        InputError, match=r"has no option nonsense; it has|takes no options; leave out nonsense"
    ):
        decide(INSTANCE, solver=name, options={"nonsense": "1"})


def test_values_of_options_are_checked_before_any_work() -> None:
    for options, message in (
        ({"backend": "no"}, "PuLP has no 'no'"),
        ({"max_variables": "-1"}, "whole number of at least 1"),
    ):
        with pytest.raises(InputError, match=message):
            engine.solve(INSTANCE, solver="milp", options=options)
    with pytest.raises(InputError, match="did you mean auto"):
        engine.solve(INSTANCE, solver="autto")
    with pytest.raises(InputError, match="round solver 'no' is unknown; choose from"):
        engine.solve(INSTANCE, solver="optsched", options={"solver": "no"})


def test_a_policy_that_cannot_be_made_is_noted() -> None:
    found = engine.solve(INSTANCE, solver="unready", time_limit_s=5)
    assert found.plan is None and len(found.notes) == 1
    assert found.notes[0].endswith("unready cannot be made: ValueError: no luck")
