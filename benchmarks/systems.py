"""The pages of published systems, made by their studies, and the overview of all verdicts.

    python -m benchmarks.systems xion tiresias
    python -m benchmarks.systems          # the overview alone, from the pages as they are
    python -m benchmarks.systems --cost   # what all studies take, by one seed of each

Runs `optsched study instances/studies/systems/NAME.toml` in the root of the repository, which goes
on where it stopped, and writes `docs/results/systems/NAME.md` (the study's tables without what a
clock measured, so that the page can be made again) and its picture. The overview in
`docs/results/systems.md` is made of the pages, between its markers.
"""

import json
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.command_line import parser_of, tell
from optsched.study.design import read_study

ROOT = Path(__file__).parent.parent
STUDIES = Path("instances/studies/systems")
PAGES = ROOT / "docs" / "results" / "systems"
OVERVIEW = ROOT / "docs" / "results" / "systems.md"
MARKED, BEHIND = (
    re.compile(rf"(?<=<!-- {name} -->\n)(.*?)(?=<!-- /{name} -->)", re.S)
    for name in ("overview", "behind")
)
OWN = ("optsched", "no contention")
"""How the names of rows begin that are no rivals of `optsched`: its own, and one that is played on
links as no cluster has them."""
SHORT_TAILS = "optsched flow2"
"""The name of rows of `optsched` under squared flow times."""
MUCH_LONGER = 0.05
"""A p99 that is longer by more than this share is told."""
BY_CLOCK = ("decision, ", "run s")
"""How the heads of columns begin that differ from machine to machine."""
CLAIM = re.compile(
    r"^\| `(.+?)` against `(.+?)`, (.+?) \| (\S+ %|more|less)(?: \(.*?\))? \| (.+?) "
    r"\| \*\*(.+?)\*\*: .* \|$",
    re.M,
)


@dataclass(frozen=True)
class Held:
    """A claim as a page tells it."""

    method: str
    against: str
    column: str
    published: str
    seen: str
    verdict: str

    @property
    def means(self) -> str:
        """Return the mean changes over seeds, from the least instance to the largest."""
        means = re.findall(r"([+-][\d.]+)(?: ± [\d.]+)? %(?:;|$)", self.seen)
        ends = sorted({min(means, key=float), max(means, key=float)}, key=float) if means else ["-"]
        return f"{' to '.join(ends)} %"


def without_clock(tables: str) -> str:
    """Return Markdown without the columns that a clock measured."""
    lines: list[str] = []
    kept: list[int] = []
    for line in tables.splitlines():
        cells = line.split("|")
        if not line.startswith("|"):
            kept = []
        elif not kept:
            kept = [i for i, cell in enumerate(cells) if not cell.strip().startswith(BY_CLOCK)]
        lines.append("|".join(cells[i] for i in kept) if kept else line)
    return "\n".join(lines) + "\n"


def run_study(name: str, results: Path, *more: str) -> None:
    """Run the study of a system, or go on where it stopped."""
    words = ["study", str(STUDIES / f"{name}.toml"), "-o", str(results), *more]
    subprocess.run([sys.executable, "-m", "optsched", *words], cwd=ROOT, check=True)


def make_page(name: str, results: Path, workers: int) -> None:
    """Run the study of a system and write its page and its picture; a packing has none, as nobody
    waits there."""
    run_study(name, results, "--workers", str(workers))
    picture = ROOT / results / "figures" / "speedup.svg"
    table = (ROOT / results / "table.md").read_text()
    write_page(name, table, picture.read_bytes() if picture.exists() else None)


def cost(results: Path, workers: int) -> dict[str, object]:
    """Return how long all studies compute, and the longest of them, by the runs of the first seed
    of each; the instances, which are made in seconds, are not counted."""
    minutes: dict[str, float] = {}
    for path in sorted((ROOT / STUDIES).glob("*.toml")):
        study, own = read_study(path), results / path.stem
        first = f"seed={study.seeds[0]}"
        run_study(path.stem, own, "--set", first, "--workers", str(workers), "--quiet")
        stored = (json.loads(run.read_bytes()) for run in (ROOT / own / "runs").glob("*.json"))
        minutes[path.stem] = sum(run["cpu_s"] for run in stored) * len(study.seeds) / 60
        print(f"{path.stem}: {minutes[path.stem]:.1f} min", file=sys.stderr, flush=True)
    longest = max(minutes, key=lambda name: minutes[name])
    total_h = round(sum(minutes.values()) / 60, 1)
    of_one = {"longest": longest, "longest_min": round(minutes[longest], 1)}
    return {"studies": len(minutes), "cpu_h": total_h, **of_one}


def write_page(name: str, table: str, picture: bytes | None) -> None:
    """Write a page from what `optsched study` says of its study, its picture, and the overview."""
    head, _, tables = table.partition("### ")
    if picture is not None:
        (PAGES / f"{name}.svg").write_bytes(picture)
        head += f"![Speed-up of jobs]({name}.svg)\n\n"
    (PAGES / f"{name}.md").write_text(f"{head}### {without_clock(tables)}")
    write_overview()


def write_overview() -> None:
    """Write the table of all verdicts, and where `optsched` is behind, between their markers."""
    text = MARKED.sub(lambda _: overview(), OVERVIEW.read_text())
    OVERVIEW.write_text(BEHIND.sub(lambda _: behind(), text))


def row(name: str, page: str) -> str:
    """Return the line of the overview that a page gives."""
    claims = [Held(*match) for match in CLAIM.findall(page)]
    methods, columns, verdicts = (
        {getattr(claim, field) for claim in claims} for field in ("method", "column", "verdict")
    )
    seen = [
        (f"`{claim.method}` " if len(methods) > 1 else "")
        + (f"{claim.column} " if len(columns) > 1 else "")
        + f"{claim.means} against `{claim.against}`"
        for claim in claims
    ]
    published = "; ".join(dict.fromkeys(f"{claim.column} {claim.published}" for claim in claims))
    verdict = verdicts.pop() if len(verdicts) == 1 else "shown in part"
    title = page.removeprefix("# ").partition("\n")[0].partition(":")[0]
    if not claims:
        return f"| [{title}](systems/{name}.md) | no number | see the page | nothing to hold |"
    return f"| [{title}](systems/{name}.md) | {published} | {'; '.join(seen)} | {verdict} |"


def overview() -> str:
    """Return the table of all systems that have a page."""
    heads = ["| system | published | seen | verdict |", "|---|---|---|---|"]
    lines = [row(path.stem, path.read_text()) for path in sorted(PAGES.glob("*.md"))]
    return "\n".join([*heads, *lines]) + "\n"


def told(page: str, *columns: str) -> dict[str, tuple[str, dict[str, float]]]:
    """Return for each instance of a page the first of some columns that it has, and what that says
    of each method."""
    instances = {}
    for part in page.split("\n### ")[1:]:
        instance, _, table = part.partition("\n")
        rows = [line.strip("| ").split(" | ") for line in table.splitlines() if line[:2] == "| "]
        for column in columns:
            if rows and column in rows[0]:
                at = rows[0].index(column)
                cells = {row[0].strip("`"): row[at].strip("*").split()[0] for row in rows[1:]}
                instances[instance] = column, {name: float(cell) for name, cell in cells.items()}
                break
    return instances


def behind() -> str:
    """Return in how many tables `optsched` has the least mean latency of workflows, or else mean
    JCT, and those in which it has not, or its p99 JCT is much longer than that of the best by this
    mean. Rows of `optsched` with something beside it count neither way."""
    means, tails, tables = [], [], 0
    for path in sorted(PAGES.glob("*.md")):
        page = path.read_text()
        title = page.removeprefix("# ").partition("\n")[0].partition(":")[0]
        p99 = told(page, "p99 JCT h")
        for instance, (column, mean) in told(page, "workflow latency s", "mean JCT h").items():
            rivals = [name for name in sorted(mean) if not name.startswith(OWN)]
            best = min(rivals, key=mean.__getitem__)
            about = f"| [{title}](systems/{path.stem}.md) | {instance} | `{best}` | "
            tables += 1
            if mean["optsched"] > mean[best]:
                means.append(about + _compared(mean[best], mean["optsched"], column[-1]))
            tail = p99[instance][1]
            if tail["optsched"] > (1 + MUCH_LONGER) * tail[best]:
                compared = _compared(tail[best], tail["optsched"], "h")
                tails.append(about + compared + _short_tails(mean, tail, best))
    return "\n".join(
        [
            f"Of {tables} tables `optsched` has the smallest mean completion time (for inference: "
            "latency of workflows), to the digits that are told, in "
            f"{tables - len(means)}. In the others:",
            "",
            "| study | jobs | best | its mean | `optsched` | |",
            "|---|---|---|--:|--:|--:|",
            *means,
            "",
            f"Its p99 JCT is at most {100 * MUCH_LONGER:g} % longer than that of the best of the "
            f"others by this mean, except in {len(tails)} tables:",
            "",
            f"| study | jobs | best by the mean | its p99 | `optsched` | | `{SHORT_TAILS}` | | "
            "its mean, against that of the best |",
            "|---|---|---|--:|--:|--:|--:|--:|--:|",
            *tails,
            "",
        ]
    )


def _short_tails(mean: Mapping[str, float], tail: Mapping[str, float], best: str) -> str:
    """Return what the p99 and the mean of `optsched` are where squared flow times count."""
    if SHORT_TAILS not in mean:
        return " | | |"
    own = tail[SHORT_TAILS]
    change = own / tail[best] - 1
    return f" {own:g} h | {change:+.1%} | {mean[SHORT_TAILS] / mean[best] - 1:+.1%} |"


def _compared(other: float, own: float, unit: str) -> str:
    return f"{other:g} {unit} | {own:g} {unit} | {own / other - 1:+.1%} |"


def main() -> None:
    """Make the pages that are named, and the overview of all."""
    parser = parser_of(__doc__, workers=1, cost=False)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("-o", type=Path, default=Path("build/systems"), help="folder for results")
    args = parser.parse_args()
    if args.cost:
        tell(cost(args.o / "cost", args.workers))
        return
    for name in args.names:
        make_page(name, args.o / name, args.workers)
    write_overview()


if __name__ == "__main__":
    main()
