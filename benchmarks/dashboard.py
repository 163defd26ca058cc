"""A demo cluster behind the dashboard, in virtual time up to the present, then in real time.

    python -m benchmarks.dashboard                                  # serve it until Ctrl-C
    python -m benchmarks.dashboard --picture docs/images/dashboard.png
    python -m benchmarks.dashboard --jobs 2000 --measure            # what the page costs a browser

Nothing runs: nodes and jobs are virtual. `--picture` and `--measure` need a Chromium. As
JSON `--measure` prints the processor time of the page's main thread until everything is shown
(`first_s`) and in each further second (`ms_per_s`), and its heap after 40 refreshes of everything
and by how much 40 more let it grow.
"""

import contextlib
import random
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from PIL import Image

from benchmarks.command_line import parser_of, tell
from optsched import Job, Node, Profile
from optsched.control.api.server import Server, serve
from optsched.control.controller import Controller
from optsched.control.forecasting import Forecaster
from optsched.control.journal.events import Submitted
from optsched.control.journal.journal import Journal
from optsched.control.loop import Loop
from optsched.control.settings import (
    ApiSettings,
    NodeSettings,
    Settings,
    SharesSettings,
    TenantSettings,
    WindowSettings,
)
from optsched.control.submission import Submission
from optsched.executors.base import AttemptKey, Order
from tests.browser import Browser
from tests.control.virtual import VirtualClock, VirtualExecutor

TENANTS = {
    "vision": ("amara", "bo"),
    "language": ("chen", "dara", "eli"),
    "speech": ("fatima",),
    "robotics": ("goran", "hana"),
}
NETS = (
    "resnet50",
    "llama-7b",
    "vit-l",
    "whisper",
    "bert",
    "diffusion",
    "sweep",
    "policy",
    "eval",
    "moe-8x",
)
SPAN_S = 8 * 3600.0
REFRESHES = 40
FORECAST = """
listed.jobs.every(job => job.status !== 'waiting')
|| listed.jobs.some(job => job.start_p90_s > now_s)
"""
"""Whether it is shown when jobs start, where some wait."""
MOST_STEPPED = 500
"""Of so many jobs at most the past is played; of more, all wait when the page is opened."""


class Clock(VirtualClock):
    """Stands still until it is moved; once `live` it goes on by itself."""

    live_s: float | None = None

    def now_s(self) -> float:
        """Return what it shows."""
        gone_s = 0.0 if self.live_s is None else time.monotonic() - self.live_s
        return super().now_s() + gone_s


@dataclass
class Executor(VirtualExecutor):
    """Gives each job GPUs by name, and has it report its steps."""

    ids: dict[AttemptKey, dict[str, tuple[str, ...]]] = field(default_factory=dict)

    def start(self, order: Order) -> None:
        """Start an attempt on the first GPUs that are free."""
        self.pass_time()
        ids = {}
        for slot in order.placement:
            held = {
                gpu
                for key, own in self.ids.items()
                if self.processes[key].ended_s is None
                for gpu in own.get(slot.node, ())
            }
            free = [str(i) for i in range(8) if str(i) not in held]
            ids[slot.node] = tuple(free[: slot.gpus])
        super().start(order)
        self.ids[order.key] = ids

    def observe(self) -> Any:
        """Return what is seen."""
        now_s = self.clock.now_s()
        for key, process in self.processes.items():
            if process.ended_s is None and process.order is not None:
                total = int(float(process.order.argv[1]))
                step = int(self.done_s.get(key.job, 0.0) + now_s - process.begun_s)
                self.reports[key.job] = {
                    "step": min(step, total),
                    "total_steps": total,
                    "at_s": now_s,
                }
        return tuple(replace(own, gpu_ids=self.ids.get(own.key, {})) for own in super().observe())

    def pass_time(self) -> None:
        """Let happen what happens until now."""
        self.clock.at_s, shown = self.clock.now_s(), self.clock.at_s
        super().pass_time()
        self.clock.at_s = shown

    def changes(self, timeout_s: float) -> None:
        """Wait."""
        time.sleep(timeout_s)


def drawn(jobs: int, seed: int) -> list[tuple[float, Submission]]:
    """Return jobs with the seconds after which each is submitted."""
    draw = random.Random(seed)
    costs = Profile(startup_s=20.0, restore_s=20.0, checkpoint_s=15.0)
    submitted = []
    for i in range(jobs):
        tenant = draw.choices([*TENANTS], weights=(3, 4, 1, 2))[0]
        work_s = float(round(60 * 10 ** draw.uniform(0.7, 2.4)))
        gpus = draw.choices((1, 2, 4, 8, 16), weights=(30, 20, 20, 20, 10))[0]
        job = Job(
            id=f"{draw.choice(NETS)}-{i + 1}",
            gpus=gpus,
            duration_s=work_s * draw.uniform(0.8, 1.3),
            user=draw.choice(TENANTS[tenant]),
            tenant=tenant,
            max_nodes=max(1, gpus // 8),
            command=f"python train.py --seed {i}",
            profile=costs,
        )
        argv = ("work", str(work_s), "15", "1" if draw.random() < 0.04 else "0")
        hold = draw.random() < 0.02
        submission = Submission(job=job, argv=argv, directory="/home", hold=hold)
        submitted.append((draw.uniform(0.0, SPAN_S), submission))
    return sorted(submitted, key=lambda own: own[0])


@contextlib.contextmanager
def cluster(folder: Path, jobs: int, seed: int = 1) -> Iterator[tuple[Server, str]]:
    """Serve a cluster to which so many jobs were given, and yield its server and the token."""
    count = 50 if jobs > MOST_STEPPED else 12
    nodes = tuple(
        Node(name=f"gpu-{i:02}", gpu_type="a100" if i < 0.7 * count else "h100", gpus=8, cpus=128)
        for i in range(count)
    )
    settings = Settings(
        format="optsched-cluster/1",
        name="demo",
        every=300.0,
        budget=1.0,
        state=folder,
        nodes=tuple(NodeSettings(name=node.name, gpu_type=node.gpu_type, gpus=8) for node in nodes),
        tenants=tuple(TenantSettings(name=name, users=users) for name, users in TENANTS.items()),
        shares=SharesSettings(),
        windows=(
            WindowSettings(
                name="kernel", nodes=("gpu-[00-03]",), every="sunday", length=4 * 3600.0
            ),
            WindowSettings(
                name="course",
                nodes=("gpu-05",),
                every="day",
                at="08:00",
                length=2 * 3600.0,
                users=("hana",),
            ),
        ),
        api=ApiSettings(port=0),
    )
    begun_s = time.time() - SPAN_S
    clock = Clock(begun_s)
    executor = Executor(nodes, clock)
    controller = Controller(settings, executor, Journal(folder / "journal"), clock)
    for after_s, submission in drawn(jobs, seed):
        clock.at_s = begun_s + after_s
        controller.record(Submitted(submission=submission))
        if jobs <= MOST_STEPPED:
            controller.step()
    executor.drained.add(nodes[-1].name)
    clock.at_s, clock.live_s = begun_s + SPAN_S, time.monotonic()
    loop = Loop(controller)
    thread = threading.Thread(target=loop.run, daemon=True)
    thread.start()
    server = serve(loop, settings)
    try:
        with Forecaster(loop, folder):
            yield server, (folder / "token").read_text().strip()
    finally:
        loop.stop()
        thread.join()
        server.close()
        controller.journal.close()


def main() -> None:
    """Serve, draw or measure."""
    given = parser_of(
        __doc__,
        jobs=180,
        picture=Path,
        width=1400,
        height=1425,
        theme=("light", "dark"),
        measure=False,
    ).parse_args()
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.chmod(0o711)
        server, token = stack.enter_context(cluster(folder, given.jobs))
        url = f"{server.url}/#{token}"
        if not (given.picture or given.measure):
            print(url, flush=True)
            with contextlib.suppress(KeyboardInterrupt):
                threading.Event().wait()
            return
        browser = Browser(folder / "browser", width=given.width, height=given.height)
        stack.callback(browser.close)
        browser.ask(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": given.theme}],
        )
        browser.open(url)
        browser.until("document.body?.dataset.ready === 'yes'")
        assert not browser.errors, browser.errors
        if given.measure:
            tell({"jobs": given.jobs, **measured(browser)})
        if given.picture:
            browser.until(FORECAST)
            time.sleep(1.0)  # the columns of forecasts are drawn
            browser.picture(given.picture)
            image = Image.open(given.picture).convert("RGB")
            image.quantize(256, dither=Image.Dither.NONE).save(given.picture, optimize=True)


def measured(browser: Browser, seconds: float = 30.0) -> dict[str, float]:
    """Return what the page costs: processor time of its main thread, and memory."""

    def heap_mib() -> float:
        browser.ask("HeapProfiler.collectGarbage")
        return browser.metrics()["JSHeapUsedSize"] / 2**20

    def refresh(times: int) -> None:
        for _ in range(times):
            browser.run("fresh.all_s = fresh.use_s = 0, refresh()")

    first_s, begun_s = browser.metrics()["TaskDuration"], time.monotonic()
    time.sleep(seconds)
    lasted_s = time.monotonic() - begun_s
    spent_s = browser.metrics()["TaskDuration"] - first_s
    refresh(REFRESHES)
    before_mib = heap_mib()
    refresh(REFRESHES)
    return {
        "first_s": round(first_s, 2),
        "ms_per_s": round(1e3 * spent_s / lasted_s, 1),
        "heap_mib": round(before_mib, 1),
        "grown_mib": round(heap_mib() - before_mib, 2),
    }


if __name__ == "__main__":
    main()
