"""Instance and plan files: what they look like, and what is said about wrong ones."""

import errno
import gzip
import json
import os
import stat
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from optsched import Clock, Cluster, Elastic, Instance, Job, Mode, Node, Profile, Sharing, Solution
from optsched.errors import InputError
from optsched.files import (
    Texts,
    check_instance,
    dump_instance,
    dump_plan,
    instance_hash,
    load_instance,
    plan_object,
    read_instance,
    read_plan,
    schema,
    write_text,
)
from optsched.files.faults import Sound
from optsched.files.shape_faults import FaultyFileError, duplicate_keys
from optsched.hostlist import expand_hostlist, fold_nodes
from optsched.model.cluster import Tier
from optsched.model.plan import Level
from optsched.round.decide import decide
from tests.clusters import one_node
from tests.files.test_files_fuzz import GOOD
from tests.instance_strategies import instances
from tests.many_jobs import many_jobs
from tests.plan_cases import CASES

Tree = dict[str, Any]


def faults(edit: Callable[[Tree], object]) -> list[str]:
    tree = json.loads(GOOD)
    edit(tree)
    with pytest.raises(FaultyFileError) as error:
        load_instance(json.dumps(tree), "f.json")
    assert str(error.value).startswith(f"f.json: {len(error.value.faults)} fault")
    return [str(fault) for fault in error.value.faults]


def job(n: int, **fields: object) -> Callable[[Tree], object]:
    return lambda tree: tree["jobs"][n].update(fields)


def profile(**fields: object) -> Callable[[Tree], object]:
    return lambda tree: tree["jobs"][2]["profile"].update(fields)


def running(**fields: object) -> Callable[[Tree], object]:
    return lambda tree: tree["running"][0].update(fields)


def tenant(**fields: object) -> Callable[[Tree], object]:
    return lambda tree: tree["tenants"][1].update(fields)


def tiers(*named: tuple[str, int]) -> Callable[[Tree], object]:
    own = [{"name": name, "priority": priority} for name, priority in named]
    return lambda tree: tree["cluster"].update(tiers=own)


def node(**fields: object) -> Callable[[Tree], object]:
    return lambda tree: tree["cluster"]["nodes"][0].update(fields)


RANGE = "write a number in range"
NUMBER = "write a number, without quotes"
WHOLE = "write a whole number, without quotes or decimal point"
GANG = 'write 8, or {"min": 1, "max": 8} for an elastic job'
NEVER = "ask for less, or add what is missing to the cluster"


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        (
            job(2, gpus="x"),
            f'jobs[2].gpus: job one: should be a whole number or an object, not "x"; {GANG}',
        ),
        (
            job(2, gpus=None),
            f"jobs[2].gpus: job one: should be a whole number or an object, not null; {GANG}",
        ),
        (
            job(2, gpus=[1]),
            f"jobs[2].gpus: job one: should be a whole number or an object, not a list; {GANG}",
        ),
        (job(2, gpus=1.5), f"jobs[2].gpus: job one: should be a whole number, not 1.5; {WHOLE}"),
        (job(2, gpus=-1), f"jobs[2].gpus: job one: should be at least 0, not -1; {RANGE}"),
        (
            job(2, gpus=10**7),
            f"jobs[2].gpus: job one: should be at most 1000000, not 10000000; {RANGE}",
        ),
        (job(2, gpus={"min": 1}), "jobs[2].gpus.max: job one: is missing; add it"),
        (
            job(2, gpus={"min": 0, "max": 2}),
            f"jobs[2].gpus.min: job one: should be at least 1, not 0; {RANGE}",
        ),
        (
            job(2, gpus={"min": 3, "max": 2}),
            "jobs[2].gpus: job one: min 3 is above max 2; swap them",
        ),
        (
            job(2, duration_s="20"),
            f'jobs[2].duration_s: job one: should be a number, not "20"; {NUMBER}',
        ),
        (
            job(2, duration_s=0),
            f"jobs[2].duration_s: job one: should be at least 0.001, not 0; {RANGE}",
        ),
        (job(2, weight=-1), f"jobs[2].weight: job one: should be at least 0, not -1; {RANGE}"),
        (
            job(2, priority=10**400),
            "jobs[2].priority: job one: its priority is beyond 1000000000; use smaller numbers",
        ),
        (
            job(2, preemptible=1),
            "jobs[2].preemptible: job one: should be true or false, not 1; write true or false, "
            "without quotes",
        ),
        (
            job(2, after="run"),
            'jobs[2].after: job one: should be a list, not "run"; write a list in [ ]',
        ),
        (
            job(2, profile=[]),
            "jobs[2].profile: job one: should be an object, not a list; write an object in { }",
        ),
        (
            job(2, duration=5),
            "jobs[2].duration: job one: is not a known field; remove it or correct its name "
            "(did you mean duration_s?)",
        ),
        (
            job(2, zzz=5),
            "jobs[2].zzz: job one: is not a known field; remove it or correct its name",
        ),
        (
            profile(rate={"a100": "fast"}),
            f'jobs[2].profile.rate.a100: job one: should be a number, not "fast"; {NUMBER}',
        ),
        (
            profile(gpus={"two": 1}),
            'jobs[2].profile.gpus.two: job one: should be a whole number, not "two"; '
            "write a whole number in the quotes",
        ),
        (
            profile(sharing={"duty": 0}),
            f"jobs[2].profile.sharing.duty: job one: should be above 0, not 0; {RANGE}",
        ),
        (
            profile(sharing={"with": {"x": -1}}),
            f"jobs[2].profile.sharing.with.x: job one: should be at least 0, not -1; {RANGE}",
        ),
        (
            profile(locality={"node": 0.8, "cluster": 0.9}),
            "jobs[2].profile.locality: job one: a wider spread has a higher "
            "rate; let rates fall, or stay equal, from node to rack to cluster",
        ),
        (job(2, id=7), "jobs[2].id: should be a text, not 7; write a text in quotes"),
        (job(2, id=""), "jobs[2]: the job has an empty name; give it a name"),
        (job(2, id="two"), "jobs: job 'two' appears 2 times; keep or rename all but one"),
        (
            job(2, after=["nobody"]),
            "jobs[2].after[0]: job one: predecessor 'nobody' is not in jobs; name a job of this "
            "file",
        ),
        (
            job(2, after=["run", "run"]),
            "jobs[2].after[1]: job one: predecessor 'run' is named twice; name it once",
        ),
        (job(2, after=["one"]), "jobs[2].after: job one waits for itself; break the circle"),
        (
            job(2, tenant="red"),
            "jobs[2].tenant: job one: tenant 'red' is not in tenants; "
            "add it to tenants or leave the field out",
        ),
        (
            job(2, resources={"gas": 1}),
            "jobs[2].resources.gas: job one: the cluster has no 'gas'; "
            "declare it in cluster.resources",
        ),
        (
            job(3, duration_s=5),
            "jobs[3].duration_s: job two lists modes and has a duration of its own; keep one of "
            "the two",
        ),
        (
            job(3, modes=[]),
            "jobs[3].duration_s: job two has neither duration_s nor modes; "
            "add duration_s, its reference work in seconds",
        ),
        (
            job(3, modes=[{"gpus": 1}]),
            "jobs[3].modes[0].duration_s: job two: a listed mode needs a duration; "
            "add it, in seconds",
        ),
        (
            job(2, gpus=9),
            "jobs[2]: job one can never run: it needs 9 GPUs of one type, the cluster has at "
            f"most 8; {NEVER}",
        ),
        (
            job(2, resources={"licence": 3}),
            f"jobs[2]: job one can never run: it needs 3 of licence, there is 2; {NEVER}",
        ),
        (
            job(2, gpus=5, tenant="blue", profile={}),
            f"jobs[2]: job one can never run: it needs 5 GPUs, the quota of blue is 4; {NEVER}",
        ),
        (
            lambda tree: (profile(gpu_memory_gib=50)(tree), tree["cluster"]["nodes"].pop()),
            "jobs[2]: job one can never run: it needs 50 GiB of GPU memory, the largest GPU has "
            f"40; {NEVER}",
        ),
        (
            profile(memory_gib_per_gpu=4, memory_rates={"2": 0.5, "4": 1}),
            "jobs[2].profile.memory_rates: job one: 4 GiB is no less than its memory_gib_per_gpu, "
            "4; list smaller amounts, and the largest in memory_gib_per_gpu",
        ),
        (
            profile(gpu_memory_gib=2, gpu_memory_rates={"2.5": 0.5}),
            "jobs[2].profile.gpu_memory_rates: job one: 2.5 GiB is no less than its "
            "gpu_memory_gib, 2; list smaller amounts, and the largest in gpu_memory_gib",
        ),
        (
            profile(gpu_memory_gib=4, gpu_memory_rates={"2.5": 1.5}),
            "jobs[2].profile.gpu_memory_rates.2.5: job one: should be at most 1, not 1.5; write "
            "a number in range",
        ),
        (
            profile(memory_gib_per_gpu=4, memory_rates={"much": 0.5}),
            'jobs[2].profile.memory_rates.much: job one: should be a number, not "much"; '
            "write a number, without quotes",
        ),
        (
            lambda tree: (profile(rate={"h100": 1})(tree), tree["cluster"]["nodes"].pop()),
            "jobs[2]: job one can never run: its profile has rates for h100, the cluster has "
            f"a100; {NEVER}",
        ),
        (
            job(3, modes=[{"duration_s": 1, "gpus": 1, "gpu_type": "h100"}]),
            "jobs[3]: job two can never run: it asks for h100, the cluster has a100, v100; "
            f"{NEVER}",
        ),
        (
            lambda tree: (profile(cpus_per_gpu={"20": 1})(tree), tree["cluster"]["nodes"].pop()),
            "jobs[2]: job one can never run: it needs 20 cores beside each GPU, the most on one "
            "node are the 16 of a0; "
            f"{NEVER}",
        ),
        (
            lambda tree: tree["cluster"].update(rack_uplink_gbps={"q": 1}),
            "cluster.rack_uplink_gbps.q: no node is in rack 'q'; name the rack of a node or "
            "leave it out",
        ),
        (
            profile(rate={"a100": 5e-324}),
            "jobs[2].profile.rate.a100: job one: should be 0 or at least 1e-9, not 5e-324; "
            f"{RANGE}",
        ),
        (
            lambda tree: tree["cluster"].update(rack_uplink_gbps={"r": -1}),
            f"cluster.rack_uplink_gbps.r: should be at least 0, not -1; {RANGE}",
        ),
        (
            tiers(("a", 1), ("b", 1)),
            "cluster.tiers[1].priority: tiers a and b have the same priority; give each its own",
        ),
        (
            tiers(("a", 1), ("a", 2)),
            "cluster.tiers: tier 'a' appears 2 times; keep or rename all but one",
        ),
        (
            tenant(gpu_quota=None),
            "tenants[1].borrow_gpus: tenant green has no quota to go beyond; "
            "give it a gpu_quota or leave the field out",
        ),
        (
            job(2, gpus=6, tenant="green"),
            "jobs[2]: job one can never run: it needs 6 GPUs, the quota of green is 5 with what "
            f"it may borrow; {NEVER}",
        ),
        (
            lambda tree: (tenant(borrow_gpus=9)(tree), job(2, gpus=8, tenant="green")(tree)),
            "jobs[2]: job one can never run: it needs 8 GPUs, the quota of green is 7 with what "
            f"it may borrow; {NEVER}",
        ),
        (
            profile(clocks={"900": {"rate": 1}}),
            "jobs[2].profile.clocks.900.power: job one: is missing; add it",
        ),
        (
            profile(clocks={"0": {"rate": 1, "power": 1}}),
            f'jobs[2].profile.clocks.0: job one: should be at least 1, not "0"; {RANGE}',
        ),
        (
            job(3, modes=[{"duration_s": 8, "gpus": 1, "clock_mhz": 900}]),
            "jobs[3].modes[0].clock_mhz: job two: a listed "
            "mode cannot set a clock; leave it out, its duration says how fast it is",
        ),
        (
            job(0, node_labels={"ib": "required"}),
            "running[0]: job run at 100 s is on node a0, for which label ib is required; "
            "correct its mode and placement",
        ),
        (
            running(mode={"gpus": 2, "clock_mhz": 900}),
            "running[0]: job run at 100 s: it runs at a clock of 900 MHz, "
            "measured are none; correct its mode and placement",
        ),
        (
            running(mode={"gpus": 2, "resources": {"power_w": 400}}),
            "running[0]: job run at 100 s: it holds resources "
            "{'power_w': 400.0}, it asks for {'power_w': 500.0}; correct its mode and placement",
        ),
        (
            lambda tree: (
                profile(rate={"v100": 0, "a100": 1}, clocks={})(tree),
                job(2, gpus=4)(tree),
                tree["cluster"]["resources"].update(power_w=1199),
            ),
            f"jobs[2]: job one can never run: it needs 1200 of power_w, there is 1199; {NEVER}",
        ),
        (
            lambda tree: (
                tree["cluster"]["nodes"].insert(
                    1, {"name": "b0", "gpu_type": "a100", "gpus": 4, "rack": "q"}
                ),
                tree["cluster"].update(rack_uplink_gbps={"r": 4, "q": 4}),
                job(2, gpus=9)(tree),
            ),
            "jobs[2]: job one can never run: a gang of 9 GPUs must span racks, whose uplinks are "
            "too slow for its 5 Gbit/s; "
            f"{NEVER}",
        ),
        (node(name="v0"), "cluster.nodes: node 'v0' appears 2 times; keep or rename all but one"),
        (
            node(name="a[0-"),
            "cluster.nodes[0].name: 'a[0-' has a bracket without its partner; write names as "
            "gpu-[0-3,7]",
        ),
        (
            node(name="a[1,1]"),
            "cluster.nodes[0].name: 'a[1,1]' names a node twice; write names as gpu-[0-3,7]",
        ),
        (
            node(name="a[0-999999]"),
            "cluster.nodes[0].name: 'a[0-999999]' stands for more than 200000 nodes; write names "
            "as gpu-[0-3,7]",
        ),
        (node(name=""), "cluster.nodes[0].name: the name is empty; write names as gpu-[0-3,7]"),
        (
            running(job="ghost"),
            "running[0].job: 'ghost' is not in jobs; add the job or drop the entry",
        ),
        (
            running(remaining_s=0),
            "running[0].remaining_s: job run has no work left; drop the finished job",
        ),
        (
            running(remaining_s=99),
            "running[0].remaining_s: job run has 99 s of work left, its whole work is 50 s; "
            "give the remaining reference work in seconds",
        ),
        (
            running(started_s=101),
            "running[0].started_s: job run started after now_s; it must not lie in the future",
        ),
        (
            running(mode={"gpus": 2, "share_with": "old"}),
            "running[0].mode.share_with: job run: 'old' does not run "
            "beside it; name the running job on the same GPUs, or leave it out",
        ),
        (
            running(mode={"gpus": 1}),
            "running[0]: job run at 100 s: it runs on 1 GPUs, its gang is 2; "
            "correct its mode and placement",
        ),
        (
            running(placement=[{"node": "b7", "gpus": 2}]),
            "running[0].placement[0].node: job run: node 'b7' is not in the cluster; name a node "
            "of cluster.nodes",
        ),
        (
            job(0, submit_s=101),
            "running[0].job: job run has run before its submission at 101 s; correct submit_s or "
            "now_s",
        ),
        (
            job(0, after=["two"]),
            "running[0].job: job run has run although it waits for two; "
            "drop predecessors that have completed from after and from jobs",
        ),
        (
            lambda tree: tree["suspended"].append({"job": "run", "remaining_s": 1}),
            "running: running or suspended job 'run' appears 2 times; keep or rename all but one",
        ),
        (lambda tree: tree.pop("format"), "format: is missing; add it"),
        (
            lambda tree: tree.update(format="optsched/9"),
            "format: should be 'optsched/1', not \"optsched/9\"; write that",
        ),
    ],
)
def test_one_fault_is_told_with_path_and_remedy(edit: Callable[[Tree], object], says: str) -> None:
    assert says in faults(edit)
    assert len(faults(edit)) <= 3, "what follows from the fault at most"


def test_a_circle_is_told_in_full() -> None:
    def edit(tree: Tree) -> None:
        job(2, after=["two"])(tree)
        job(3, after=["one"])(tree)

    assert faults(edit) in (
        [
            "jobs[2].after: the jobs one -> two -> one wait for each other in a circle; break "
            "the circle"
        ],
        [
            "jobs[3].after: the jobs two -> one -> two wait for each other in a circle; break "
            "the circle"
        ],
    )


def test_running_jobs_that_hold_too_much_are_told_together() -> None:
    def edit(tree: Tree) -> None:
        tree["jobs"].append({"id": "also", "gpus": 3, "duration_s": 5})
        tree["running"].append(
            {
                "job": "also",
                "mode": {"gpus": 3},
                "placement": [{"node": "a0", "gpus": 3}],
                "remaining_s": 5,
            }
        )

    assert faults(edit) == [
        "running: job run at 100 s: node a0 would hold 5 GPUs of 4 (also, run); "
        "correct modes and placements"
    ]


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ({"tenants": [{"name": "blue", "gpu_quota": 2}]}, "would hold 3 GPUs of its quota of 2"),
        ({"resources": {"licence": 1}}, "the cluster would hold 2 licence of 1"),
    ],
)
def test_no_plan_begins_beyond_a_limit(limits: Tree, said: str) -> None:
    held = {"resources": {"licence": 1}} if "resources" in limits else {}
    nodes = [{"name": "n", "gpus": 4}]
    tree = {
        "format": "optsched/1",
        "cluster": {"nodes": nodes, "resources": limits.get("resources", {})},
        "tenants": limits.get("tenants", [{"name": "blue"}]),
        "jobs": [
            {"id": f"j{gpus}", "tenant": "blue", "gpus": gpus, "duration_s": 9, **held}
            for gpus in (1, 2)
        ],
        "running": [
            {
                "job": f"j{gpus}",
                "mode": {"gpus": gpus, **held},
                "placement": [{"node": "n", "gpus": gpus}],
                "remaining_s": 5,
            }
            for gpus in (1, 2)
        ],
    }
    with pytest.raises(InputError, match="1 fault\n  running: .*" + said) as refused:
        load_instance(json.dumps(tree))
    assert "`optsched round` preempts" in str(refused.value)
    decided = decide(load_instance(json.dumps(tree), now_only=True))
    assert "preempt" in [entry.decision for entry in decided.jobs]


def test_all_faults_are_told_at_once() -> None:
    def shapes(tree: Tree) -> None:
        tree["now_s"] = "noon"
        tree["jobs"][0]["weight"] = -1
        tree["jobs"][2]["profile"]["rte"] = {}
        del tree["jobs"][3]["id"]

    assert [fault.split(":")[0] for fault in faults(shapes)] == [
        "now_s",
        "jobs[0].weight",
        "jobs[2].profile.rte",
        "jobs[3].id",
    ]

    def meanings(tree: Tree) -> None:
        tree["tenants"].append({"name": "blue"})
        tree["jobs"][0]["tenant"] = "red"
        tree["jobs"][2]["after"] = ["nobody"]
        tree["jobs"][3]["modes"] = [{"duration_s": 1, "gpus": 20}]
        tree["running"][0]["remaining_s"] = 51

    assert [fault.split(":")[0] for fault in faults(meanings)] == [
        "tenants",
        "jobs[0].tenant",
        "jobs[2].after[0]",
        "running[0].remaining_s",
        "jobs[3]",
    ]


def test_only_the_first_twenty_faults_are_shown() -> None:
    def edit(tree: Tree) -> None:
        tree["jobs"] = [{"id": n} for n in range(30)]

    assert len(faults(edit)) == 30
    tree = json.loads(GOOD)
    edit(tree)
    with pytest.raises(FaultyFileError, match=r"\n  and 10 more$") as error:
        load_instance(json.dumps(tree))
    assert str(error.value).count("\n") == 21


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", 'is empty; such a file starts with {"format": "optsched/1", ...'),
        (b" \n\t", "is empty"),
        (
            b"hello",
            "file: is not JSON: a value is missing or not written as JSON at line 1 column 1; "
            "correct it there",
        ),
        (GOOD[:300].encode(), "file: is not JSON: the text ends within"),
        (GOOD.encode() + b"x", "file: is not JSON: more text follows the end at line 1 column"),
        (b"[]", "file: should be an object, not a list; write an object in { }"),
        (b"null", "file: should be an object, not null"),
        (b"[" * 100_000, "file: is not JSON: it is nested too deeply"),
        (b'{"a":' * 100_000, "file: is not JSON: it is nested too deeply"),
        (bytes(range(256)), "is not UTF-8 text: invalid start byte at byte 128"),
        (GOOD.encode("utf-16"), "is UTF-16 text; save it as UTF-8"),
        ('{"name": "\ud800"}', "is not UTF-8 text: surrogates not allowed at byte 10"),
        (b'{"name": "\\ud800"}', "file: is not JSON: half of a surrogate pair"),
        (
            GOOD.replace('"now_s": 100', '"now_s": 1' + "0" * 400),
            "now_s: should be a finite number, not 1000",
        ),
        (
            GOOD.replace('"now_s": 100', '"now_s": 1' + "0" * 9000),
            "file: is not JSON: a number has too many digits",
        ),
        (
            GOOD.replace('"now_s": 100', '"now_s": 1e400'),
            "now_s: should be a finite number, not Infinity",
        ),
        (GOOD.replace('"now_s": 100', '"now_s": NaN'), "now_s: should be a finite number, not NaN"),
        (
            GOOD.replace('"now_s": 100', '"now_s": -Infinity'),
            "now_s: should be a finite number, not -Infinity",
        ),
        (
            GOOD.replace('"id": "one"', '"id": "one", "id": "won"'),
            "jobs[2].id: is written twice; keep one of the two",
        ),
        (
            GOOD.replace('"now_s": 100', '"now_s": 100, "now_s": 1'),
            "now_s: is written twice; keep one of the two",
        ),
        (
            GOOD.replace('"now_s"', f'"now_{"s" * 10**6}": 1, "now_s"'),
            f"now_{'s' * 57}...: is not a known field; remove it or correct its name",
        ),
    ],
)
def test_what_is_not_even_json_is_told(data: bytes | str, says: str) -> None:
    with pytest.raises(InputError) as error:
        load_instance(data, "f.json")
    assert str(error.value).startswith("f.json: ") and says in str(error.value)


def test_a_key_written_twice_is_found_among_many_at_once() -> None:
    rates = ", ".join(f'"{number % 30_000}": 1' for number in range(30_001))
    start_s = time.monotonic()
    assert [str(fault) for fault in duplicate_keys(f'{{"rate": {{{rates}}}}}')] == [
        "rate.0: is written twice; keep one of the two"
    ]
    assert time.monotonic() - start_s < 5  # a minute where each is looked for among all


def test_a_byte_order_mark_is_no_fault() -> None:
    assert load_instance(b"\xef\xbb\xbf" + GOOD.encode()) == load_instance(GOOD)


@pytest.mark.parametrize(
    ("name", "data", "says"),
    [
        ("a.json.gz", b"not gzip", "is not a sound gzip file: Not a gzipped file"),
        (
            "a.json.gz",
            gzip.compress(GOOD.encode())[:-20],
            "is not a sound gzip file: Compressed file ended",
        ),
        ("a.json", gzip.compress(GOOD.encode())[:-4] + b"abcd", "is not a sound gzip file: "),
        (
            "a.json.gz",
            b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03" + b"\xff" * 30,
            "is not a sound gzip file: ",
        ),
        ("a.json", b"", "is empty"),
        ("a.json.gz", b"", "is empty"),
    ],
)
def test_files_that_cannot_be_read(tmp_path: Path, name: str, data: bytes, says: str) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(InputError) as error:
        read_instance(path)
    assert str(error.value).startswith(f"{path}: {says}")


def test_paths_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read: Is a directory"):
        read_instance(tmp_path)
    with pytest.raises(InputError, match="cannot be read: No such file or directory"):
        read_instance(tmp_path / "none.json")
    with pytest.raises(InputError, match="cannot be read: embedded null"):
        read_instance("a\0b")
    with pytest.raises(InputError, match="cannot be written: No such file or directory"):
        write_text(tmp_path / "none" / "x.json", "{}")


def test_a_file_without_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.json"
    path.write_text(GOOD)
    path.chmod(0)

    def refuse(self: Path) -> bytes:  # root may read everything, so tests cannot count on the mode
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(self))

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(InputError, match="cannot be read: Permission denied"):
        read_instance(path)


def test_files_are_written_whole_and_readable(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    write_text(path, "one")
    write_text(path, "two")
    assert path.read_text() == "two" and [p.name for p in tmp_path.iterdir()] == ["x.json"]
    assert stat.S_IMODE(path.stat().st_mode) & 0o400
    write_text(tmp_path / "y.json.gz", GOOD)
    assert read_instance(tmp_path / "y.json.gz") == load_instance(GOOD)


# --------------------------------------------------------------------------------------------------
# hostlists


@pytest.mark.parametrize(
    ("expression", "names"),
    [
        ("gpu", ["gpu"]),
        ("gpu-7", ["gpu-7"]),
        ("gpu-[0-2]", ["gpu-0", "gpu-1", "gpu-2"]),
        ("n[08-11]", ["n08", "n09", "n10", "n11"]),
        ("n[8-11]", ["n8", "n9", "n10", "n11"]),
        ("n[1,3-4, 07]x", ["n1x", "n3x", "n4x", "n07x"]),
        ("[0-1]", ["0", "1"]),
        ("r[1-2]n[0,5]", ["r1n0", "r1n5", "r2n0", "r2n5"]),
        ("a[1][2]", ["a12"]),
        ("n[3-3]", ["n3"]),
    ],
)
def test_hostlists(expression: str, names: list[str]) -> None:
    assert expand_hostlist(expression) == names


@pytest.mark.parametrize(
    ("expression", "says"),
    [
        ("", "empty"),
        ("n[", "bracket"),
        ("n]", "bracket"),
        ("n[]", "malformed"),
        ("n[a-b]", "malformed"),
        ("n[1-]", "malformed"),
        ("n[-1]", "malformed"),
        ("n[1,]", "malformed"),
        ("n[2-1]", "backwards"),
        ("n[1-2,2]", "twice"),
        ("n[1-999999999]", "more than"),
        ("n[1-1000][1-1000]", "more than"),
        ("n[[1]]", "malformed"),
        ("n[1234567890]", "malformed"),
        ("n[٣]", "malformed"),
        ("a[1,11][1,11]", "twice"),
        ("a[1-1000]" + 300 * "b", "a name of more than 256 characters"),
    ],
)
def test_hostlists_that_are_malformed(expression: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        expand_hostlist(expression)


@settings(max_examples=100)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["n", "gpu-", "", "n0"]),
            st.integers(0, 14),
            st.integers(1, 3),
            st.sampled_from([1, 2]),
        ),
        min_size=1,
        max_size=12,
    )
)
def test_folded_nodes_unfold_to_the_same(parts: list[tuple[str, int, int, int]]) -> None:
    named = {f"{head}{number:0{width}d}": gpus for head, number, width, gpus in parts}
    nodes = tuple(Node(name=name, gpus=gpus) for name, gpus in named.items())
    unfolded = [
        replace(node, name=name)
        for node in fold_nodes(nodes)
        for name in expand_hostlist(node.name)
    ]
    assert tuple(unfolded) == nodes


def test_nodes_are_folded() -> None:
    nodes = [Node(name=f"n{i:02d}", gpus=8) for i in range(8, 12)]
    assert [node.name for node in fold_nodes(tuple(nodes))] == ["n[08-11]"]
    nodes[2] = replace(nodes[2], gpus=4)
    assert [node.name for node in fold_nodes(tuple(nodes))] == ["n[08-09]", "n10", "n11"]
    assert [node.name for node in fold_nodes((nodes[1], nodes[0]))] == ["n09", "n08"]
    wide = tuple(Node(name=f"n{i}") for i in (999_999_999, 1_000_000_000))
    assert [node.name for node in fold_nodes(wide)] == ["n999999999", "n1000000000"]


# ------------------------------------------------------------------------------------------------
# what is written


def test_an_instance_is_written_readably() -> None:
    text = dump_instance(load_instance(GOOD))
    lines = text.splitlines()
    assert lines[:3] == ["{", '  "format": "optsched/1",', '  "name": "good",']
    assert '      {"name": "a[0-1]", "gpu_type": "a100", "gpus": 4, ' in text
    assert sum(line.startswith('    {"id": ') for line in lines) == 4, "a line for each job"
    assert '"weight"' not in text and "null" not in text and ".0" not in text, (
        "defaults are left out"
    )
    assert dump_instance(load_instance(text)) == text


def test_tiers_come_back() -> None:
    cluster = Cluster(
        tiers=(Tier(name="urgent", priority=5), Tier(name="b", priority=-1, preempts="never"))
    )
    text = dump_instance(Instance(cluster=cluster))
    assert load_instance(text).cluster.tiers == cluster.tiers
    assert text.count("preempts") == 1


def test_the_hash_is_of_the_content() -> None:
    instance = load_instance(GOOD)
    assert instance_hash(instance) == instance_hash(
        load_instance(json.dumps(json.loads(GOOD), indent=7))
    )
    assert instance_hash(instance) != instance_hash(replace(instance, now_s=101.0))
    assert instance_hash(instance) == instance_hash(replace(instance, now_s=100)), (
        "whole floats are integers"
    )
    assert len(instance_hash(instance)) == 16


def test_equal_profiles_become_one_object() -> None:
    tree = json.loads(GOOD)
    tree["jobs"].append({**tree["jobs"][2], "id": "three"})
    found = load_instance(json.dumps(tree)).job
    assert found["one"].profile is found["three"].profile


def test_equal_clocks_make_equal_profiles() -> None:
    tree = json.loads(GOOD)
    tree["jobs"].append({**tree["jobs"][2], "id": "three"})
    faster = {**tree["jobs"][2]["profile"], "clocks": {"900": {"rate": 0.95, "power": 0.7}}}
    tree["jobs"].append({**tree["jobs"][2], "id": "four", "profile": faster})
    found = load_instance(json.dumps(tree)).job
    assert found["one"].profile is found["three"].profile
    assert found["four"].profile.clocks == {900: Clock(rate=0.95, power=0.7)}


def test_the_power_of_running_jobs_may_be_left_out() -> None:
    short = load_instance(GOOD)
    assert short.running[0].mode.resources == {"power_w": 500.0}, "2 GPUs of 250 W"
    tree = json.loads(GOOD)
    tree["running"][0]["mode"]["resources"] = {"power_w": 500}
    full = load_instance(json.dumps(tree))
    assert full == short and dump_instance(full) == dump_instance(short)
    assert '"mode": {"gpu_type": "a100", "gpus": 2}' in dump_instance(full)
    tree["jobs"][0]["resources"] = {"power_w": 20}
    for stated in (20, 520):
        tree["running"][0]["mode"]["resources"] = {"power_w": stated}
        loaded = load_instance(json.dumps(tree))
        assert loaded.running[0].mode.resources == {"power_w": 520.0}
        assert load_instance(dump_instance(loaded)) == loaded
    tree["running"][0]["mode"] |= {"resources": {}}
    with pytest.raises(
        FaultyFileError, match=r"it holds resources {}, it asks for {'power_w': 520\.0}"
    ):
        load_instance(json.dumps(tree))


def test_the_power_of_running_jobs_is_that_of_their_clock() -> None:
    tree = json.loads(GOOD)
    tree["jobs"][0]["profile"]["clocks"] = {"900": {"rate": 0.9, "power": 0.5}}
    tree["running"][0]["mode"]["clock_mhz"] = 900
    loaded = load_instance(json.dumps(tree))
    assert loaded.running[0].mode.resources == {"power_w": 250.0}
    assert '"clock_mhz": 900' in dump_instance(loaded)
    assert load_instance(dump_instance(loaded)) == loaded


def test_an_instance_built_in_python_states_the_power_of_its_running_jobs() -> None:
    instance = load_instance(GOOD)
    check_instance(instance)
    entry = instance.running[0]
    silent = replace(instance, running=(replace(entry, mode=replace(entry.mode, resources={})),))
    assert load_instance(dump_instance(silent)) == instance, "in a file it may be left out"
    with pytest.raises(FaultyFileError, match=r"it asks for {'power_w': 500\.0}"):
        check_instance(silent)


def test_an_instance_built_in_python_is_checked_like_a_file() -> None:
    instance = Instance(
        name="mine",
        cluster=one_node(gpus=1),
        jobs=(Job(id="a", duration_s=5.0), Job(id="b", gpus=2, duration_s=-1.0)),
    )
    with pytest.raises(
        FaultyFileError, match=r"mine: 1 fault\n  jobs\[1\].duration_s: job b: should be at least"
    ):
        check_instance(instance)
    check_instance(replace(instance, jobs=instance.jobs[:1]))


@pytest.mark.parametrize("case", CASES)
def test_cases_and_their_plans_come_back(case: str, tmp_path: Path) -> None:
    instance, plan = CASES[case]()
    assert load_instance(dump_instance(instance)) == instance
    levels = (
        Level(name="wct", value=12.5, bound=10.0),
        Level(name="makespan", value=7.0, bound=None),
    )
    solution = Solution(
        instance_name=instance.name,
        instance_hash=instance_hash(instance),
        solver="hand",
        seed=3,
        objective="wct,makespan",
        status="feasible",
        levels=levels,
        plan=plan,
        bound_source="thought",
        wall_s=0.25,
        fallback="no time",
        notes=("first", "second"),
    )
    path = tmp_path / "plan.json.gz"
    write_text(path, dump_plan(solution))
    file, loaded = read_plan(path)
    assert loaded == plan
    assert file.instance.name == instance.name and file.instance.hash == instance_hash(instance)
    assert (file.solver, file.seed, file.wall_s, file.fallback, file.notes) == (
        "hand",
        3,
        0.25,
        "no time",
        ("first", "second"),
    )
    assert (
        file.objective.name,
        file.objective.value,
        file.objective.bound,
        file.objective.gap,
    ) == ("wct,makespan", 12.5, 10.0, 0.2)
    assert file.objective.status == "feasible" and file.objective.levels == levels
    jsonschema.Draft202012Validator(schema("plan")).validate(plan_object(solution))


def test_a_plan_file_without_a_plan(tmp_path: Path) -> None:
    solution = Solution(
        instance_name="i",
        instance_hash="h",
        solver="s",
        seed=0,
        objective="wct",
        status="infeasible",
        levels=(Level(name="wct", value=None, bound=None),),
        plan=None,
    )
    path = tmp_path / "plan.json"
    write_text(path, dump_plan(solution))
    file, plan = read_plan(path)
    assert plan is None and file.jobs is None and file.objective.status == "infeasible"
    path.write_text("")
    with pytest.raises(InputError, match=r'such a file starts with {"format": "optsched-plan/1"'):
        read_plan(path)
    path.write_text(dump_plan(solution).replace("optsched-plan/1", "optsched/1"))
    with pytest.raises(InputError, match=r"is an instance \(optsched/1\), expected a plan"):
        read_plan(path)


@pytest.mark.parametrize("kind", ["instance", "plan"])
def test_schemas_are_schemas(kind: str) -> None:
    found = schema(kind)  # type: ignore[arg-type]
    jsonschema.Draft202012Validator.check_schema(found)
    assert found["title"] == f"optsched {kind} file"


def test_the_schema_takes_the_file_and_refuses_a_wrong_one() -> None:
    validator = jsonschema.Draft202012Validator(schema("instance"))
    assert validator.is_valid(json.loads(GOOD))
    for edit in (job(2, gpus="x"), job(2, zzz=1), job(2, duration_s=-1), running(remaining_s=None)):
        tree = json.loads(GOOD)
        edit(tree)
        assert not validator.is_valid(tree)


def test_many_jobs_come_back() -> None:
    instance = many_jobs(300, profiles=7)
    loaded = load_instance(dump_instance(instance))
    assert loaded == instance
    assert len({id(one.profile) for one in loaded.jobs}) == 7


def test_the_default_profile_is_left_out_also_when_it_is_another_object() -> None:
    instance = Instance(
        cluster=one_node(gpus=1), jobs=(Job(id="a", duration_s=5.0, profile=Profile()),)
    )
    assert "profile" not in dump_instance(instance)


@pytest.mark.parametrize(
    "changed",
    [
        {"gpus": "two"},
        {"gpus": -1},
        {"gpus": Elastic(min=0, max=2)},
        {"weight": float("nan")},
        {"weight": 1e300},
        {"submit_s": True},
        {"after": "b"},
        {"preemptible": "yes"},
        {"profile": None},
        {"resources": {"licence": -1.0}},
        {"resources": {3: 1.0}},
        {"profile": Profile(rate={"a100": float("inf")}, gpus={0: 1.0})},
        {"profile": Profile(sharing=Sharing(duty=0.0, partners={"x": -1.0}))},
        {"profile": Profile(mixing="mean")},  # type: ignore[arg-type]
        {"id": 257 * "j"},
        {"tenant": 257 * "t"},
        {"modes": (Mode(gpus=2.5, duration_s=0.0),)},  # type: ignore[arg-type]
    ],
)
def test_what_is_made_in_python_is_checked_as_a_file_is(changed: dict[str, Any]) -> None:
    instance = load_instance(GOOD)
    i = len(instance.jobs) - 1
    job = replace(instance.jobs[i], **changed)
    with pytest.raises(InputError, match=rf"jobs\[{i}\]\.{next(iter(changed))}") as caught:
        check_instance(replace(instance, jobs=(*instance.jobs[:i], job)))
    try:
        text = dump_instance(replace(instance, jobs=(*instance.jobs[:i], job)))
        with pytest.raises(InputError) as from_file:
            load_instance(text.replace("NaN", "null"), instance.name)
    except (TypeError, ValueError, AssertionError, AttributeError):
        return  # no file could say it
    assert paths_of(caught) == [path.replace(".with", ".partners") for path in paths_of(from_file)]


def paths_of(caught: Any) -> list[str]:
    return [fault.path for fault in caught.value.faults]


def test_lists_and_dicts_are_taken_and_ranges_of_names_are_not() -> None:
    cluster = Cluster(nodes=[Node(name="a", gpus=2)])  # type: ignore[arg-type]
    instance = Instance(cluster=cluster, jobs=[Job(id="j", duration_s=1.0)])  # type: ignore[arg-type]
    check_instance(instance)
    assert instance.jobs == (Job(id="j", duration_s=1.0),) and hash(instance) == hash(instance)
    with pytest.raises(InputError, match=r"nodes\[0\]\.name: 'a\[0-3\]' is not the name of one"):
        check_instance(replace(instance, cluster=one_node("a[0-3]", gpus=2)))


@given(instances())
@settings(max_examples=25)
def test_texts_and_checks_that_are_kept_change_nothing(first: Instance) -> None:
    texts, sound = Texts(), Sound()
    heavier = tuple(replace(job, weight=job.weight + 1.0) for job in first.jobs[:1])
    then = replace(first, jobs=(*heavier, *first.jobs[1:]), name="then")
    assume(first.jobs)
    for made in (first, then, first, first):
        assert dump_instance(made, texts) == dump_instance(made)
        check_instance(made, now_only=True, sound=sound)
        wrong = replace(made, jobs=tuple(replace(job, weight=-1.0) for job in made.jobs))
        with pytest.raises(FaultyFileError) as alone:
            check_instance(wrong, now_only=True)
        with pytest.raises(FaultyFileError) as kept:
            check_instance(wrong, now_only=True, sound=sound)
        assert str(kept.value) == str(alone.value)
