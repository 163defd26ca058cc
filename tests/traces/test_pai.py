"""Alibaba PAI 2020: roles become a gang, shares of GPUs, status and times, header lines, and the
simulator's table."""

import gzip
from pathlib import Path

import pytest
from click.testing import CliRunner

from optsched import files
from optsched.cli import import_
from optsched.errors import InputError
from optsched.model.job import Job
from optsched.model.profile import UNMEASURED, Locality
from optsched.traces.imported import Imported
from optsched.traces.readers import pai
from tests.data import DATA, needs_data

from .refused import refusal

HEADERS = {
    "pai_job_table": pai.JOB_COLUMNS,
    "pai_task_table": pai.TASK_COLUMNS,
    "pai_machine_spec": pai.MACHINE_COLUMNS,
    "pai_group_tag_table": pai.TAG_COLUMNS,
}
JOBS = ["j,i,u,Terminated,1000.0,5000.0"]
TASKS = ["j,worker,2.0,Terminated,1010.0,4990.0,600.0,29.296875,50.0,T4"]
MACHINES = ["m0,T4,96,512,2", "m1,V100M32,96,384,8", "m2,MISC,96,512,8", "m3,CPU,96,512,0"]
TAGS = ["i,u,,g,nmt"]


def folder_of(
    tmp_path: Path,
    jobs: list[str],
    tasks: list[str],
    machines: list[str] = MACHINES,
    tags: list[str] | None = TAGS,
    headers: bool = False,
    packed: bool = False,
) -> Path:
    folder = tmp_path / "trace"
    folder.mkdir(exist_ok=True)
    tables = {
        "pai_job_table": jobs,
        "pai_task_table": tasks,
        "pai_machine_spec": machines,
        "pai_group_tag_table": tags,
    }
    for name, rows in tables.items():
        if rows is None:
            continue
        lines = [",".join(HEADERS[name]), *rows] if headers else rows
        text = "".join(f"{row}\n" for row in lines).encode()
        path = folder / f"{name}.csv{'.gz' if packed else ''}"
        path.write_bytes(gzip.compress(text) if packed else text)
    return folder


def read(
    tmp_path: Path,
    jobs: list[str] = JOBS,
    tasks: list[str] = TASKS,
    machines: list[str] = MACHINES,
    tags: list[str] | None = TAGS,
) -> Imported:
    return pai.read(folder_of(tmp_path, jobs, tasks, machines, tags))


def one(tmp_path: Path, *tasks: str, tags: list[str] | None = TAGS) -> Job:
    [job] = read(tmp_path, tasks=list(tasks), tags=tags).instance.jobs
    return job


@needs_data("alibaba_pai_2020_headers")
@pytest.mark.parametrize("name", list(HEADERS))
def test_columns_are_the_published_ones(name: str) -> None:
    published = (DATA / "alibaba_pai_2020_headers" / f"{name}.header").read_text().strip()
    assert ",".join(HEADERS[name]) == published


def test_the_readme_s_own_example(tmp_path: Path) -> None:
    """One instance of 600 % CPU, 30,000 MiB and half a GPU: shares a GPU; the group tag is the
    command."""
    job = one(tmp_path, "j,tensorflow,1.0,Terminated,1739162.0,1739200.0,600.0,29.296875,50.0,MISC")
    assert (job.id, job.gpus, job.duration_s, job.user, job.command, job.tenant) == (
        "j",
        1,
        38,
        "u",
        "g",
        None,
    )
    assert job.profile.sharing is not None and job.profile.sharing.duty == 0.5
    assert job.profile.cpus_per_gpu == {6: 1.0} and job.profile.memory_gib_per_gpu == 29.296875
    assert job.profile.rate == {} and job.profile.locality is None


def test_the_readme_s_job_of_two_roles(tmp_path: Path) -> None:
    """A parameter server without GPUs beside two workers of half a GPU: the workers are the gang,
    their times count."""
    job = one(
        tmp_path,
        "j,ps,1,Terminated,1000,9000,600,10,,",
        "j,worker,2,Terminated,2000,5000,400,20,50,T4",
    )
    assert (job.gpus, job.duration_s) == (2, 3000)
    assert job.profile.cpus_per_gpu == {4: 1.0} and job.profile.memory_gib_per_gpu == 20
    assert job.profile.sharing is not None and job.profile.sharing.duty == 0.5


def test_roles_with_gpus_add_up(tmp_path: Path) -> None:
    job = one(
        tmp_path,
        "j,chief,1,Terminated,1000,4000,800,16,100,T4",
        "j,worker,3,Failed,1500,4500,400,8,200,T4",
        "j,evaluator,1,Terminated,3000,5000,100,4,50,T4",
    )
    assert (job.gpus, job.duration_s) == (1 + 6 + 1, 4000)
    assert job.profile.cpus_per_gpu == {3: 1.0}  # 8 + 12 + 1 cores over 8 GPUs
    assert job.profile.memory_gib_per_gpu == (16 + 24 + 4) / 8
    assert job.profile.sharing is None and job.profile.locality is None


def test_only_parts_of_gpus_are_shared(tmp_path: Path) -> None:
    """25 % of 2 and 50 % of 1: a mean part of a third. More than a GPU is rounded up and not
    shared."""
    job = one(tmp_path, "j,a,2,Terminated,1,9,100,1,25,", "j,b,1,Terminated,1,9,100,1,50,")
    assert job.profile.sharing is not None and job.profile.sharing.duty == pytest.approx(
        1 / 3, abs=1e-6
    )
    job = one(tmp_path, "j,a,1,Terminated,1,9,100,1,150,")
    assert (job.gpus, job.profile.sharing) == (2, None)
    assert job.profile.locality == Locality(node=1.0, rack=0.0, cluster=0.0)


def test_a_job_without_gpus(tmp_path: Path) -> None:
    job = one(tmp_path, "j,a,3,Terminated,1,9,250,2,,CPU", "j,b,1,Terminated,3,11,100,1,0.0,")
    assert (job.gpus, job.cpus, job.memory_gib, job.duration_s, job.profile) == (
        0,
        9,
        7,
        10,
        UNMEASURED,
    )


def test_the_type_asked_for_restricts_the_one_given_does_not(tmp_path: Path) -> None:
    assert one(tmp_path, *TASKS).profile.rate == {}
    assert one(tmp_path, *TASKS, tags=["x,u,T4,h,", "i,u,V100M32,g,"]).profile.rate == {
        "v100m32": 1.0
    }
    (tmp_path / "trace" / "pai_group_tag_table.csv").unlink()
    job = one(tmp_path, *TASKS, tags=None)
    assert (job.command, job.profile.rate) == (None, {})


def test_machines_are_nodes(tmp_path: Path) -> None:
    nodes = read(tmp_path).instance.cluster.nodes
    assert [
        (n.name, n.gpu_type, n.gpus, n.gpu_memory_gib, n.cpus, n.memory_gib, n.rack) for n in nodes
    ] == [
        ("m0", "t4", 2, 16, 96, 512, None),
        ("m1", "v100m32", 8, 32, 96, 384, None),
        ("m2", "misc", 8, None, 96, 512, None),
        ("m3", None, 0, None, 96, 512, None),
    ]


def test_status_and_times(tmp_path: Path) -> None:
    """Failed jobs ran; those that did not end, or whose times are null, 0 or reversed, are left
    out."""
    ends = {
        "a": "Terminated,100,",
        "b": "Failed,,",
        "c": "Running,100,",
        "d": "Waiting,100,",
        "e": "Terminated,0,9",
        "f": "Terminated,100,9",
        "g": "Terminated,100,9",
        "h": "Terminated,100,9",
        "k": ",100,9",
        "l": "Failed,1,9",
    }
    tasks = [
        "a,w,1,Running,110,150,100,1,100,T4",
        "a,w2,1,Failed,,,100,1,100,T4",
        "b,w,1,Failed,90,130,100,1,100,T4",
        "c,w,1,Running,110,,100,1,100,T4",
        "d,w,1,Waiting,,,100,1,100,T4",
        "e,w,1,Terminated,80.5,90,100,1,100,T4",
        "f,w,1,Terminated,0,90,100,1,100,T4",
        "g,w,1,Terminated,90,90,100,1,100,T4",
        "h,w,1,Terminated,9,90,,1,,",
        "x,w,1,Terminated,9,90,100,1,100,T4",
    ]
    imported = read(tmp_path, [f"{name},i{name},u,{rest}" for name, rest in ends.items()], tasks)
    assert [(job.id, job.submit_s, job.duration_s, job.gpus) for job in imported.instance.jobs] == [
        ("e", 0, 9.5, 1),
        ("b", 9.5, 40, 1),
        ("a", 19.5, 40, 2),
    ]
    assert imported.read == 10
    assert imported.dropped == {
        "not ended in the trace (Running), so of unknown duration": 1,
        "not ended in the trace (Waiting), so of unknown duration": 1,
        "not ended in the trace (no status), so of unknown duration": 1,
        pai.NO_TIMES: 2,
        "ran for no time": 1,
        "asks for neither GPUs nor cores": 1,
    }


def test_what_can_never_run_comes_twice_or_is_beyond(tmp_path: Path) -> None:
    jobs = [
        f"{name},i,u,Terminated,{submit},9999"
        for name, submit in (
            ("a", 50),
            ("b", 20),
            ("c", 30),
            ("a", 60),
            ("d", 40),
            ("e", 10),
            ("f", ""),
        )
    ]
    tasks = [
        f"{name},w,1,Terminated,100,200,100,1,{gpu},T4"
        for name, gpu in (("a", 100), ("b", 1600), ("c", 100), ("d", 100), ("e", 100), ("f", 100))
    ]
    imported = pai.read(folder_of(tmp_path, jobs, tasks), start="20", end="90", jobs=2)
    assert [(job.id, job.submit_s) for job in imported.instance.jobs] == [("c", 0), ("d", 10)]
    assert imported.dropped == {
        "a job of this id came before": 1,
        "submitted before --from": 1,
        "submitted at --until or later": 1,
        "after the first 2": 1,
        "can never run on this cluster, the first is b: it needs 16 GPUs of one type, the "
        "cluster has at most 8": 1,
    }
    with pytest.raises(
        InputError, match="--from '2020-07-01': this trace has no dates; expected its seconds"
    ):
        pai.read(tmp_path / "trace", start="2020-07-01")


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("headers", [False, True])
def test_with_header_lines_or_without_packed_or_not(
    tmp_path: Path, headers: bool, packed: bool
) -> None:
    plain = read(tmp_path)
    (tmp_path / "other").mkdir()
    again = pai.read(folder_of(tmp_path / "other", JOBS, TASKS, headers=headers, packed=packed))
    assert again == plain
    assert files.load_instance(files.dump_instance(again.instance)) == again.instance


def test_equal_requests_share_a_profile(tmp_path: Path) -> None:
    jobs = [f"j{i},i,u,Terminated,{i},900" for i in range(6)]
    tasks = [f"j{i},w,1,Terminated,10,{20 + i},600,8,{50 if i % 2 else 100},T4" for i in range(6)]
    instance = read(tmp_path, jobs, tasks).instance
    assert len({id(job.profile) for job in instance.jobs}) == 2


@pytest.mark.parametrize(
    ("table", "row", "message"),
    [
        (
            "jobs",
            "j,i,u,Terminated,1000.0",
            "pai_job_table.csv: line 2: expected 6 cells separated by commas, not 5",
        ),
        (
            "jobs",
            "k,i,u,Terminated,soon,9",
            "pai_job_table.csv: line 2: expected start_time as a number, found 'soon'",
        ),
        ("jobs", ",i,u,Terminated,1,9", "pai_job_table.csv: line 2: expected a job_name, found ''"),
        (
            "tasks",
            "j,w,1.5,Terminated,1,9,100,1,100,T4",
            "pai_task_table.csv: line 2: expected inst_num as a whole number",
        ),
        (
            "tasks",
            "j,w,1,Terminated,1,9,100,1,-1,T4",
            "pai_task_table.csv: line 2: expected plan_gpu of at least 0, found '-1'",
        ),
        (
            "tasks",
            "j,w,1e6,Terminated,1,9,100,1,101,T4",
            "pai_task_table.csv: line 2: expected inst_num times plan_gpu of",
        ),
        (
            "machines",
            "m0,T4,96,512,2",
            "pai_machine_spec.csv: line 5: expected each machine once, found 'm0'",
        ),
        (
            "machines",
            "m[4],T4,96,512,2",
            "pai_machine_spec.csv: line 5: expected a machine's name of letters",
        ),
        (
            "tags",
            "i,u,T4",
            "pai_group_tag_table.csv: line 2: expected 5 cells separated by commas, not 3",
        ),
    ],
)
def test_a_damaged_table_is_refused_with_its_line(
    tmp_path: Path, table: str, row: str, message: str
) -> None:
    tables = {"jobs": [*JOBS], "tasks": [*TASKS], "machines": [*MACHINES], "tags": [*TAGS]}
    tables[table].append(row)
    assert refusal(read, tmp_path, **tables).removeprefix(f"{tmp_path}/trace/").startswith(message)


def test_tables_that_are_missing_or_others(tmp_path: Path) -> None:
    for name in ("pai_machine_spec", "pai_task_table", "pai_job_table"):
        folder = folder_of(tmp_path, JOBS, TASKS)
        (folder / f"{name}.csv").unlink()
        with pytest.raises(InputError, match=f"no {name}.csv "):
            pai.read(folder)
    folder = folder_of(tmp_path, ["a,b,c"], TASKS)
    with pytest.raises(InputError, match=r"line 1: expected 6 columns .* found 3"):
        pai.read(folder)
    (folder / "pai_job_table.csv").write_text("job_name,user\nj,u\n")
    with pytest.raises(
        InputError, match=r"line 1: expected a header with the columns job_name, .* are missing"
    ):
        pai.read(folder)


# ------------------------------------------------------------------------------------------------
# the simulator's

SIMULATOR = "job_id,num_inst,user,num_gpu,num_cpu,submit_time,duration,gpu_type,group,group_dur\n"


def simulator(
    tmp_path: Path, *rows: str, header: str = SIMULATOR, cluster: str | None = "t4=16"
) -> Imported:
    path = tmp_path / "pai_job.csv"
    path.write_text(header + "".join(f"{row}\n" for row in rows))
    return pai.read(path, cluster=cluster)


def test_the_simulators_table(tmp_path: Path) -> None:
    imported = simulator(
        tmp_path,
        "0,1,u,0.25,6.0,100,60,T4,g,9.5",
        "1,4,u,2,12,0,30.5,P100,g,",
        "2,1,v,0.0,5.5,50,10,CPU,,",
        "3,1,v,0,0,50,10,,,",
        "4,1,v,1,1,50,0,,,",
        "5,1,v,1,1,50,,,,",
        "6,1,v,100,1,50,9,,,",
        "1,1,v,1,1,50,9,,,",
    )
    shared, gang, cores = (imported.instance.job[name] for name in "012")
    assert [job.id for job in imported.instance.jobs] == ["1", "2", "0"]
    assert (shared.gpus, shared.duration_s, shared.user, shared.command) == (1, 60, "u", "g")
    assert shared.profile.sharing is not None and shared.profile.sharing.duty == 0.25
    assert (gang.gpus, gang.profile.cpus_per_gpu, gang.profile.sharing) == (8, {6: 1.0}, None)
    assert (cores.gpus, cores.cpus, cores.command) == (0, 6, None)
    assert (imported.read, imported.dropped) == (
        8,
        {
            "asks for neither GPUs nor cores": 1,
            "ran for no time": 1,
            "of unknown duration": 1,
            "a job of this id came before": 1,
            "can never run on this cluster, the first is 6: it needs 100 GPUs of one "
            "type, the cluster has at most 16": 1,
        },
    )
    files.load_instance(files.dump_instance(imported.instance))


def test_the_simulators_table_with_the_least_columns(tmp_path: Path) -> None:
    header = "submit_time,duration,num_gpu,job_id\n"
    [job] = simulator(tmp_path, "5,60,1,x", header=header).instance.jobs
    assert (job.id, job.gpus, job.user, job.profile.cpus_per_gpu) == ("x", 1, None, {})
    (tmp_path / "pai_machine_spec.csv").write_text("m0,T4,96,512,2\n")
    assert (
        simulator(tmp_path, "5,60,1,x", header=header, cluster=None).instance.cluster.total_gpus
        == 2
    )


def test_other_files_are_no_source(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="name the GPUs with --cluster"):
        simulator(tmp_path, "0,1,u,1,6,100,60,T4,g,", cluster=None)
    with pytest.raises(
        InputError, match=r"expected the folder of the pai_.* or a table with .* found 'a, b'"
    ):
        simulator(tmp_path, header="a,b\n")
    with pytest.raises(InputError, match="line 2: expected a job_id and a submit_time"):
        simulator(tmp_path, "0,1,u,1,6,,60,T4,g,")
    with pytest.raises(
        InputError, match="--gpus-per-node goes with --cluster; the trace's own machines"
    ):
        pai.read(folder_of(tmp_path, JOBS, TASKS), gpus_per_node=4)
    with pytest.raises(InputError, match="cannot be read: No such file"):
        pai.read(tmp_path / "absent.csv")


@needs_data("alibaba_pai_2020_headers")
def test_a_list_of_run_times_is_no_trace() -> None:
    with pytest.raises(InputError, match="found 'runtime'"):
        pai.read(DATA / "alibaba_pai_2020_headers" / "philly_runtime.csv.gz")


def test_the_command_line(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, JOBS, TASKS)
    output = tmp_path / "pai.json"
    result = CliRunner().invoke(import_.command, ["pai", str(folder), "-o", str(output)])
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith(
        f"read 1 job from {folder}, kept 1\ncluster of 4 nodes, 18 GPUs\n"
    )
    assert [job.gpus for job in files.read_instance(output).jobs] == [2]
