"""Pictures of the plans that a study keeps, one page a run, all with one copy of plotly beside
them."""

from collections.abc import Sequence
from pathlib import Path

from ... import files
from ...model import Level, Plan, Solution
from ...picture.chart import chart
from ...picture.gantt import figure
from ...picture.html import div
from ...picture.page import page
from ..commands import PLAN
from ..results import Result, Results

FOLDER, LIBRARY = "gantt", "plotly.min.js"
MOST_SEGMENTS = 5000
"""Most segments of which a picture is drawn: a browser has to show it."""


def write_gantts(finished: Sequence[Result], results: Results) -> dict[str, str]:
    """Draw the plans that are kept and not drawn yet; for each address the link to its picture.
    Raises InputError where one cannot be written."""
    done = [result for result in finished if result.address and result.answer is not None]
    kept = [result for result in done if results.beside(result.address, PLAN).exists()]
    if not kept:
        return {}
    from plotly.offline import get_plotlyjs

    folder = results.folder / FOLDER
    folder.mkdir(exist_ok=True)
    library = get_plotlyjs()
    if not (folder / LIBRARY).exists() or (folder / LIBRARY).read_text(encoding="utf-8") != library:
        files.write_text(folder / LIBRARY, library)
    links = {}
    for result in kept:
        target = folder / f"{result.address}.html"
        if target.exists() or _draw(result, results, target):
            links[result.address] = f"{FOLDER}/{target.name}"
    return links


def _draw(result: Result, results: Results, target: Path) -> bool:
    source = (
        results.instance_path(result.run.make)
        if result.run.make is not None
        else Path(result.run.file or "")
    )
    if not source.exists():
        return False
    stated, plan = files.read_plan(results.beside(result.address, PLAN))
    if plan is None or sum(len(entry.segments) for entry in plan.jobs) > MOST_SEGMENTS:
        return False
    instance = files.read_instance(source)
    solution = _solution(stated, plan)
    drawn = chart(instance, plan)
    picture = div(figure(instance, plan, drawn), "gantt", LIBRARY)
    files.write_text(target, page(instance, solution, drawn, picture))
    return True


def _solution(stated: files.PlanFile, plan: Plan) -> Solution:
    """Return what the plan file says, as the picture wants it."""
    goal = stated.objective
    levels = goal.levels or (Level(name=goal.name, value=goal.value, bound=goal.bound),)
    return Solution(
        instance_name=stated.instance.name,
        instance_hash=stated.instance.hash,
        solver=stated.solver,
        seed=stated.seed,
        objective=goal.name,
        status=goal.status,
        levels=levels,
        plan=plan,
        bound_source=goal.bound_source,
        wall_s=stated.wall_s,
        fallback=stated.fallback,
        notes=stated.notes,
        replay=stated.replay,
    )
