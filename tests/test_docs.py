"""The documentation: its commands and code run, its links resolve, and it names everything there
is."""

import importlib
import json
import re
import shlex
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

import click
import pytest
from click.testing import CliRunner

import optsched
from optsched import files
from optsched.cli import COMMANDS, main
from optsched.cli.parts.policy_page import OPTIONS_HEAD, options_page, page
from optsched.engine import choose_solver, solve
from optsched.errors import InputError
from optsched.model.plan import Decision, Status
from optsched.objectives import TERMS, parse
from optsched.plugins import registry
from optsched.plugins.options import declaration, read_options, read_table
from optsched.plugins.solver import SILENT, Report, Request
from optsched.round.decide import decide
from optsched.simulate.run import simulate
from optsched.simulate.virtual import VirtualWorld
from optsched.verify import verify
from tests.data import DATA
from tests.verified import checked
from tests.verify.test_verify_mutations import rules_in_source

REPOSITORY = Path(__file__).parents[1]
PAGES = (
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "docs/architecture.md",
    "docs/index.md",
    "docs/measurements.md",
    "docs/python.md",
    "docs/tour.md",
    "docs/concepts.md",
    "docs/formats.md",
    "docs/mathematics.md",
    "docs/studies.md",
    "docs/live.md",
    "docs/jobs.md",
    "docs/profiling.md",
    "docs/kubernetes.md",
    "docs/kueue.md",
    "docs/ray.md",
    "docs/slurm.md",
    "docs/extending.md",
    "docs/options.md",
    "instances/README.md",
    "instances/examples/README.md",
)
SHORT_LIMIT = "2s"
"""What `--time-limit` is replaced by: the commands must work, how good their plans are is tested
elsewhere."""


def text_of(page: str) -> str:
    return (REPOSITORY / page).read_text()


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text_of(page), re.M | re.S)


def section(page: str, heading: str) -> str:
    _, found, rest = text_of(page).partition(f"\n{heading}\n")
    assert found, f"{page} has no section {heading!r}"
    level = heading.split()[0]
    return re.split(rf"^#{{1,{len(level)}}} ", rest, maxsplit=1, flags=re.M)[0]


def first_column(table: str) -> list[str]:
    """The names in the first cells of a table, in backticks."""
    cells = re.findall(r"^\| (`.*?) \|", table, re.M)
    return [name for cell in cells for name in re.findall(r"`([^`]+)`", cell)]


def pipelines(block: str) -> Iterator[list[list[str]]]:
    """Every line of a shell block as the words of its commands, those joined by pipes together."""
    for line in block.replace("\\\n", " ").splitlines():
        commands: list[list[str]] = [[]]
        for word in shlex.split(line, comments=True):
            if word == "|":
                commands.append([])
            else:
                commands[-1].append(word)
        if commands != [[]]:
            yield commands


def command_of(name: str) -> click.Command:
    found = main.get_command(click.Context(main), name)
    assert found is not None, f"optsched has no command {name!r}"
    return found


def options_of(command: click.Command) -> set[str]:
    shared = {"-h", "--help"}
    return shared | {
        name
        for parameter in command.params
        for name in (*parameter.opts, *parameter.secondary_opts)
    }


# ------------------------------------------------------------------------------------------------
# commands


@pytest.mark.parametrize("page", PAGES)
def test_commands_and_their_options_exist(page: str) -> None:
    for block in blocks(page, "sh"):
        for pipeline in pipelines(block):
            for program, *words in pipeline:
                if program == "make":
                    targets = re.findall(r"^([a-z-]+):", text_of("Makefile"), re.M)
                    assert set(words) <= set(targets)
                if program != "optsched":
                    continue
                known = options_of(command_of(words[0]))
                words = (
                    words[: words.index("--")] if "--" in words else words
                )  # what comes after is another program
                given = {word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)}
                assert given <= known, f"{page}: optsched {words[0]} has no {given - known}"


ADAPTERS = ("docs/kubernetes.md", "docs/ray.md", "docs/slurm.md")
"""Their text names options of other programs as well."""


@pytest.mark.parametrize("page", [page for page in PAGES if page not in ADAPTERS])
def test_options_named_in_the_text_exist(page: str) -> None:
    known = set().union(*(options_of(command_of(name)) for name in COMMANDS))
    others = r"`(?:python|ray start|pytest|srun) [^`\n]+`"
    spoken = re.sub(rf"^```.*?^```$|{others}", "", text_of(page), flags=re.M | re.S)
    named = {
        option
        for code in re.findall(r"`([^`\n]+)`", spoken)
        for option in re.findall(r"(?<!\S)--[a-z-]+", code)
    }
    assert named <= known, f"{page}: no command has {named - known}"


def test_all_commands_but_two_speak_json() -> None:
    silent = {name for name in COMMANDS if "--json" not in options_of(command_of(name))}
    assert silent == {"schema", "shell"}


def test_commands_that_do_something_can_be_quiet() -> None:
    only_show = {
        "account",
        "output",
        "queue",
        "regret",
        "replay",
        "rounds",
        "schema",
        "shares",
        "shell",
        "top",
        "what-if",
    }
    assert {name for name in COMMANDS if "--quiet" not in options_of(command_of(name))} == only_show


def run_block(block: str, ran: dict[str, str]) -> str:
    """Run every `optsched` of a shell block that has not `ran` yet; all they print."""
    for pipeline in pipelines(block):
        if str(pipeline) in ran:
            continue
        printed, shown = None, ""
        for program, *words in pipeline:
            if program != "optsched":
                break
            words = [word.replace("$OPTSCHED_DATA", str(DATA)) for word in words]
            if "--time-limit" in words:
                words[words.index("--time-limit") + 1] = SHORT_LIMIT
            result = CliRunner().invoke(main, words, input=printed)
            assert result.exit_code == 0, f"{' '.join(words)}: {result.output}"
            printed = result.stdout
            shown += result.output
        ran[str(pipeline)] = shown
    return "".join(ran[str(pipeline)] for pipeline in pipelines(block))


def test_readme_and_tour_run_and_print_what_they_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("plotly", reason="the tour draws pictures, which needs the extra `report`")
    (tmp_path / "instances").symlink_to(REPOSITORY / "instances")
    monkeypatch.chdir(tmp_path)
    doors = (
        section("README.md", "## Plan") + section("README.md", "## Study").rpartition("```sh")[0]
    )
    tour = doors + text_of("docs/tour.md").partition("\n## Solvers and policies\n")[0]
    found = re.findall(r"^```sh\n(.*?)^```\n(?:```text\n(.*?)^```$)?", tour, re.M | re.S)
    assert len(found) > 10
    ran: dict[str, str] = {}
    for block, stated in found:
        if "$OPTSCHED_DATA" in block and not DATA.is_dir():
            continue
        printed = [line.rstrip() for line in run_block(block, ran).splitlines()]
        for line in stated.splitlines():
            line = line.rstrip().replace("/data/", f"{DATA}/")
            varies = r"  [a-z]+ {4,}|  proved|  solver" if "--time-limit" in block else "  solver"
            assert re.match(varies, line) or line in printed, f"not printed by\n{block}: {line}"
    assert {"plan.json", "plan.html", "fifty.json", "fifty.svg"} <= {
        path.name for path in tmp_path.iterdir()
    }


def test_the_fault_messages_of_the_tour_are_those_of_optsched(tmp_path: Path) -> None:
    stated = (
        section("docs/tour.md", "## When the input is wrong").split("```text\n")[1].split("```")[0]
    )
    path = tmp_path / "bad.json"
    path.write_text(
        '{"format": "optsched/1",'
        ' "cluster": {"nodes": [{"name": "a100-[0-1]", "gpu_type": "a100", "gpus": 4}]},'
        ' "jobs": [{"id": "train", "gpus": 16, "duration_s": 600},'
        '          {"id": "eval", "duration_s": 60, "after": ["trian"]}]}'
    )
    result = CliRunner().invoke(main, ["solve", str(path)])
    assert result.exit_code == 2
    assert result.output.replace(str(path), "bad.json") == stated


# ------------------------------------------------------------------------------------------------
# code


@pytest.mark.parametrize(
    ("page", "printed"),
    [("README.md", "\n0.0 1825.0 bert is preempted"), ("docs/python.md", "optimal 46980")],
)
def test_the_python_of_the_pages_runs(
    page: str,
    printed: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for code in blocks(page, "python"):
        exec(compile(code, page, "exec"), names)
    assert printed in capsys.readouterr().out


EXAMPLES = REPOSITORY / "examples" / "plugins"
EXTENDING = "docs/extending.md"


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], dict[str, Any]]:
    """Runs the Python blocks of the page on extending, which may use the package of examples."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.chdir(REPOSITORY)

    def run(number: int) -> dict[str, Any]:
        names: dict[str, Any] = {"__name__": __name__}
        exec(compile(blocks(EXTENDING, "python")[number], EXTENDING, "exec"), names)
        return names

    return run


Example = Callable[[int], dict[str, Any]]


def test_the_examples_of_the_page_are_those_of_the_package() -> None:
    policy, solver = blocks(EXTENDING, "python")[:2]
    assert policy == (EXAMPLES / "optsched_examples" / "widest_first.py").read_text()
    assert solver == (EXAMPLES / "optsched_examples" / "random_restarts.py").read_text()
    project = tomllib.loads((EXAMPLES / "pyproject.toml").read_text())["project"]
    declared, cluster, importers = map(tomllib.loads, blocks(EXTENDING, "toml"))
    assert declared["project"]["entry-points"] == project["entry-points"]
    assert cluster["executor"] in project["entry-points"]["optsched.executors"]
    ours = tomllib.loads(text_of("pyproject.toml"))["project"]["entry-points"]
    assert {*importers["project"]["entry-points"], *project["entry-points"]} <= set(ours)


def test_the_solver_of_the_page_plans(example: Example) -> None:
    instance = files.read_instance(
        REPOSITORY / "instances" / "examples" / "gang-fragmentation.json"
    )
    goal = parse("wct")
    plans: list[Any] = []
    said = Report(
        plan=plans.append, bound=SILENT.bound, infeasible=SILENT.infeasible, note=SILENT.note
    )
    example(1)["SOLVER"].solve(Request(instance=instance, objective=goal, time_limit_s=60), said)
    found = [verify(instance, plan, goal).values for plan in plans]
    assert found[-1] == (300.0,)
    assert found == sorted(found, reverse=True)


def test_the_solver_of_the_page_runs_in_the_engine(example: Example) -> None:
    solution = example(2)["solution"]
    assert (solution.status, solution.fallback) == ("feasible", None)
    assert any("random-restarts" in words for words in (solution.solver, *solution.notes))


def test_the_policy_of_the_page_decides(example: Example) -> None:
    policy = example(0)["WidestFirst"]
    instance = files.read_instance(
        REPOSITORY / "instances" / "examples" / "gang-fragmentation.json"
    )
    plan = simulate(instance, policy(policy.Options()))
    checked(instance, plan)
    assert {entry.id: entry.segments[0].placement[0].node for entry in plan.jobs}[
        "gang"
    ] == "node-0"


def test_the_round_solver_of_the_page_decides(
    example: Example, monkeypatch: pytest.MonkeyPatch
) -> None:
    solver = example(3)["SOLVER"]
    monkeypatch.setattr(registry, "round_solver", lambda name: solver)
    instance = files.read_instance(REPOSITORY / "instances" / "examples" / "quota.json")
    found = decide(instance, solver=solver.name, budget_s=10.0)
    assert {entry.decision for entry in found.jobs} <= {"continue", "start", "wait"}
    assert found.fallback is None and found.bound >= found.value


def test_the_executor_of_the_page_declares_its_table(example: Example) -> None:
    names = example(4)
    declared = declaration(names["open_pbs"])
    assert declared is names["PbsOptions"]
    [_, cluster, _] = map(tomllib.loads, blocks(EXTENDING, "toml"))
    options, faults = read_table("pbs", declared, cluster["pbs"])
    assert not faults and (options.queue, options.poll_s) == ("gpu", 2.0)


def test_the_importer_of_the_page_reads(example: Example, tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text("name,gpus,seconds\na,1,60\nb,8,30\n")
    known = example(5)["FORMAT"]
    options = read_options("format table", known.Options, {"nodes": "2"})
    instance = known.read(path, nodes=options.nodes).instance
    assert [job.gpus for job in instance.jobs] == [1, 8]
    assert instance.cluster.total_gpus == 16
    with pytest.raises(InputError, match="option nodes of format table: '0'; expected a whole"):
        read_options("format table", known.Options, {"nodes": "0"})


def test_the_objective_of_the_page_is_one(example: Example) -> None:
    term, known = example(6)["TERM"], TERMS["tardiness2"]
    assert (term.unit, term.title, term.shape, term.origin) == (
        known.unit,
        known.title,
        known.shape,
        known.origin,
    )


def test_the_page_of_options_is_what_the_command_prints() -> None:
    groups: dict[str, registry.Group] = {
        "solvers": "solvers",
        "rounds": "rounds",
        "executors": "executors",
        "formats": "importers",
    }
    parts = [options_page(kind, registry.listed(group)) for kind, group in groups.items()]
    assert text_of("docs/options.md") == OPTIONS_HEAD + "\n".join(parts)


def test_the_solver_guide_names_what_exists() -> None:
    guide = text_of(EXTENDING)
    tables = {
        head: {name.partition("(")[0] for name in first_column(rest)}
        for head, rest in re.findall(r"^\| `(\w+)` \| \|\n(.*?)\n\n", guide, re.M | re.S)
    }
    assert tables["request"] == {field.name for field in fields(Request)}
    assert tables["report"] == {field.name for field in fields(Report)}
    world = VirtualWorld(files.load_instance('{"format": "optsched/1"}'))
    assert {name for name in tables["world"] if not hasattr(world, name)} == set()
    for name in first_column(section(EXTENDING, "### What helps")):
        module, _, attribute = name.partition("(")[0].rpartition(".")
        try:
            importlib.import_module(f"{module}.{attribute}")
        except ModuleNotFoundError:
            assert hasattr(importlib.import_module(module), attribute), name
    for name in first_column(section(EXTENDING, "## Where ours are")):
        assert (REPOSITORY / "solvers" / "optsched_solvers" / name).exists(), name


def test_the_instance_of_the_formats_page_is_sound() -> None:
    [text] = blocks("docs/formats.md", "json")
    instance = files.load_instance(text)
    assert solve(instance, time_limit_s=10, solver="wspt").plan is not None


# ------------------------------------------------------------------------------------------------
# completeness


def test_every_rule_of_the_verifier_is_explained() -> None:
    assert (
        set(first_column(section("docs/concepts.md", "## Rules of the verifier")))
        == rules_in_source()
    )


def test_every_objective_is_explained_with_its_unit() -> None:
    rows = re.findall(
        r"^\| `(\w+)` \| .* \| (.*?) ?\|$", section("docs/concepts.md", "## Objectives"), re.M
    )
    explained = dict(rows)
    assert sorted(explained) == list(TERMS)
    assert all(explained[term.name] == term.unit for term in TERMS.values() if term.unit)


def test_every_status_and_decision_is_explained() -> None:
    assert set(first_column(section("docs/concepts.md", "## Status"))) == set(get_args(Status))
    assert set(first_column(section("docs/concepts.md", "### Decisions"))) == set(
        get_args(Decision)
    )


@pytest.mark.parametrize("kind", ["instance", "plan"])
def test_every_field_of_the_files_is_explained(kind: Any) -> None:
    schema = files.schema(kind)
    part = section("docs/formats.md", "## Instance file" if kind == "instance" else "## Plan file")
    if kind == "plan":
        part += section(
            "docs/formats.md", "## Instance file"
        )  # modes and placements are explained there
    for noun, found in {"file": schema, **schema["$defs"]}.items():
        for name in found["properties"]:
            assert re.search(rf'[`"]{name}[`"]', part), (
                f"{name} of {noun} is not explained in docs/formats.md"
            )


@pytest.mark.parametrize("kind", ["plan", "round", "bound"])
def test_the_table_of_a_file_lists_its_fields_and_no_others(kind: str) -> None:
    part = section("docs/formats.md", f"## {kind.capitalize()} file")
    table = part.split("| field | type | meaning |\n")[1].split("\n\n")[0]
    stated = re.findall(r"^\| `(\w+)` \|", table, re.M)
    said = json.loads(CliRunner().invoke(main, ["schema", kind]).stdout)
    assert {*stated} == {*said["properties"]}


def test_defaults_stated_are_those_of_the_schema() -> None:
    nouns = files.schema("instance")["$defs"]
    for noun, heading, table in (
        ("Cluster", "### `cluster`", 0),
        ("Window", "### `cluster`", 1),
        ("Node", "### `cluster`", 2),
        ("Tenant", "### `tenants`", 0),
        ("Shares", "### `shares`", 0),
        ("Job", "### `jobs`", 0),
        ("Mode", "### `jobs`", 1),
        ("Profile", "### `profile`", 0),
        ("Running", "### `running`", 0),
        ("Suspended", "### `suspended`", 0),
        ("Failure", "### `failures`", 0),
        ("Outage", "### `outages`", 0),
    ):
        rows = section("docs/formats.md", heading).split("| field | type | default | meaning |\n")[
            1 + table
        ]
        stated = dict(re.findall(r"^\| `(\w+)` \| .*? \| (.*?) \|", rows.split("\n\n")[0], re.M))
        assert list(stated) == list(nouns[noun]["properties"])
        for name, field in nouns[noun]["properties"].items():
            default = field.get("default")
            if isinstance(default, int | float) and not isinstance(default, bool):
                assert stated[name] == f"{default:g}", f"{noun}.{name}"
            assert (name in nouns[noun].get("required", [])) == (stated[name] == "required"), (
                f"{noun}.{name}"
            )


def test_every_solver_policy_and_format_is_listed() -> None:
    table = first_column(section("docs/tour.md", "## Solvers and policies"))
    assert set(registry.names("solvers")) <= set(table)
    assert set(table) <= {"auto", *registry.names("solvers"), *registry.names("policies")}
    assert {*re.findall(r"^### `(\w+)`", section("docs/formats.md", "## Import"), re.M)} == set(
        registry.names("importers")
    )
    for name in registry.names("solvers"):
        assert f"`{name}`" in text_of("CHANGELOG.md"), name


def test_the_catalogue_of_policies_is_what_the_command_prints() -> None:
    assert text_of("docs/policies.md") == page(registry.listed("policies"))


def test_sizes_stated_for_auto_are_those_of_the_engine() -> None:
    job = {"id": "j", "duration_s": 1}
    for count, chosen in ((2000, True), (2001, False)):
        jobs = ", ".join(str(job | {"id": f"j{i}"}).replace("'", '"') for i in range(count))
        instance = files.load_instance(
            f'{{"format": "optsched/1", "cluster": {{"nodes": [{{"name": "n", "gpus": 1}}]}}, '
            f'"jobs": [{jobs}]}}'
        )
        assert (choose_solver(instance, parse("wct"))[0] is not None) == chosen


# ------------------------------------------------------------------------------------------------
# links


def anchors(page: Path) -> set[str]:
    heads = re.findall(r"^#+ (.*)$", page.read_text(), re.M)
    return {re.sub(r"[^\w\- ]", "", head.lower()).strip().replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES)
def test_links_resolve(page: str) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", text_of(page)):
        if target.startswith("https://"):
            continue
        name, _, anchor = target.partition("#")
        path = (REPOSITORY / page).parent / name if name else REPOSITORY / page
        assert path.exists(), f"{page}: {target}"
        assert not anchor or anchor in anchors(path), f"{page}: {target}"


def test_paths_of_the_layout_exist() -> None:
    for name in first_column(section("docs/architecture.md", "## Where things are")):
        assert (REPOSITORY / name).exists(), name


@pytest.mark.parametrize("page", PAGES)
def test_paths_named_in_the_text_exist(page: str) -> None:
    spoken = re.sub(r"^```.*?^```$|`python [^`\n]+`", "", text_of(page), flags=re.M | re.S)
    for name in re.findall(
        r"`((?:optsched|solvers|instances|benchmarks|tests|docs)/[\w./-]+)`", spoken
    ):
        assert (REPOSITORY / name).exists(), f"{page}: {name}"


def test_every_page_of_the_documentation_can_be_reached_from_the_readme() -> None:
    reached, open_ = set(), [REPOSITORY / "README.md"]
    while open_:
        page = open_.pop().resolve()
        if page in reached or page.suffix != ".md":
            continue
        reached.add(page)
        targets = re.findall(r"\]\(([^)\s#]+)", page.read_text())
        open_ += [page.parent / target for target in targets if not target.startswith("https://")]
    assert {REPOSITORY / page for page in PAGES} <= reached


def test_pictures_are_small() -> None:
    pictures = list((REPOSITORY / "docs" / "images").iterdir())
    assert pictures
    assert all(picture.stat().st_size < 200_000 for picture in pictures)


def test_the_changes_are_those_of_this_version() -> None:
    listed = re.findall(r"^## (\S+)", text_of("CHANGELOG.md"), re.M)
    assert next(one for one in listed if one != "Unreleased") == optsched.__version__
    assert "Unreleased" not in listed[1:]


def test_the_first_page_is_short() -> None:
    assert len(text_of("README.md").splitlines()) <= 200
