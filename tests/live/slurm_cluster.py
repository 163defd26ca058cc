"""A real Slurm cluster on this host: munged, slurmctld and several slurmd with fake GPUs, all in
one folder."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from optsched.executors.slurm.client import SlurmClient
from optsched.executors.slurm.executor import SlurmExecutor
from optsched.executors.slurm.setup import setup_sbatch
from optsched.executors.slurm.site import Site
from optsched.executors.supervision import processes

PACKAGES = "slurmctld slurmd slurm-client munge slurm-wlm-basic-plugins"
CONF = """
ClusterName=lab
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket,cred_expire=5
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/run/slurmctld.pid
SlurmdPidFile={folder}/run/slurmd.%n.pid
SlurmctldLogFile={folder}/log/slurmctld.log
SlurmdLogFile={folder}/log/slurmd.%n.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerType=sched/builtin
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,sched_interval=2,default_queue_depth=2000
PriorityType=priority/basic
PreemptType=preempt/none
ReturnToService=1
JobRequeue=1
KillWait=5
MinJobAge=600
MaxJobCount=20000
SlurmctldTimeout=10
SlurmdTimeout=10
MessageTimeout=10
MpiDefault=none
SwitchType=switch/none
GresTypes=gpu
TreeWidth=256
NodeName=n[1-{nodes}] NodeHostname={host} NodeAddr=127.0.0.1 Port=[{first}-{last}] CPUs=32 Sockets=2 CoresPerSocket=16 \
ThreadsPerCore=1 RealMemory=500000 Gres=gpu:h100:{gpus} State=UNKNOWN
PartitionName=optsched Nodes=ALL MaxTime=INFINITE State=UP OverSubscribe=NO
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO
"""  # noqa: E501
ACCOUNTING_PACKAGES = "slurmdbd slurm-wlm-mysql-plugin mariadb-server"
ACCOUNTING = """
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={dbd}
AccountingStoragePass={folder}/munge/socket
AccountingStorageEnforce=associations,limits,qos
AccountingStorageTRES=gres/gpu
"""
FAIR_TREE = """PriorityType=priority/multifactor
PriorityWeightFairshare=1000
PriorityDecayHalfLife=14-0
PriorityCalcPeriod=1"""
BILLING = "TRESBillingWeights=CPU=0,GRES/gpu=1000000"
DBD = """
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort={dbd}
SlurmUser=root
LogFile={folder}/log/slurmdbd.log
PidFile={folder}/run/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={sql}
StorageUser=root
StorageLoc=slurm
"""


def missing() -> str | None:
    """Why no cluster can be had here, None if one can."""
    absent = [
        name
        for name in ("slurmctld", "slurmd", "munged", "sbatch")
        if shutil.which(name, path=_path()) is None
    ]
    if absent:
        return f"{', '.join(absent)} not found; apt-get install --no-install-recommends {PACKAGES}"
    return None if os.geteuid() == 0 else "only root can make fake GPUs and start slurmd"


def missing_accounting() -> str | None:
    """Why no cluster with an accounting database can be had here, None if one can."""
    absent = [
        name
        for name in ("slurmdbd", "mariadbd", "sacctmgr")
        if shutil.which(name, path=_path()) is None
    ]
    if absent:
        return f"{', '.join(absent)} not found; apt-get install --no-install-recommends {ACCOUNTING_PACKAGES}"  # noqa: E501
    return missing()


def _path() -> str:
    return f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"


class SlurmCluster:
    """The daemons, and what a test does to them."""

    def __init__(
        self,
        folder: Path,
        nodes: int,
        gpus: int,
        holds: bool = False,
        accounting: bool = False,
        fair_tree: bool = False,
    ) -> None:
        """With `holds` jobs that users submit to the partition `optsched` are held; with
        `accounting` there is a database, in which nobody has the account `lab`; with `fair_tree`
        GPU-seconds are use, a million each."""
        self.fair_tree = fair_tree
        self.folder, self.nodes, self.gpus, self.holds, self.accounting = (
            folder,
            nodes,
            gpus,
            holds,
            accounting,
        )
        self.conf = folder / "etc" / "slurm.conf"
        self.killed = False

    def prepare(self) -> None:
        """All files, and munged."""
        for name in (
            "etc",
            "munge",
            "state",
            "log",
            "run",
            "dev",
            *(f"spool/n{i}" for i in self._numbers()),
        ):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o755)
        (self.folder / "munge").chmod(0o711)
        for i in range(self.gpus):
            os.mknod(self.folder / "dev" / f"nvidia{i}", 0o020666, os.makedev(195, i))
        key = self.folder / "munge" / "key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        first = _free_ports(self.nodes + 3)
        conf = CONF.format(
            host=socket.gethostname().split(".")[0],
            port=first,
            folder=self.folder,
            nodes=self.nodes,
            gpus=self.gpus,
            first=first + 1,
            last=first + self.nodes,
        )
        if self.holds:
            files = setup_sbatch(
                f"n[1-{self.nodes}]", "optsched", str(self.shared), heartbeat=str(self.heartbeat)
            )
            (self.folder / "etc" / "job_submit.lua").write_text(files["job_submit.lua"])
            added = [
                line.partition("=")[0]
                for line in files["slurm.conf.part"].splitlines()
                if line[0] != "#"
            ]
            kept = [line for line in conf.splitlines() if line.partition("=")[0] not in added]
            conf = "\n".join([*kept, files["slurm.conf.part"]]).replace(
                "JobRequeue=1", "JobRequeue=0"
            )
        if self.fair_tree:
            conf = conf.replace("PriorityType=priority/basic", FAIR_TREE).replace(
                "State=UP OverSubscribe=NO", "State=UP OverSubscribe=NO " + BILLING
            )
        if self.accounting:
            conf += ACCOUNTING.format(folder=self.folder, dbd=first + self.nodes + 1)
        self.conf.write_text(conf)
        (self.folder / "etc" / "gres.conf").write_text(
            f"AutoDetect=off\nNodeName=n[1-{self.nodes}] Name=gpu Type=h100 "
            f"File={self.folder}/dev/nvidia[0-{self.gpus - 1}]\n"
        )
        if not self._run("slurmctld", "-V").startswith("slurm-wlm 22."):
            (self.folder / "etc" / "cgroup.conf").write_text(
                "CgroupPlugin=disabled\n"
            )  # or slurmd wants systemd
        munge = self.folder / "munge"
        self._run(
            "munged",
            f"--key-file={munge}/key",
            f"--socket={munge}/socket",
            f"--pid-file={munge}/pid",
            f"--log-file={munge}/log",
            f"--seed-file={munge}/seed",
        )
        if self.accounting:
            self._start_accounting(first + self.nodes + 1, first + self.nodes + 2)

    def _start_accounting(self, dbd: int, sql: int) -> None:
        """MariaDB, in which everybody on this host is root, and slurmdbd."""
        (self.folder / "etc" / "slurmdbd.conf").write_text(
            DBD.format(folder=self.folder, dbd=dbd, sql=sql)
        )
        (self.folder / "etc" / "slurmdbd.conf").chmod(0o600)
        database = self.folder / "sql"
        self._run(
            "mariadb-install-db",
            "--no-defaults",
            "--user=root",
            f"--datadir={database}",
            "--skip-test-db",
        )
        with (self.folder / "log" / "mariadb.log").open("w") as log:
            subprocess.Popen(
                [
                    "mariadbd",
                    "--no-defaults",
                    "--user=root",
                    f"--datadir={database}",
                    f"--port={sql}",
                    "--bind-address=127.0.0.1",
                    f"--socket={self.folder}/run/sql.socket",
                    "--skip-grant-tables",
                    f"--pid-file={self.folder}/run/mariadb.pid",
                    "--innodb-buffer-pool-size=8M",
                ],
                env={"PATH": _path(), "TMPDIR": str(self.folder / "run")},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        wait_until(lambda: _listens(sql))
        self._run("slurmdbd")
        wait_until(lambda: _listens(dbd))

    def add_user(self) -> None:
        """The one of the account `lab`, once the controller has said which cluster it is and has
        read who is there: it forgets what it is told of before."""
        wait_until(
            lambda: "lab" in self._run("sacctmgr", "-nP", "list", "cluster", "format=cluster")
        )
        wait_until(
            lambda: "Account=root" in self._run("scontrol", "show", "assoc_mgr", "flags=assoc")
        )
        self._run("sacctmgr", "-i", "add", "account", "lab")
        self._run("sacctmgr", "-i", "add", "user", "nobody", "account=lab", "defaultaccount=lab")
        wait_until(
            lambda: "UserName=nobody" in self._run("scontrol", "show", "assoc_mgr", "flags=users")
        )

    @property
    def shared(self) -> Path:
        """A state folder for a controller that runs held jobs."""
        return self.folder / "shared"

    @property
    def heartbeat(self) -> Path:
        """What tells job_submit.lua that a controller runs."""
        return self.folder / "heartbeat" / "optsched"

    def _numbers(self) -> range:
        return range(1, self.nodes + 1)

    def _run(self, *words: str) -> str:
        done = subprocess.run(
            words,
            env={"PATH": _path(), "SLURM_CONF": str(self.conf), "TMPDIR": str(self.folder / "run")},
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return done.stdout

    def slurm(self, *words: str) -> str:
        """What one of Slurm's programs prints, once the controller answers."""
        return self._run(*words)

    def sbatch(self, script: str, *words: str, uid: int = 0, folder: Path | str = "/tmp") -> str:
        """Submit as a user does, to the partition `optsched`; the job's number."""
        asked = ("--parsable", "--partition=optsched", f"--chdir={folder}", *words)
        return self.as_user(uid, "sbatch", *asked, given=f"#!/bin/sh\n{script}\n").strip()

    def as_user(self, uid: int, *words: str, given: str = "") -> str:
        """What one of Slurm's programs prints to a user."""
        ids = {"user": uid, "group": uid, "extra_groups": []} if uid else {}
        done = subprocess.run(  # type: ignore[call-overload]
            words,
            env={"PATH": _path(), "SLURM_CONF": str(self.conf)},
            cwd="/",
            input=given,
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
            **ids,
        )
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return str(done.stdout)

    def start_controller(self) -> None:
        self._run("slurmctld", "-f", str(self.conf))

    def start_node(self, number: int) -> None:
        self._run("slurmd", "-N", f"n{number}", "-f", str(self.conf))

    def until_saved(self) -> None:
        """Until the controller has written down all that it knows now, which it does every five
        seconds."""
        mark = f"saved-{time.monotonic_ns()}"
        job = self._run(
            "sbatch", "--parsable", "--hold", f"--job-name={mark}", "--wrap=true"
        ).strip()
        wait_until(lambda: mark.encode() in (self.folder / "state" / "job_state").read_bytes())
        self._run("scancel", job)

    def recount(self) -> None:
        """Have Slurm count its GPUs anew, once all jobs have ended: 22.05 takes those for held of a
        job that began in the seconds after its controller was started beside one that ran on."""
        if self.killed:
            self._run("scontrol", "reconfigure")
            wait_until(lambda: self._states() == ["idle"] * self.nodes)
            self.killed = False

    def kill_controller(self) -> None:
        """As in a crash."""
        self.killed = True
        self._kill(self.folder / "run" / "slurmctld.pid", signal.SIGKILL)

    def kill_node(self, number: int) -> None:
        """A crash of the host: slurmd, its slurmstepd and all below them."""
        self._kill(self.folder / "run" / f"slurmd.n{number}.pid", signal.SIGKILL)
        ours = (f"SLURMD_NODENAME=n{number}".encode(), f"SLURM_CONF={self.conf}".encode())
        agents = processes.marked(*ours)
        above = [
            one.pid
            for pid in agents
            for one in psutil.Process(pid).parents()
            if one.name() == "slurmstepd"
        ]
        below = [pid for agent in agents for pid in processes.descendants(agent)]
        processes.send_all(list(dict.fromkeys([*above, *agents, *below])), signal.SIGKILL)

    def set_node(self, number: int, state: str) -> None:
        """As an administrator does."""
        self._run("scontrol", "update", f"nodename=n{number}", f"state={state}", "reason=a test")
        if state == "resume":
            wait_until(lambda: self._states(f"--nodes=n{number}") in (["idle"], ["mix"]))

    def _states(self, *which: str) -> list[str]:
        return self._run("sinfo", "-h", "-p", "optsched", "-N", *which, "-o", "%t").split()

    def _kill(self, file: Path, number: int) -> None:
        with suppress(OSError, ValueError):
            pid = int(file.read_text())
            os.kill(pid, number)
            end_s = time.monotonic() + 20
            while (
                (who := processes.identity(pid))
                and processes.alive(who)
                and time.monotonic() < end_s
            ):
                time.sleep(0.01)

    def until_idle(self) -> None:
        """Until all nodes take jobs, and a job has run: the first pass over the queue takes
        seconds."""
        wait_until(lambda: self._states() == ["idle"] * self.nodes)
        first = self._run(
            "sbatch", "--parsable", "--output=/dev/null", "--mem=1M", "--wrap=true"
        ).strip()
        wait_until(
            lambda: (
                self._run("squeue", "-h", "--states=all", f"--jobs={first}", "-o", "%T")
                == "COMPLETED\n"
            )
        )

    def down(self) -> None:
        """End all, by the files that say who it is."""
        with suppress(AssertionError, subprocess.TimeoutExpired):
            for partition in ("optsched", "all"):
                self._run("scancel", f"--partition={partition}", "--signal=KILL", "--full")
                self._run("scancel", f"--partition={partition}")
            with suppress(TimeoutError):
                wait_until(lambda: not self._run("squeue", "-h", "-o", "%i"), 15)
        self.kill_controller()
        run = self.folder / "run"
        for file in (
            *sorted(run.glob("slurmd.*.pid")),
            run / "slurmdbd.pid",
            run / "mariadb.pid",
            self.folder / "munge" / "pid",
        ):
            self._kill(file, signal.SIGTERM)

    def executor(
        self, folder: Path, patience_s: float = 30.0, programs: Path | None = None
    ) -> SlurmExecutor:
        """One on this cluster, with its state in `folder`."""
        client = SlurmClient(patience_s, self.conf, programs)
        return SlurmExecutor(
            folder, client, Site(partition="optsched", poll_s=0.1, python=everybodys_python()), {}
        )


def everybodys_python() -> str | None:
    """An interpreter that users who may not enter ours' folder can run."""
    for name in (sys.executable, "/usr/bin/python3"):
        at = Path(name).resolve()
        if at.exists() and all(folder.stat().st_mode & 0o001 for folder in (at, *at.parents)):
            return name
    return None


def wait_until(true: Callable[[], object], patience_s: float = 60.0) -> None:
    """Raises TimeoutError where that does not come about."""
    end_s = time.monotonic() + patience_s
    while not true():
        if time.monotonic() > end_s:
            raise TimeoutError
        time.sleep(0.05)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _free_ports(count: int) -> int:
    """The first of so many that are free, one after the other."""
    first = 17000 + os.getpid() % 500 * 30
    while True:
        with suppress(OSError):
            for port in range(first, first + count):
                with socket.socket() as probe:
                    probe.bind(("", port))
            return first
        first += count


@contextmanager
def slurm_cluster(
    nodes: int = 4,
    gpus: int = 4,
    holds: bool = False,
    accounting: bool = False,
    fair_tree: bool = False,
) -> Iterator[SlurmCluster]:
    """A cluster that is up."""
    with tempfile.TemporaryDirectory(prefix="optsched-slurm-", ignore_cleanup_errors=True) as name:
        cluster = SlurmCluster(Path(name), nodes, gpus, holds, accounting, fair_tree)
        try:
            cluster.prepare()
            cluster.start_controller()
            if accounting:
                cluster.add_user()
            for number in range(1, nodes + 1):
                cluster.start_node(number)
            cluster.until_idle()
            yield cluster
        finally:
            cluster.down()


def main() -> None:
    """`python -m tests.live.slurm_cluster [NODES [GPUS [1]]]`: a cluster to try things on, until a
    key is pressed; with the last it holds jobs."""
    reason = missing()
    if reason is not None:
        sys.exit(reason)
    nodes, gpus, holds = (*map(int, sys.argv[1:]), *(4, 4, 0)[len(sys.argv) - 1 :])
    with slurm_cluster(nodes, gpus, bool(holds)) as cluster:
        print(f"export SLURM_CONF={cluster.conf}")
        if holds:
            print(f'shared = "{cluster.shared}"\n[slurm]\nheartbeat = "{cluster.heartbeat}"')
        input("up; Enter ends it: ")


if __name__ == "__main__":
    main()
