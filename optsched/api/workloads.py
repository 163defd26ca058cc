"""Instances from generators and traces, and their jobs packed one by one."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from annotated_types import Ge, Gt, Le, Lt

from ..driver import PolicyError
from ..errors import InputError
from ..model import POWER_CAP, Instance
from ..plugins import registry
from ..plugins.options import Duration, Flag, declared_by, described, read_options

if TYPE_CHECKING:
    from ..model import Cluster
    from ..packing.engine import Packing
    from ..packing.problem import Problem
    from ..packing.result import Point
    from ..traces.imported import Imported, Track

FITTED = ("philly", "helios", "acme", "openb")
INVENTED = ("mixed", "llm")
PLANTED, EVEN, WORKFLOWS = "planted", "even", "workflows"
KINDS = (*FITTED, *INVENTED, PLANTED, EVEN, WORKFLOWS)
GOES_WITH = {
    "arrivals": (*INVENTED, EVEN),
    "cluster": (*FITTED, EVEN),
    "gpus_per_node": (*FITTED, PLANTED, EVEN),
    "load": (*FITTED, *INVENTED, EVEN, WORKFLOWS),
    "overheads": (*FITTED, *INVENTED),
    **dict.fromkeys(("running", "gpu_types"), INVENTED),
    **dict.fromkeys(("days", "failures", "quotas"), FITTED),
    **dict.fromkeys(("uplinks", "checkpoint_s"), (*FITTED, *INVENTED, EVEN)),
    **dict.fromkeys(
        (
            *("gangs", "run_times", "heavy_tail", "duty", "locality", "variability", "families"),
            *("elastic", "plans", "cpu_jobs", "cores_per_gpu", "more_memory", "micro_batches"),
            *("memory_gbps", "nodes_per_rack", "clocks", "copies", "power_cap", "prices"),
            *("deadlines", "cores_in_place"),
        ),
        (EVEN,),
    ),
}
"""Options that go with some kinds of workloads only."""
STILL_AT_WORK = "of the past, still at work when the rest begins"


def generate(
    like: str = "philly",
    *,
    jobs: int,
    gpus: int | None = None,
    cluster: str | None = None,
    gpus_per_node: Annotated[int | None, Ge(1)] = None,
    seed: int = 0,
    load: float | None = None,
    days: float | None = None,
    arrivals: Literal["batch", "poisson"] | None = None,
    running: float | None = None,
    gpu_types: int | None = None,
    quotas: bool = False,
    failures: Annotated[bool, Flag("--no-failures")] = True,
    uplinks: Annotated[float | None, Gt(0)] = None,
    overheads: Annotated[bool, Flag("--no-overheads")] = True,
    checkpoint_s: Duration | None = None,
    gangs: str | None = None,
    run_times: str | None = None,
    heavy_tail: bool = False,
    duty: str | None = None,
    locality: Annotated[float | None, Gt(0), Le(1)] = None,
    variability: Annotated[float | None, Gt(0), Le(1)] = None,
    families: str | None = None,
    elastic: bool = False,
    plans: Literal["random", "best"] | None = None,
    cpu_jobs: Annotated[float | None, Gt(0), Lt(1)] = None,
    cores_per_gpu: Annotated[int | None, Ge(1)] = None,
    more_memory: bool = False,
    micro_batches: bool = False,
    memory_gbps: Annotated[float | None, Gt(0)] = None,
    nodes_per_rack: Annotated[int | None, Ge(1)] = None,
    clocks: bool = False,
    cores_in_place: bool = False,
    copies: Annotated[int | None, Ge(1)] = None,
    power_cap: Annotated[float | None, Gt(0)] = None,
    prices: str | None = None,
    deadlines: str | None = None,
    past: Annotated[int | None, Ge(1)] = None,
) -> Instance:
    """Generate a random instance; `optsched generate --help` says what the options mean.

    Raises InputError for options out of range, and for those that do not go together.
    """
    given = _given(like, locals())
    if gpus is None and cluster is None:
        raise InputError(
            "how many GPUs? Give --gpus G" + (" or --cluster SPEC" if like in FITTED else "")
        )
    refined = {name: given.pop(name) for name in REFINEMENTS if name in given}
    instance = _refined(_made(like, given, jobs, gpus, seed), seed, **refined)
    return instance if past is None else with_past(instance, past)


REFINEMENTS = (
    *("uplinks", "checkpoint_s", "clocks", "cores_in_place", "power_cap", "prices", "deadlines"),
)
"""Options that change an instance which has been made."""


def _given(like: str, asked: dict[str, Any]) -> dict[str, Any]:
    """Return what was given of options that go with some kinds only. Raises InputError where they
    do not go with this one."""
    if like not in KINDS:
        raise InputError(f"generate: no kind {like!r}; there are {', '.join(KINDS)}")
    usual = signature(generate).parameters
    given = {name: asked[name] for name in GOES_WITH if asked[name] != usual[name].default}
    for name in given:
        if like not in GOES_WITH[name]:
            flags = {option.field: option.flag for option in described(declared_by(generate))}
            raise InputError(
                f"{flags[name]} goes with --like {', '.join(GOES_WITH[name])}, not with {like}; "
                "leave it out"
            )
    return given


def _made(like: str, given: dict[str, Any], jobs: int, gpus: int | None, seed: int) -> Instance:
    from ..traces.generate import planted, synth, workflows

    if like == EVEN:
        return _even(given, jobs=jobs, gpus=gpus, seed=seed)
    if like in FITTED:
        return _fitted(like, given, jobs=jobs, gpus=gpus, seed=seed)
    if like in INVENTED:
        if "load" in given and given.get("arrivals") != "poisson":
            raise InputError(
                f"--load goes with --arrivals poisson for --like {like}; add that or leave --load "
                "out"
            )
        given["like"] = like
    module = {PLANTED: planted, WORKFLOWS: workflows}.get(like, synth)
    made: Instance = module.generate(jobs=jobs, gpus=gpus or 0, seed=seed, **given)
    return made


def _refined(
    instance: Instance,
    seed: int,
    *,
    uplinks: float | None = None,
    checkpoint_s: float | None = None,
    clocks: bool = False,
    cores_in_place: bool = False,
    power_cap: float | None = None,
    prices: str | None = None,
    deadlines: str | None = None,
) -> Instance:
    """Return the instance as these options change it."""
    from ..traces.clusters import with_prices
    from ..traces.generate.drawn import with_deadlines
    from ..traces.generate.shared_uplinks import with_shared_uplinks
    from ..traces.profiles.checkpoint_cost import with_checkpoint_cost
    from ..traces.profiles.clocks import with_clocks

    if uplinks is not None:
        instance = with_shared_uplinks(instance, uplinks)
    if checkpoint_s is not None:
        instance = with_checkpoint_cost(instance, checkpoint_s)
    if clocks:
        instance = with_clocks(instance)
    if cores_in_place:
        jobs = (replace(job, cores_in_place=True) for job in instance.jobs)
        instance = replace(instance, jobs=tuple(jobs))
    if power_cap is not None:
        capped = replace(instance.cluster, resources={POWER_CAP: power_cap})
        instance = replace(instance, cluster=capped)
    if prices is not None:
        instance = replace(instance, cluster=with_prices(instance.cluster, prices))
    return instance if deadlines is None else with_deadlines(instance, seed, deadlines)


def with_past(instance: Instance, jobs: int) -> Instance:
    """Return the instance with its first `jobs` jobs as its past: done before it begins, and known
    to beliefs about run times alone. See `optsched.traces.past`."""
    from ..traces.past import with_past

    return with_past(instance, jobs)


CLASHES = (
    (
        "cluster",
        ("cores_per_gpu", "nodes_per_rack"),
        "--cores-per-gpu and --nodes-per-rack do not go with --cluster",
    ),
    (
        "variability",
        ("cluster", "families"),
        "--variability does not go with --cluster and --families",
    ),
    ("elastic", ("copies",), "--elastic and --copies are two ways to be elastic; leave one out"),
    (
        "plans",
        ("elastic", "copies", "families", "cpu_jobs"),
        "--plans says how jobs run; leave --elastic, --copies, --families and --cpu-jobs out",
    ),
)
"""Options of even workloads that do not go together, and what is said of that."""


def _even(given: dict[str, Any], *, gpus: int | None, **how: Any) -> Instance:
    """Return jobs drawn evenly from the gangs and run times given as texts."""
    from ..traces.generate import drawn, even
    from ..traces.generate.plans import with_plans

    for name, others, sentence in CLASHES:
        if name in given and not given.keys().isdisjoint(others):
            raise InputError(sentence)
    cluster = _own_cluster(given, gpus)
    if cluster is not None:
        given["cluster"], gpus = cluster, cluster.total_gpus
    for name, read in (
        ("duty", drawn.read_duties),
        ("gangs", even.read_gangs),
        ("run_times", even.read_run_times),
        ("families", even.read_families),
    ):
        if name in given:
            given[name] = read(given[name])
    profiles = {own: given.pop(own) for own in ("locality", "variability", "duty") if own in given}
    for option, name in (("run_times", "run_s"), ("heavy_tail", "heavy")):
        if option in given:
            given[name] = given.pop(option)
    if given.pop("arrivals", None) == "batch":
        if "load" in given:
            raise InputError("--load goes with jobs that arrive one by one; leave one out")
        given["load"] = 0.0
    plans, memory_gbps = given.pop("plans", None), given.pop("memory_gbps", None)
    choices = _memory_choices(given)
    made = even.generate(gpus=gpus or 0, **how, **given)
    for choose in choices:
        made = choose(made)
    if plans is not None:
        made = with_plans(made, how["seed"], plans)
    if memory_gbps is not None:
        made = drawn.with_memory_traffic(made, how["seed"], memory_gbps)
    return drawn.with_drawn_profiles(made, how["seed"], **profiles) if profiles else made


def _memory_choices(given: dict[str, Any]) -> list[Callable[[Instance], Instance]]:
    """Take out what gives jobs a choice of memory. Raises InputError where no family is named."""
    from ..traces.profiles.memory import with_micro_batches, with_more_memory

    choices: list[Callable[[Instance], Instance]] = []
    if given.pop("more_memory", False):
        if not {"families", "cores_per_gpu"} <= given.keys():
            raise InputError("--more-memory goes with --families and --cores-per-gpu; add both")
        choices.append(with_more_memory)
    if given.pop("micro_batches", False):
        if "families" not in given:
            raise InputError("--micro-batches goes with --families; add it")
        choices.append(with_micro_batches)
    return choices


def _own_cluster(given: dict[str, Any], gpus: int | None) -> "Cluster | None":
    """Return the nodes that `cluster` describes, None where it is left out; `gpus_per_node` goes
    with it. Raises InputError where the number of GPUs is given as well."""
    from ..traces.clusters import cluster_of

    if "cluster" not in given:
        return None
    if gpus is not None:
        raise InputError("--cluster says how many GPUs there are; leave --gpus out")
    return cluster_of(given.pop("cluster"), given.pop("gpus_per_node", None) or 8)


def _fitted(like: str, given: dict[str, Any], *, gpus: int | None, **how: Any) -> Instance:
    """Return a workload like that of a cluster, on that cluster or on nodes of one's own."""
    from ..traces.generate.like import generate

    cluster = _own_cluster(given, gpus)
    if cluster is not None:
        given["cluster"] = cluster
    elif "gpus_per_node" in given:
        raise InputError("--gpus-per-node goes with --cluster; the model's nodes have their sizes")
    if "load" in given and "days" in given:
        raise InputError("--load and --days both say how fast the jobs come; leave one out")
    return generate(like, gpus=gpus, **how, **given)


def import_trace(
    trace_format: str,
    source: str | Path,
    *,
    jobs: Annotated[int | None, Ge(1)] = None,
    profiles: str = "",
    seed: Annotated[int | None, Ge(0)] = None,
    resample: bool = False,
    overheads: Annotated[bool, Flag("--no-overheads")] = True,
    past: Annotated[int | None, Ge(1)] = None,
    track: "Track | None" = None,
    **of_format: object,
) -> "Imported":
    """Read a trace or benchmark file, its first `jobs` jobs if given. Jobs of formats without
    profiles get measured ones, drawn by rule with `seed`, unless `profiles` is "none"; with
    `resample` so many jobs, and the intervals between them, are drawn from the whole trace by
    `seed`; without `overheads` saving and restoring cost nothing; the first `past` of the jobs are
    done before the instance begins (`with_past`); `of_format` are options of the format.

    Raises InputError for an unknown format, options that do not go with it, and faults of the file.
    """
    from ..traces.profiles.attach import attach

    known = registry.importer(trace_format)
    drawn = None if resample else seed
    measured = not known.profiled and profiles != "none"
    takes = {option.field for option in described(known.Options)}
    if not overheads and ("overheads" in takes or not measured):
        of_format["overheads"] = False
    _check_import(trace_format, known.profiled, profiles, drawn, of_format.keys() - takes)
    read = read_options(f"format {trace_format}", known.Options, of_format)
    chosen = {name: getattr(read, name) for name in of_format}
    imported = known.read(source, jobs=None if resample else jobs, track=track or iter, **chosen)
    if measured:
        attached = attach(imported.instance, seed or 0, overheads=overheads)
        imported = replace(imported, instance=attached)
    if resample:
        from ..traces.resample import resampled

        imported = replace(imported, instance=resampled(imported.instance, seed or 0, jobs))
    if past is not None:
        made = with_past(imported.instance, past)
        unfinished = {STILL_AT_WORK: past - len(made.past)} if past > len(made.past) else {}
        imported = replace(imported, instance=made, dropped=imported.dropped | unfinished)
    return imported


def _check_import(
    trace_format: str, profiled: bool, profiles: str, drawn: int | None, unknown: Iterable[str]
) -> None:
    """Raise InputError for options that do not go with the format, or with each other."""
    for flag, value in (("--profiles", profiles or None), ("--seed", drawn)):
        if profiled and value is not None:
            raise InputError(
                f"{flag} does not go with the format {trace_format}, whose jobs keep the profiles "
                "that they have; leave it out"
            )
    if profiles not in ("", "measured", "none"):
        raise InputError(f"profiles {profiles!r}: must be measured or none")
    if profiles == "none" and drawn is not None:
        raise InputError(
            "--seed does not go with --profiles none, which draws nothing; leave one of them out"
        )
    listed = registry.listed("importers")
    flags = {option.field: option.flag for own in listed for option in own.options}
    for name in unknown:
        raise InputError(
            f"{flags.get(name, name)} does not go with the format {trace_format}; leave it out"
        )


@dataclass(frozen=True, eq=False)
class Packed:
    """Jobs packed one by one by a rule, checked: the allocation at each load, with what no rule
    exceeds where that was asked for."""

    instance: Instance
    problem: "Problem"
    packing: "Packing"
    points: "list[Point]"
    rule: str
    load: float
    seed: int

    @cached_property
    def summary(self) -> dict[str, Any]:
        """Return what `optsched pack --json` prints."""
        from ..packing.result import summary

        return summary(self._heading(), self.problem, self.packing, self.points)

    def as_file(self) -> str:
        """Return the text of the packing file."""
        from ..packing.result import as_file

        return as_file(self._heading(), self.problem, self.packing)

    def _heading(self) -> dict[str, Any]:
        from ..packing.result import heading

        return heading(self.instance, self.rule, self.load, self.seed)


def pack(
    instance: "Instance | str | Path",
    rule: str = "optsched",
    *,
    load: float = 1.3,
    seed: Annotated[int, Ge(0)] = 0,
    bound: bool = False,
) -> Packed:
    """Let jobs arrive one by one and stay, until they have asked for `load` times the GPUs; with
    `bound` also prove what no rule can exceed.

    Raises PolicyError where the packing does not pass the check.
    """
    from ..packing import rules
    from ..packing.arrivals import arrivals
    from ..packing.engine import pack
    from ..packing.problem import problem
    from ..packing.result import placements, points
    from ..packing.verify import violations
    from . import checked_instance

    made = rules.rule(rule)
    loaded = checked_instance(instance, now_only=True)
    asked = problem(loaded)
    packed = pack(asked, arrivals(asked, load, seed), made(asked, seed), seed)
    wrong = violations(loaded, placements(asked, packed))
    if wrong:
        raise PolicyError(f"the packing of {rule} does not pass the check: {wrong[0]}")
    return Packed(loaded, asked, packed, points(asked, packed, bound), rule, load, seed)
