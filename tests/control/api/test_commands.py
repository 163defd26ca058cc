"""The commands against a controller that answers: what they print, and their exit statuses."""

import contextlib
import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from optsched.cli import main
from optsched.cli.queue import COLUMNS
from optsched.control.api.client import Client
from optsched.control.journal.log import line
from optsched.executors.base import AttemptKey, Beside

from .live import Live, until

Run = Any
NOBODY = 65534


@pytest.fixture
def run(live: Live, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command in this process: its status, stdout and stderr."""
    monkeypatch.setenv("OPTSCHED_URL", f"unix:{live.path}")

    def running(*words: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main(list(words))
        out = capsys.readouterr()
        return int(ended.value.code or 0), out.out, out.err

    return running


def test_shares_says_where_use_is_not_counted(run: Run) -> None:
    status, out, _ = run("shares")
    assert status == 0 and "use is not counted" in out
    assert json.loads(run("shares", "--json")[1])["rows"] == []


def test_submit_prints_the_name_and_carries_every_option(
    live: Live, run: Run, tmp_path: Path
) -> None:
    profile = tmp_path / "profile.json"
    profile.write_text(json.dumps({"profile": {"checkpoint_s": 7, "rate": {"a": 0.5}}}))
    status, out, err = run(
        "submit",
        "--name",
        "full",
        "--gpus",
        "1-4",
        "--gpu-type",
        "a",
        "--cpus",
        "2",
        "--memory",
        "3",
        "--time",
        "1h30m",
        "--steps",
        "100",
        "--weight",
        "2",
        "--priority",
        "5",
        "--deadline",
        "2d",
        "--retries",
        "1",
        "--grace",
        "90s",
        "--no-preempt",
        "--hold",
        "--profile",
        str(profile),
        "--env",
        "A=1",
        "--env",
        "HOME",
        "--",
        "train",
        "--gpus",
        "9",
    )
    assert (status, out, err) == (0, "full\n", "")
    made = live.loop.ask(lambda controller: controller.state.jobs["full"].submission)
    job = made.job
    assert made.argv == ("train", "--gpus", "9") and made.directory == os.getcwd()
    assert made.environment == {"A": "1", "HOME": os.environ["HOME"]}
    assert (job.gpus.min, job.gpus.max, job.duration_s, job.weight, job.priority) == (
        1,
        4,
        5400.0,
        2.0,
        5,
    )
    assert (made.total_steps, made.retries, made.grace_s, made.hold, job.preemptible) == (
        100,
        1,
        90.0,
        True,
        False,
    )
    assert job.profile.cpus_per_gpu == {2: 1.0} and job.profile.memory_gib_per_gpu == 3.0
    assert (job.profile.checkpoint_s, job.profile.rate) == (7.0, {"a": 0.5})
    assert 2 * 86400 - 600 < job.deadline_s - live.clock.now_s() <= 2 * 86400
    status, out, _ = run(
        "submit", "--hold", "--json", "--gpus", "0", "--cpus", "2", "--after", "full", "--", "x"
    )
    assert status == 0 and json.loads(out)["after"] == ["full"] and json.loads(out)["cpus"] == 2
    near = ("--label", "db", "--near", "web@rack", "--apart", "db", "--node-label", "!spot")
    status, out, _ = run("submit", "--hold", *near, "--", "x")
    asked = live.controller.state.jobs[out.strip()].submission.job
    assert (asked.labels, asked.affinity, asked.anti_affinity, asked.node_labels) == (
        (f"{asked.user}/db",),
        {f"{asked.user}/web": "rack"},
        {f"{asked.user}/db": "node"},
        {"spot": "forbidden"},
    )


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--gpus", "x", "--", "y"), "'x' is not a count of GPUs"),
        (("--nodes", "0", "--", "y"), "'0' is not a count of nodes"),
        (("--gpus", "8", "--", "y"), "add --nodes 2"),
        (("--time", "soon", "--", "y"), "not a duration"),
        (("--deadline", "soon", "--", "y"), "neither a time from now"),
        (("--env", "NOT_THERE_AT_ALL", "--", "y"), "this shell has no such variable"),
        (("--profile", "/none", "--", "y"), "/none: cannot be read"),
        (("--resource", "licence", "--", "y"), "has no amount"),
        (("--near", "web@zone", "--", "y"), "affinity.web should be 'node' or 'rack'"),
        (("--label", "", "--", "y"), "labels[0]"),
        (("--node-label", "ssd", "--", "y"), "as its node_labels say: ssd (required)"),
        (("--gpus", "9", "--", "y"), "it can never run here: it needs 9 GPUs"),
        (("--name", "a/b", "--", "y"), "name takes letters"),
        (("--after", "none", "--", "y"), "after: there is no job 'none'"),
        (("--", "\udcff"), "is no UTF-8 text"),
        ((), "give a command after --"),
    ],
)
def test_submit_refuses_with_one_sentence(run: Run, words: tuple[str, ...], sentence: str) -> None:
    status, out, err = run("submit", *words)
    assert (status, out) == (2, "") and sentence in err and "Traceback" not in err


def test_queue_lists_and_changes_change(run: Run) -> None:
    run("submit", "--name", "q1", "--hold", "--", "work", "1000", "0", "0")
    status, out, _ = run("queue")
    row = next(line for line in out.splitlines() if line.startswith("q1 "))
    assert status == 0 and "held" in row and "it was submitted on hold" in row and "~1 h" in row
    assert run("release", "q1") == (0, "q1 is released\n", "")
    status, out, err = run("cancel", "none", "q1")
    assert (status, out, err) == (1, "q1 is cancelled\n", "optsched: there is no job 'none'\n")
    assert run("hold", "q1")[0] == 1
    status, out, _ = run("cancel", "q1", "--json")
    assert status == 0 and [job["id"] for job in json.loads(out)] == ["q1"]
    status, out, _ = run("queue", "--finished", "--all", "--json")
    assert status == 0 and "q1" in [job["id"] for job in json.loads(out)["jobs"]]
    status, out, _ = run("queue", "--finished", "--all")
    assert "root" in out or os.geteuid() != 0


def test_chosen_jobs_are_cancelled_and_many_only_if_that_is_meant(
    live: Live, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    for i in range(7):
        live.submit(name=f"sweep-{i}", hold=True)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    asked: list[str] = []

    def refuse(text: str, **more: Any) -> None:
        asked.append(text)
        raise click.Abort

    monkeypatch.setattr(click, "confirm", refuse)
    assert run("cancel", "--name", "sweep-*")[0] != 0 and asked == ["cancel 7 jobs?"]
    assert run("release", "--name", "sweep-[01]") == (
        0,
        "2 jobs are released: sweep-0, sweep-1\n",
        "",
    )
    status, out, _ = run("cancel", "--name", "sweep-*", "--state", "held", "--yes", "--json")
    assert status == 0 and json.loads(out) == {"jobs": [f"sweep-{i}" for i in range(2, 7)]}
    assert run("cancel", "--name", "sweep-*", "--state", "held")[1] == "0 jobs are cancelled\n"
    for words in ((), ("--yes",), ("sweep-1", "--name", "sweep-*")):
        status, _, err = run("cancel", *words)
        assert status == 2 and "name jobs, or choose them by --name" in err
    assert len(asked) == 1


def test_clear_says_what_it_did(live: Live, run: Run) -> None:
    live.submit(1000.0, name="c1")
    live.wait("c1", "running")
    status, _, err = run("clear", "c1")
    assert status == 1 and "attempt 1 of c1 is not lost" in err
    live.executor.hidden.add(AttemptKey("c1", 1))
    live.wait("c1", "lost")
    run("cancel", "c1")
    assert run("clear", "c1") == (0, "c1 is cleared\n", "")
    live.wait("c1", "cancelled")
    live.executor.kill(AttemptKey("c1", 1))
    live.executor.hidden.clear()


def test_queue_goes_through_all_pages_up_to_the_limit(live: Live, run: Run) -> None:
    for i in range(4):
        live.submit(name=f"many-{i}", hold=True)
    total = live.ask("GET", "/v1/jobs?limit=1")[1]["total"]
    status, out, _ = run("queue", "--limit", "2")
    assert status == 0 and f"and {total - 2:,} more" in out
    assert len(json.loads(run("queue", "--json")[1])["jobs"]) == total


def test_queue_shows_the_jobs_and_columns_that_are_asked_for(live: Live, run: Run) -> None:
    for i in range(3):
        live.submit(name=f"chosen-{i}", hold=True, weight=1.0 + i, gpus=0)
    choice = ("queue", "--name", "chosen-*", "--state", "held,waiting")
    assert run(*choice, "--columns", ",".join(COLUMNS))[0] == 0
    status, out, _ = run(*choice, "--sort", "-weight", "--columns", "weight,job,gpus")
    rows = [line.split() for line in out.splitlines()]
    assert (status, rows[0]) == (0, ["weight", "job", "GPUs"])
    assert rows[2:] == [[f"{i + 1}", f"chosen-{i}", "-"] for i in (2, 1, 0)]
    assert run(*choice, "--state", "lost")[1] == "no jobs that you asked for\n"
    for wrong, sentence in (
        (("--columns", "job,size"), "'size' is not a column; choose from job, status"),
        (("--sort", "size"), "sort takes submitted, started"),
        (("--state", "done"), "state takes waiting, held"),
    ):
        status, out, err = run("queue", *wrong)
        assert (status, out) == (2, "") and sentence in err


def test_top_once(live: Live, run: Run) -> None:
    live.submit(1000.0, name="seen", gpus=3)
    live.wait("seen", "running")
    status, out, _ = run("top")
    assert (
        status == 0
        and "3 of 8 in use" in out
        and "seen (3)" in out
        and "2 of 2 nodes usable" in out
    )
    found = json.loads(run("top", "--json")[1])
    assert found["state"]["gpus_in_use"] == 3 and "seen" in [job["id"] for job in found["jobs"]]
    run("cancel", "seen")
    live.wait("seen", "cancelled")


def test_no_controller_is_told_in_one_sentence(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("OPTSCHED_URL", f"unix:{tmp_path}/api.sock")
    status, out, err = run("queue")
    assert (status, out) == (1, "") and err.count("\n") == 1 and "no controller answers at" in err
    monkeypatch.setenv("OPTSCHED_URL", "http://127.0.0.1:1")
    assert "no controller answers at http://127.0.0.1:1" in run("submit", "--", "x")[2]
    monkeypatch.setenv("OPTSCHED_URL", "ftp://x")
    assert run("queue")[0] == 2
    monkeypatch.delenv("OPTSCHED_URL")
    monkeypatch.chdir(tmp_path)
    status, _, err = run("queue")
    assert status == 2 and "cluster.toml: there is no such file" in err
    (tmp_path / "cluster.toml").write_text('format = "optsched-cluster/1"\nstate = "here"\n')
    status, _, err = run("queue")
    assert status == 1 and f"no controller answers at {tmp_path}/here/api.sock" in err


def test_over_the_port_with_the_token(
    live: Live, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert live.server.url is not None
    monkeypatch.setenv("OPTSCHED_URL", live.server.url)
    status, _, err = run("queue")
    assert status == 2 and "Authorization" in err
    monkeypatch.setenv("OPTSCHED_TOKEN", (live.settings.state / "token").read_text().strip())
    assert run("queue", "--json")[0] == 0


# ------------------------------------------------------------------------------------- with real
# processes


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cluster.toml whose controller runs real processes on four emulated GPUs."""
    import threading

    from optsched.control.api.server import serve
    from optsched.control.loop import Loop
    from optsched.control.opening import opened
    from optsched.control.settings import read_settings

    folder = tmp_path_factory.mktemp("c")
    config = folder / "cluster.toml"
    config.write_text(
        'format = "optsched-cluster/1"\nbudget = 5\n[[nodes]]\nname = "here"\ngpu_type = '
        '"a"\ngpus = 4\ncpus = 2\n'
        "emulate = true\n"
    )
    settings = read_settings(config)
    with opened(settings) as controller:
        loop = Loop(controller)
        thread = threading.Thread(target=loop.run, daemon=True)
        thread.start()
        server = serve(loop, settings)
        yield config
        client = Client(path=server.socket_path)
        for job in client.get("/v1/jobs", all=True)["jobs"]:
            client.post(client.job_path(job["id"], "cancel"))
        loop.stop()
        thread.join(60.0)
        server.close()


def optsched(config: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OPTSCHED_CONFIG": str(config)}
    environment.pop("OPTSCHED_URL", None)
    return subprocess.run(
        [sys.executable, "-m", "optsched", *words],
        env=environment,
        text=True,
        timeout=120,
        capture_output=True,
    )


def test_submit_wait_shows_what_is_printed_and_exits_alike(cluster: Path) -> None:
    done = optsched(
        cluster,
        "submit",
        "--wait",
        "--time",
        "1s",
        "--name",
        "talks",
        "--",
        "sh",
        "-c",
        "echo begun; sleep 0.3; echo aside >&2; printf '\\033[1münde'; exit 7",
    )
    assert done.returncode == 7
    assert done.stdout == "begun\n\x1b[1münde"
    assert "talks\n" in done.stderr and "aside\n" in done.stderr
    assert "talks failed: its command ended with exit status 7" in done.stderr
    again = optsched(cluster, "output", "talks", "--tail", "1")
    assert (again.returncode, again.stdout) == (0, "begun\n\x1b[1münde")
    assert optsched(cluster, "output", "talks", "--stderr", "-f").stdout.endswith("aside\n")


def test_what_a_job_prints_does_not_steer_a_terminal(cluster: Path) -> None:
    said = "\\033]0;mine\\007\\033[2J\\033[1;32mgreen\\033[m\\r\\b\\t\\302\\2332Jend"
    optsched(cluster, "submit", "--wait", "--time", "1s", "--name", "paints", "--", "printf", said)
    raw = "\x1b]0;mine\x07\x1b[2J\x1b[1;32mgreen\x1b[m\r\b\t\x9b2Jend"
    for follows in ((), ("-f",)):
        words = ("output", "paints", *follows)
        shown, terminal = pty.openpty()
        environment = {**os.environ, "OPTSCHED_CONFIG": str(cluster)}
        told = [sys.executable, "-m", "optsched", *words]
        subprocess.run(told, env=environment, stdout=terminal, check=True, timeout=120)
        os.close(terminal)
        harmless = "?]0;mine??[2J\x1b[1;32mgreen\x1b[m\r\b\t?2Jend\x1b[m"
        assert os.read(shown, 4096).decode() == harmless
        os.close(shown)
        assert subprocess.check_output(told, env=environment, timeout=120) == raw.encode()


def test_a_shell_beside_a_job_has_its_variables_and_gpus(cluster: Path) -> None:
    done = optsched(cluster, "submit", "--name", "lasts", "--gpus", "2", "--", "sleep", "600")
    assert done.returncode == 0
    client = Client(path=cluster.parent / "state" / "api.sock")
    until(lambda: client.get("/v1/jobs/lasts")["job"]["status"] == "running")
    show = ("--", "sh", "-c", "echo $OPTSCHED_JOB $CUDA_VISIBLE_DEVICES; id -u; pwd")
    beside = optsched(cluster, "shell", "lasts", *show)
    words = beside.stdout.split()
    assert beside.returncode == 0 and words[0] == "lasts" and words[1].count("EMULATED-") == 2
    assert words[2:] == [str(os.geteuid()), os.getcwd()]
    assert optsched(cluster, "shell", "lasts", "--", "no-such-program").returncode == 2
    signalled = optsched(cluster, "signal", "lasts", "hup")
    assert (signalled.returncode, signalled.stdout) == (0, "lasts gets HUP\n")
    until(lambda: client.get("/v1/jobs/lasts")["job"]["status"] == "failed")
    gone = optsched(cluster, "shell", "lasts")
    assert gone.returncode == 2 and "is not running" in gone.stderr


def test_a_shell_beside_a_job_elsewhere_is_entered(
    live: Live, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What enters it goes before the command; it has nothing of the Slurm job in which we are, nor
    of root where it is somebody else."""

    def shell(key: AttemptKey, terminal: bool, node: str | None) -> Beside:
        enter = ("/bin/sh", "-c", f'echo {terminal} {node} "$@"; id -u; env', "sh")
        environment = {"SLURM_CONF": "/conf"}
        return Beside(
            argv=("zsh",), environment=environment, directory="/absent", user=user, enter=enter
        )

    monkeypatch.setattr(live.executor, "shell", shell, raising=False)
    for name in ("SLURM_JOB_ID", "OF_ROOT"):
        monkeypatch.setenv(name, "7")
    live.submit(1000.0, name="managed")
    live.wait("managed", "running")
    own = os.geteuid()
    for user, given in ((None, ()), (own, ("--", "ls", "-l")), *([(NOBODY, ())] * (own == 0))):
        words = (sys.executable, "-m", "optsched", "shell", "--node=n1", "managed", *given)
        done = subprocess.run(words, capture_output=True, text=True, check=True)
        said, uid, *variables = done.stdout.splitlines()
        assert (said.split(), uid) == (["False", "n1", *(given[1:] or ("zsh",))], str(user or own))
        assert "SLURM_CONF=/conf" in variables and "SLURM_JOB_ID=7" not in variables
        assert ("OF_ROOT=7" in variables) is (user != NOBODY)
    run("cancel", "managed")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become other users")
def test_a_shell_of_somebody_else_is_not_on_roots_terminal(
    live: Live, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There it could type what root's own shell runs next."""
    monkeypatch.setattr(
        live.executor,
        "shell",
        lambda *asked: Beside(
            argv=("/bin/sh",), environment={"PS1": "ready> "}, directory="/", user=NOBODY
        ),
        raising=False,
    )
    live.submit(1000.0, name="theirs")
    live.wait("theirs", "running")
    child, terminal = pty.fork()
    if child == 0:
        os.execv(sys.executable, [sys.executable, "-m", "optsched", "shell", "theirs"])
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("4H", 33, 77, 0, 0))
    os.kill(child, signal.SIGWINCH)
    printed = b""

    def prints(words: bytes) -> bool:
        nonlocal printed
        if select.select([terminal], (), (), 1.0)[0]:
            printed += os.read(terminal, 4096)
        return words in printed

    until(lambda: prints(b"ready> "))
    os.kill(child, signal.SIGWINCH)
    os.write(terminal, b"id -u; tty; stty size; echo done-$((1+1))\n")
    until(lambda: prints(b"done-2"))
    own = os.readlink(f"/proc/{child}/fd/0")
    os.write(terminal, b"exit 7\n")
    with contextlib.suppress(OSError):
        while os.read(terminal, 4096):
            pass
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    os.close(terminal)
    said = printed.decode().split()
    assert str(NOBODY) in said and any("33 77" in line for line in printed.decode().splitlines())
    theirs = {word for word in said if word.startswith("/dev/pts/")}
    assert len(theirs) == 1 and theirs != {own}
    run("cancel", "theirs")


def test_change_and_requeue(live: Live, run: Run) -> None:
    live.submit(name="altered", hold=True)
    assert run("change", "altered", "--weight", "3") == (0, "altered is changed\n", "")
    assert run("change", "altered")[0] == 2
    assert run("change", "altered", "--weight", "1e300")[0] == 2
    assert "it is on hold: release it" in run("requeue", "altered")[2]
    assert run("signal", "altered", "USR1")[0] == 2
    assert "the executor local starts no shell" in run("shell", "altered")[2]
    run("cancel", "altered")


def test_what_users_say_moves_no_cursor(live: Live, run: Run) -> None:
    """Whoever looks at a job of somebody else, or at the log of the controller, has a terminal of
    their own."""
    said: list[str | None] = []
    live.controller.listeners.append(lambda at_s, event: said.append(line(at_s, event)))
    live.executor.reason = "\x1b]0;mine\x07\n00:00:00  all is well\x9b2J"
    live.submit(0.0, status=3, name="escapes", retries=0)
    live.wait("escapes", "failed")
    live.executor.reason = None
    columns = ",".join(COLUMNS)
    outs = [run("explain", "escapes")[1], run("queue", "--all", "--columns", columns)[1]]
    logged = [text for text in said if text is not None]
    assert any("all is well" in text for text in logged) and "all is well" in outs[0]
    for text in (*logged, *"".join(outs).splitlines()):
        assert text.isprintable()
