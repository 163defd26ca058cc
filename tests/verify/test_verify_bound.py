"""The check of certificates: sound by itself, strong enough for all that the search makes, and hard
to deceive."""

import ast
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import event, given, settings
from hypothesis import strategies as st

import optsched.verify_bound
from optsched import objectives
from optsched.bounds import priced_bound
from optsched.bounds.market import Alternative as MarketAlternative
from optsched.bounds.market import Buyer, market
from optsched.bounds.priced import Prices
from optsched.cli import main
from optsched.errors import InputError, OptschedError
from optsched.files import InstanceRef, dump_instance, instance_hash, load_instance
from optsched.files.certificate import (
    Certificate,
    QuotaPrices,
    TypePrices,
    dump_certificate,
    load_certificate,
)
from optsched.files.faults import find_faults
from optsched.model.cluster import Cluster, Node
from optsched.model.instance import Instance
from optsched.model.job import Elastic, Job, Mode
from optsched.model.plan import Plan
from optsched.model.profile import Profile
from optsched.objectives import parse, values
from optsched.plugins import registry
from optsched.simulate.run import simulate
from optsched.verify import verify
from optsched.verify_bound import limits, recomputed
from optsched.verify_bound.jobs import Alternative, Task, isolated_s, tasks
from optsched.verify_bound.prices import Tariff, bound, refutes
from optsched.verify_bound.site import Site
from tests.bounds.test_priced_bound import cheapest_by_lp, crowded
from tests.clusters import one_node
from tests.oracles import brute_force, preemptive, tiny
from tests.simulate.mixing_policy import Mixing
from tests.simulate.random_instances import instances

RANDOM = settings(max_examples=25)
MANY = settings(RANDOM, max_examples=500)
NAMES = ("wct", "makespan", "ftf")
sound = st.one_of(tiny.instances(uplinks=True), tiny.with_pairs(), instances(max_jobs=6))


@st.composite
def on_several_types(draw: st.DrawFn) -> Instance:
    """Jobs some of which add up over GPU types and some do not, with GPUs of both types, and maybe
    a power cap."""
    found = draw(instances(max_jobs=6)).undisturbed
    jobs = tuple(
        replace(
            job, profile=replace(job.profile, mixing=draw(st.sampled_from(("bottleneck", "sum"))))
        )
        for job in found.jobs
    )
    more = (
        Node(name="more", gpu_type="b", gpus=4, rack="r0"),
        Node(name="also", gpu_type="a", gpus=2, rack="r1"),
    )
    return replace(
        found, jobs=jobs, cluster=replace(found.cluster, nodes=(*found.cluster.nodes, *more))
    )


@st.composite
def choosy(draw: st.DrawFn) -> Instance:
    """Jobs that want labels on their nodes, or to be split over some number of them."""
    found = draw(sound).undisturbed
    nodes = tuple(
        replace(node, labels=tuple(draw(st.sets(st.sampled_from(("ib", "ssd"))))))
        for node in found.cluster.nodes
    )
    found = replace(found, cluster=replace(found.cluster, nodes=nodes))
    for job in found.jobs:
        least = draw(st.integers(1, 2))
        wants = replace(
            job,
            node_labels=draw(
                st.dictionaries(
                    st.sampled_from(("ib", "ssd")),
                    st.sampled_from(("required", "forbidden")),
                    max_size=1,
                )
            ),
            min_nodes=least,
            max_nodes=draw(st.sampled_from((None, least, least + 1))),
        )
        wants = wants if wants.max_nodes else replace(wants, min_nodes=1)
        jobs = tuple(wants if own is job else own for own in found.jobs)
        found = found if find_faults(replace(found, jobs=jobs)) else replace(found, jobs=jobs)
    return found


def ref(instance: Instance) -> InstanceRef:
    return InstanceRef(name=instance.name, hash=instance_hash(instance))


# --------------------------------------------------------------------------------------- it knows
# its own


def check_the_search_passes(instance: Instance, name: str, steps: int) -> None:
    _, made = priced_bound(instance, parse(name), steps)
    certificate = load_certificate(dump_certificate(made))
    value, wrong = recomputed(instance, certificate)
    assert not wrong and value is not None
    assert value >= certificate.value - 1e-9 * max(1.0, abs(value))
    event("says something" if certificate.value > 0 else "says nothing")


@RANDOM
@given(st.one_of(sound, on_several_types(), choosy()), st.sampled_from(NAMES))
def test_what_the_search_finds_passes(instance: Instance, name: str) -> None:
    check_the_search_passes(instance.undisturbed, name, 6)


@settings(RANDOM, max_examples=60)
@given(st.one_of(sound, on_several_types(), choosy()), st.integers(0, 10**6))
def test_the_search_knows_as_much_at_any_prices(instance: Instance, seed: int) -> None:
    instance = instance.undisturbed
    site, made = Site(instance.cluster), market(instance)
    todo = tasks(instance, site)
    tariff = drawn_tariff(instance, todo, Random(seed))
    of_quotas = [tariff.quotas[name][1].tolist() for name in made.tenants]
    priced = Prices(made, tariff.grid_s.tolist(), [*tariff.prices.tolist(), *of_quotas])
    tariff = replace(tariff, quotas={name: tariff.quotas[name] for name in made.tenants})
    slack = 1e-9 * (tariff.worth() + abs(made.offset) + 1.0)
    assert priced.bound() == pytest.approx(bound(tariff, todo, made.offset), rel=1e-9, abs=slack)


@pytest.mark.slow
@MANY
@given(st.one_of(sound, on_several_types(), choosy()), st.sampled_from(NAMES), st.integers(0, 60))
def test_what_long_searches_find_passes(instance: Instance, name: str, steps: int) -> None:
    check_the_search_passes(instance.undisturbed, name, steps)


@RANDOM
@given(st.one_of(sound, on_several_types(), choosy()))
def test_the_unit_of_fairness_is_that_of_the_objective(instance: Instance) -> None:
    site = Site(instance.cluster)
    for job in instance.jobs:
        assert isolated_s(instance, site, job) == pytest.approx(
            objectives.isolated_s(instance, job), rel=1e-12
        )


def test_fairness_counts_the_nodes_that_a_job_may_take_alone() -> None:
    """The fast way of this job is on a node that it may not take: were its time alone counted
    there, a bound of 11 would pass where there is a plan of 10."""
    profile = Profile(cpus_per_gpu={1: 0.5, 2: 1.0})
    slow = Node(name="slow", gpus=1, cpus=1, labels=("ib",))
    cluster = Cluster(nodes=(slow, Node(name="fast", gpus=1, cpus=2)))
    job = Job(id="j", submit_s=-36.0, duration_s=2, node_labels={"ib": "required"}, profile=profile)
    for own in (job, replace(job, node_labels={"ssd": "forbidden", "ib": "required"})):
        instance = Instance(cluster=cluster, jobs=(own,))
        made = priced_bound(instance, parse("ftf"), 3)[1]
        assert made.value <= (36 + 4) / 4 and recomputed(instance, made)[1] == []
        assert recomputed(instance, replace(made, value=10.001))[1]


def test_a_set_up_is_work_where_larger_modes_are_no_faster() -> None:
    """Whoever starts on two GPUs holds no fewer meanwhile."""
    modes = (Mode(gpus=1, duration_s=5.0), Mode(gpus=2, duration_s=5.0))
    job = Job(id="j", modes=modes, profile=Profile(startup_s=9.0))
    instance = Instance(cluster=one_node(gpus=2), jobs=(job,))
    [task], [buyer] = tasks(instance, Site(instance.cluster)), market(instance).buyers
    assert (task.head_s, task.work) == (buyer.head_s, buyer.work_s) == (0.0, 5.0 + 9.0)


def test_a_set_up_is_work_where_larger_gangs_are_no_faster() -> None:
    """Two GPUs have a core each, one has both: whoever starts on two holds no fewer meanwhile."""
    profile = Profile(gpus={2: 1.0}, cpus_per_gpu={1: 0.5, 2: 1.0}, startup_s=9.0)
    job = Job(id="j", gpus=Elastic(min=1, max=2), duration_s=5.0, profile=profile)
    instance = Instance(
        cluster=one_node(gpus=2, cpus=2), jobs=tuple(replace(job, id=f"j{k}") for k in range(4))
    )
    for name in NAMES:
        assert recomputed(instance, priced_bound(instance, parse(name), 10)[1])[1] == []
    [one, *_] = tasks(instance, Site(instance.cluster))
    assert (one.head_s, one.work) == (0.0, 5.0 + 9.0 * 0.5)


# -------------------------------------------------------------------------------- no plan is below
# what it proves


def drawn_tariff(instance: Instance, todo: list[Task], random: Random) -> Tariff:
    """A grid over the time in which jobs run, and prices around what jobs earn by a GPU-second
    there."""
    lengths_s = [one.work / max(way.rate for way in one.alternatives) for one in todo]
    last = max(one.head_s + 2 * own_s for one, own_s in zip(todo, lengths_s, strict=True))
    grid = [
        0.0,
        *sorted(random.uniform(0.01, max(last, 0.02)) for _ in range(random.randint(1, 6))),
    ]
    earned = [one.weight / max(own_s, 1e-3) for one, own_s in zip(todo, lengths_s, strict=True)]
    site = Site(instance.cluster)
    prices = [
        [random.choice((0.0, 1.0)) * random.uniform(0, 3) * random.choice(earned) for _ in grid[1:]]
        for _ in site.gpus
    ]
    quotas = {
        name: (
            limit,
            np.array([random.choice((0.0, 1.0)) * random.choice(earned) for _ in grid[1:]]),
        )
        for name, limit in limits(instance).items()
    }
    return Tariff(
        np.array(site.gpus, float),
        np.array(grid),
        np.array(prices).reshape(len(site.gpus), len(grid) - 1),
        quotas,
    )


def check_plan(instance: Instance, plan: Plan, random: Random) -> None:
    """Whatever the prices, what they prove is not above a plan that the verifier accepts."""
    if not instance.jobs:
        return
    todo = tasks(instance, Site(instance.cluster))
    tariff = drawn_tariff(instance, todo, random)
    dearest = max(
        [tariff.prices.max(initial=0.0), *(own.max() for _, own in tariff.quotas.values())]
    )
    slack = 1e-4 * (1 + float(dearest) * float(tariff.gpus.sum())) * len(plan.jobs)
    for name in NAMES:
        [value] = values(parse(name), instance, plan)
        claim = value + 4 * slack if name == "wct" else value * (1 + 1e-6) + 2e-3
        if name != "wct" and tariff.worth() < 100 * slack:
            continue  # prices so low that the verifier's tolerance of time is worth as much
        stated = Certificate(
            format="optsched-bound/1",
            instance=ref(instance),
            objective=name,
            value=claim,  # type: ignore[arg-type]
            grid_s=tuple(tariff.grid_s.tolist()),
            prices=tuple(
                TypePrices(gpu_type=gpu_type, per_gpu_s=tuple(own))
                for gpu_type, own in zip(
                    instance.cluster.gpu_types, tariff.prices.tolist(), strict=True
                )
            ),
            quotas=tuple(
                QuotaPrices(tenant=name, per_gpu_s=tuple(own.tolist()))
                for name, (_, own) in tariff.quotas.items()
            ),
        )
        proved, wrong = recomputed(instance, stated)
        assert wrong, (name, value, proved)
        if name == "wct":
            assert proved is not None and proved <= value + slack
    for one, entry in zip(todo, plan.jobs, strict=True):
        done_s = one.head_s + one.work / max(way.rate for way in one.alternatives)
        assert done_s <= (entry.completion_s - instance.now_s) * (1 + 1e-9) + 1e-3, entry


@RANDOM
@given(
    instances(max_jobs=6),
    st.integers(0, 10**6),
    st.sampled_from(("fifo", "srsf", "optsched", "gavel")),
)
def test_policies(instance: Instance, seed: int, name: str) -> None:
    try:
        plan = simulate(instance.undisturbed, registry.policy(name))
    except OptschedError:  # a policy may leave jobs waiting for ever, or not be installed
        return
    check_plan(instance.undisturbed, plan, Random(seed))


@RANDOM
@given(on_several_types(), st.integers(0, 10**6))
def test_gangs_on_several_types(instance: Instance, seed: int) -> None:
    try:
        plan = simulate(instance, Mixing(seed))
    except OptschedError:
        return
    check_plan(instance, plan, Random(seed))


@RANDOM
@given(
    st.one_of(tiny.instances(most_jobs=3, most_nodes=2, uplinks=True), tiny.with_pairs()),
    st.integers(0, 10**6),
    st.booleans(),
)
def test_preemptive_and_shared_plans(instance: Instance, seed: int, share: bool) -> None:
    random = Random(seed)
    for _ in range(8):
        plan = preemptive.random_plan(instance, parse("wct"), random, share)
        if plan is not None and verify(instance, plan, parse("wct")).ok:
            check_plan(instance, plan, random)


@pytest.mark.slow
@settings(MANY, max_examples=60)
@given(st.one_of(on_several_types(), instances(max_jobs=8)), st.integers(0, 10**6))
def test_all_policies(instance: Instance, seed: int) -> None:
    instance, random = instance.undisturbed, Random(seed)
    for policy in (Mixing(seed), *map(registry.policy, registry.names("policies"))):
        try:
            plan = simulate(instance, policy)
        except OptschedError:
            continue
        check_plan(instance, plan, random)


@pytest.mark.slow
@settings(MANY, max_examples=200)
@given(tiny.instances(most_jobs=4, most_running=3, uplinks=True), st.integers(0, 10**6))
def test_optimal_plans(instance: Instance, seed: int) -> None:
    random = Random(seed)
    for name in NAMES:
        found = brute_force.optimum(instance, parse(name))
        if found is not None:
            check_plan(instance, found[1], random)


amounts = st.sampled_from((0.0, 0.3, 1.0, 2.5, 7.0))


@settings(RANDOM, max_examples=60)
@given(st.data())
def test_a_job_pays_what_linear_programs_say(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 4))
    lengths = [data.draw(st.sampled_from((0.5, 1.0, 3.0))) for _ in range(count)]
    grid = [sum(lengths[:k]) for k in range(count + 1)]
    prices = [[data.draw(amounts) for _ in range(count)] for _ in range(2)]
    ways = sorted(
        {
            (data.draw(st.integers(-1, 1)), data.draw(st.sampled_from((1.0, 2.0))), rate)
            for rate in (
                1.0,
                *data.draw(st.lists(st.sampled_from((0.25, 0.5, 0.8, 1.0)), max_size=3)),
            )
        }
    )
    ways = [(t, gpus if t >= 0 else 0.0, rate) for t, gpus, rate in ways]
    weight, head_s, work = (
        data.draw(st.sampled_from(of))
        for of in ((0.5, 1.0, 3.0), (0.0, 0.7, 2.0, 9.0), (0.4, 1.0, 2.0, 6.0))
    )
    uses = [(((t, gpus),) if t >= 0 else (), rate) for t, gpus, rate in ways]
    buyer = Buyer(weight, head_s, work, tuple(MarketAlternative(*way) for way in uses), 0.0)
    task = Task(weight, head_s, work, tuple(Alternative(*way, way[1]) for way in ways), 0.0)
    tariff = Tariff(
        np.zeros(2), np.array(grid), np.array(prices)
    )  # no GPUs, so that GPU time is worth nothing
    assert bound(tariff, [task], 0.0) == pytest.approx(
        cheapest_by_lp(buyer, grid, prices, None), rel=1e-6, abs=1e-6
    )
    due_s = head_s + data.draw(st.sampled_from((0.3, 1.0, 2.5, 20.0)))
    by_due = cheapest_by_lp(buyer, grid, prices, due_s)
    worth = data.draw(st.sampled_from((0.5, 0.999, 1.001, 2.0))) * by_due
    if (
        np.isfinite(by_due) and by_due > 0
    ):  # one type more, which the job cannot use and whose time is worth so much
        with_worth = Tariff(
            np.array([0.0, 0.0, worth / grid[-1]]),
            np.array(grid),
            np.array([*prices, [1.0] * count]),
        )
        assert refutes(with_worth, [task], [due_s]) == (worth < by_due)
    elif by_due > 0:
        assert refutes(tariff, [task], [due_s])


# --------------------------------------------------------------------------------------------- it
# is alone


def test_it_shares_nothing_with_what_it_checks() -> None:
    """Nouns, the reader of files and the exceptions of Python are all it has in common with the
    rest."""
    shared = {"files.certificate", "files", "model", "gangs", "jobs", "prices", "quotas", "site"}
    nouns = {"POWER_CAP", "Cluster", "Elastic", "Instance", "Job", "Locality", "Mode", "Node"}
    nouns |= {"Profile", "Running"}
    folder = Path(optsched.verify_bound.__file__).parent
    for path in folder.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (
                node.level or (node.module or "").startswith("optsched")
            ):
                assert node.module in shared, f"{path.name} imports {node.module}"
                names = {one.name for one in node.names}
                assert node.module != "model" or names <= nouns, f"{path.name} imports {names}"
            if isinstance(node, ast.Import):
                assert not any(one.name.startswith("optsched") for one in node.names)


def test_a_mistake_of_the_search_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Were jobs that mix GPU types otherwise taken for alike, a bound of more than 9,000 s would be
    claimed where there is a plan of 7,200 s."""
    nodes = (Node(name="a", gpu_type="a", gpus=2), Node(name="b", gpu_type="b", gpus=4))
    p, q = (
        Job(
            id=name,
            gpus=4,
            duration_s=1000,
            profile=Profile(rate={"a": 1.0, "b": 0.25}, mixing=mixing),
        )
        for name, mixing in (("p", "bottleneck"), ("q", "sum"))
    )
    instance = Instance(cluster=Cluster(nodes=nodes), jobs=(p, q))
    right = priced_bound(instance, parse("wct"), 60)[1]
    assert recomputed(instance, right)[1] == [] and right.value <= 7200
    monkeypatch.setattr(Profile, "__eq__", lambda profile, other: profile.rate == other.rate)
    monkeypatch.setattr(Profile, "__hash__", lambda profile: hash(profile.rate))
    false = priced_bound(instance, parse("wct"), 60)[1]
    assert false.value > 9000
    value, [wrong] = recomputed(instance, false)
    assert value is not None and value <= 7200 and wrong.startswith("its prices prove")


# ----------------------------------------------------------------------------------------------
# tampering

Change = Callable[[dict[str, Any], Random], object]


def _prices(change: Callable[[float], Any], every: bool = True) -> Change:
    def changed(made: dict[str, Any], random: Random) -> None:
        for own in made["prices"] if every else [random.choice(made["prices"])]:
            own["per_gpu_s"] = [change(price) for price in own["per_gpu_s"]]

    return changed


def _one_price(to: float) -> Change:
    def changed(made: dict[str, Any], random: Random) -> None:
        own = random.choice(made["prices"])["per_gpu_s"]
        own[random.randrange(len(own))] = to

    return changed


def _one_instant(to: float) -> Change:
    def changed(made: dict[str, Any], random: Random) -> None:
        made["grid_s"][random.randrange(1, len(made["grid_s"]))] = to

    return changed


def _value(change: Callable[[float], float]) -> Change:
    return lambda made, random: made.update(value=change(made["value"]))


TAMPERED: dict[str, Change] = {
    "value a little higher": _value(lambda value: value * 1.0001 + 1e-3),
    "value twice as high": _value(lambda value: 2 * value + 1),
    "value as high as floats go": _value(lambda value: 1e308),
    "value infinite": _value(lambda value: float("inf")),
    "value no number": _value(lambda value: float("nan")),
    "value a word": lambda made, random: made.update(value="much"),
    "prices near the largest float": lambda made, random: (
        _prices(lambda price: 1e307)(made, random),
        made.update(value=1e15),
    ),
    "one price near the largest float": lambda made, random: (
        _one_price(1e307)(made, random),
        made.update(value=1e15),
    ),
    "a price infinite": _one_price(float("inf")),
    "a price no number": _one_price(float("nan")),
    "a price negative": _one_price(-1e-9),
    "prices of nothing": lambda made, random: (
        _prices(lambda price: 0.0)(made, random),
        made.update(value=made["value"] * 3 + 1),
    ),
    "prices fifty times as high": lambda made, random: (
        _prices(lambda price: 50 * price + 1.0)(made, random),
        made.update(value=made["value"] * 1.01 + 1),
    ),
    "an instant infinite": _one_instant(float("inf")),
    "an instant no number": _one_instant(float("nan")),
    "an instant out of order": lambda made, random: made["grid_s"].__setitem__(
        -1, made["grid_s"][-2] / 2
    ),
    "a grid that begins later": lambda made, random: made.update(
        grid_s=[at + 1 for at in made["grid_s"]]
    ),
    "a grid without its last instant": lambda made, random: made["grid_s"].pop(),
    "a GPU type left out": lambda made, random: made["prices"].pop(
        random.randrange(len(made["prices"]))
    ),
    "a GPU type twice": lambda made, random: made["prices"].append(dict(made["prices"][0])),
    "a GPU type that is not there": lambda made, random: made["prices"][0].update(gpu_type="None"),
    "another instance": lambda made, random: made["instance"].update(
        hash=made["instance"]["hash"][::-1] + "0"
    ),
    "another objective": lambda made, random: made.update(objective="energy"),
    "a larger claim of another objective": lambda made, random: made.update(
        objective={"wct": "makespan", "makespan": "ftf", "ftf": "wct"}[made["objective"]],
        value=1e12,
    ),
    "a field that does not exist": lambda made, random: made.update(verified=True),
    "no value": lambda made, random: made.pop("value"),
}


def deceived(instance: str, certificate: Path) -> str | None:
    """What is wrong with how the command answers a false certificate; None where it is refused as
    it should be."""
    result = CliRunner().invoke(main, ["verify-bound", instance, str(certificate)])
    as_json = CliRunner().invoke(main, ["verify-bound", instance, str(certificate), "--json"])
    if result.exit_code not in (1, 2) or as_json.exit_code != result.exit_code:
        return f"{result.exit_code}, {as_json.exit_code}: {result.output}"
    if result.exit_code == 1:
        answer = json.loads(as_json.stdout)
        if answer["ok"] or not answer["violations"]:
            return as_json.stdout
    return None


def check_tampering(folder: Path, seed: int) -> None:
    random = Random(seed)
    name = NAMES[seed % 3]
    instance = crowded(random.randint(3, 12), random.choice((2.0, 5.0, 20.0)))
    instance = replace(instance, now_s=random.choice((0.0, 100.0)), name=f"crowded {seed}")
    source, target = folder / "i.json", folder / "c.json"
    source.write_text(dump_instance(instance))
    made = json.loads(
        dump_certificate(priced_bound(load_instance(source.read_text()), parse(name), 4)[1])
    )
    target.write_text(json.dumps(made))
    result = CliRunner().invoke(main, ["verify-bound", str(source), str(target)])
    assert result.exit_code == 0, result.output
    for kind, change in TAMPERED.items():
        false = json.loads(json.dumps(made))
        change(false, random)
        target.write_text(json.dumps(false))
        answer = deceived(str(source), target)
        assert answer is None, (seed, kind, answer)


@pytest.mark.parametrize("seed", range(3))
def test_false_certificates_are_refused(seed: int, tmp_path: Path) -> None:
    assert len(TAMPERED) >= 20
    check_tampering(tmp_path, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3, 53))
def test_many_false_certificates_are_refused(seed: int, tmp_path: Path) -> None:
    check_tampering(tmp_path, seed)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("size", [1e150, 1e200, 1e290, 1e307, 1.7e308])
def test_prices_beyond_what_floats_hold_prove_nothing(name: str, size: float) -> None:
    """Of one type or all, in one interval or all, with a claim that no plan keeps."""
    instance = crowded(8, 5.0)
    random = Random(int(np.log10(size)))
    for _ in range(10):
        grid = [0.0, *sorted(random.uniform(1, 500) for _ in range(4))]
        cells = [[random.choice((0.0, 1.0, size)) for _ in grid[1:]] for _ in range(2)]
        stated = Certificate(
            format="optsched-bound/1",
            instance=ref(instance),
            objective=name,
            value=1e9,  # type: ignore[arg-type]
            grid_s=tuple(grid),
            prices=tuple(
                TypePrices(gpu_type=t, per_gpu_s=tuple(own))
                for t, own in zip("ab", cells, strict=True)
            ),
        )
        assert recomputed(instance, stated)[1]


def test_a_file_that_says_what_is_no_number_is_one_sentence(tmp_path: Path) -> None:
    instance = crowded(3)
    text = dump_certificate(priced_bound(instance, parse("wct"), 2)[1])
    for before, after in (
        ('"value": ', '"value": 1e999, "was": '),
        ('"per_gpu_s": [', '"per_gpu_s": [1e999, '),
    ):
        with pytest.raises(InputError, match="finite"):
            load_certificate(text.replace(before, after, 1))
