"""Measure every number that README and docs state, and write it where it is stated.

    python -m benchmarks.claims [NAME ...]          measure what this commit has not measured here
    python -m benchmarks.claims --fast --check      what CI does: fail where a number got worse
    python -m benchmarks.claims --tables            only write the tables again

`claims.toml` has a section for each command and for each table. A command prints JSON objects, one
a line, or text that `pattern` reads; each is a record, of which `keep` names the fields. A field in
`at_most` (`at_least`) is worse above (below) so many times its recorded value; the others say
what was measured and must come out as recorded. Results stay in `.claims/MACHINE/COMMIT/`, so that
an interrupted run goes on where it was. `fast` claims do not depend on the machine: they count
work, and say nothing of seconds.

Pages quote a table between `<!-- claims:NAME -->` and `<!-- /claims -->`.
"""

import argparse
import json
import os
import platform
import re
import shlex
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.data import DATA

ROOT = Path(__file__).resolve().parents[1]
CLAIMS = ROOT / "benchmarks" / "claims.toml"
RESULTS = ROOT / ".claims"
MARKED = re.compile(r"(<!-- claims:([\w-]+) -->)(.*?)(<!-- /claims -->)", re.S)
ROUNDING = 1e-9
"""A recorded zero may come out as this."""

Record = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One command, what of its output is claimed, and how far that may vary."""

    name: str
    what: str
    command: str
    keep: Sequence[str]
    values: Sequence[Record]
    measured: str
    """Commit and machine."""
    pattern: str | None = None
    fast: bool = False
    at_most: Mapping[str, float] = field(default_factory=dict)
    at_least: Mapping[str, float] = field(default_factory=dict)

    def records(self, output: str) -> list[Record]:
        """Return the records of an output that have all fields that are kept."""
        if self.pattern is not None:
            matches = re.finditer(self.pattern, output, re.M)
            made = [{key: _number(text) for key, text in m.groupdict().items()} for m in matches]
        else:
            lines = (line for line in output.splitlines() if line.startswith("{"))
            made = [json.loads(line) for line in lines]
        whole = [record for record in made if set(self.keep) <= record.keys()]
        return [{key: record[key] for key in self.keep} for record in whole]

    def worse(self, records: Sequence[Record]) -> list[str]:
        """Say of each field that is worse than claimed what it was and what it is."""
        if len(records) != len(self.values):
            return [f"{self.name}: {len(records)} records, {len(self.values)} are claimed"]
        return [
            f"{self.name}: {self._label(old)}: {key} was {old[key]}, is {new.get(key)}"
            for old, new in zip(self.values, records, strict=True)
            for key in old
            if not self._holds(key, old[key], new.get(key))
        ]

    def _holds(self, key: str, old: Any, new: Any) -> bool:
        if key in self.at_most:
            return new is not None and new <= old * self.at_most[key] + ROUNDING
        if key in self.at_least:
            return new is not None and new >= old * self.at_least[key] - ROUNDING
        return bool(new == old)

    def _label(self, record: Record) -> str:
        varying = {*self.at_most, *self.at_least}
        return " ".join(f"{value}" for key, value in record.items() if key not in varying)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Lines of a table: `row` is formatted once for every `group` records of a claim that agree
    with `where`."""

    claim: str
    row: str
    group: int = 1
    where: Mapping[str, Any] = field(default_factory=dict)

    def lines(self, records: Iterable[Record]) -> list[str]:
        """Return the formatted lines; percent signs stand apart from their number."""
        chosen = [record for record in records if self.where.items() <= record.items()]
        groups = [chosen[i : i + self.group] for i in range(0, len(chosen), self.group)]
        return [re.sub(r"(?<=\d)%", " %", self.row.format(*group)) for group in groups]


@dataclass(frozen=True, slots=True)
class Book:
    """All claims and the tables made from them."""

    claims: dict[str, Claim]
    tables: dict[str, tuple[str, list[Row]]]
    """Head and rows; a table without a head is put into running text."""

    def table(self, name: str) -> str:
        """Return a table as it stands between its marks."""
        head, rows = self.tables[name]
        lines = [line for row in rows for line in row.lines(self.claims[row.claim].values)]
        if not head:
            return " ".join(lines)
        sources = dict.fromkeys(self.claims[row.claim].measured for row in rows)
        return "\n".join(["", head.strip(), *lines, "", f"*Measured: {'; '.join(sources)}.*", ""])

    def marked(self, text: str) -> str:
        """Return a page with its tables written again. Raises KeyError for an unknown name."""
        return MARKED.sub(lambda mark: mark[1] + self.table(mark[2]) + mark[4], text)


def read(path: Path = CLAIMS) -> Book:
    """Read the claims."""
    raw = tomllib.loads(path.read_text())
    claims = {name: Claim(name=name, **entry) for name, entry in raw["claims"].items()}
    tables = {
        name: (entry.get("head", ""), [Row(**row) for row in entry["rows"]])
        for name, entry in raw["tables"].items()
    }
    return Book(claims, tables)


def pages(root: Path = ROOT) -> list[Path]:
    """Return the pages that may quote a table."""
    return [root / "README.md", *sorted((root / "docs").rglob("*.md"))]


def write_tables(book: Book, root: Path = ROOT) -> list[str]:
    """Write every quoted table again; return the names of the pages that changed."""
    changed = []
    for page in pages(root):
        text = page.read_text()
        if (renewed := book.marked(text)) != text:
            page.write_text(renewed)
            changed.append(str(page.relative_to(root)))
    return changed


def record_values(claim: Claim, records: Iterable[Record], measured: str, path: Path) -> None:
    """Replace what the file records of a claim."""
    rows = "".join(
        "  {" + ", ".join(f"{key} = {json.dumps(value)}" for key, value in record.items()) + "},\n"
        for record in records
    )
    text = path.read_text()
    start = text.index(f"\n[claims.{claim.name}]\n")
    end = text.find("\n[", start + 1)
    section = text[start : end if end >= 0 else len(text)]
    source = f"measured = {json.dumps(measured)}"
    renewed = re.sub(r'(?m)^measured = ".*"$', lambda _: source, section)
    renewed = re.sub(r"(?ms)^values = \[(?:\]|.*?^\])$", lambda _: f"values = [\n{rows}]", renewed)
    path.write_text(text.replace(section, renewed))


def run(claim: Claim, folder: Path, *, again: bool, root: Path = ROOT) -> list[Record]:
    """Return the records of a claim, measured now unless `folder` has them. Raises
    CalledProcessError where the command fails."""
    kept = folder / f"{claim.name}.json"
    if kept.exists() and not again:
        records: list[Record] = json.loads(kept.read_text())
        return records
    folder.mkdir(parents=True, exist_ok=True)
    words = shlex.split(claim.command.format(data=DATA, folder=folder))
    words[0] = sys.executable if words[0] == "python" else words[0]
    here = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    env = {**os.environ, "PATH": here}
    done = subprocess.run(words, cwd=root, env=env, capture_output=True, text=True, check=True)
    records = claim.records(done.stdout)
    kept.write_text(json.dumps(records, indent=1))
    return records


def _number(text: str) -> float | str:
    try:
        value = float(text.replace(",", ""))
    except ValueError:
        return text
    return int(value) if value == int(value) and "." not in text else value


def _commit() -> str:
    return subprocess.run(
        ["git", "describe", "--always", "--dirty", "--exclude=*"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()


def _machine() -> str:
    """Return the processor's name and the number of cores that this process may use."""
    import psutil

    named = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    name = named[1] if named else platform.processor() or platform.machine()
    return f"{psutil.cpu_count()} cores of {name}, Python {platform.python_version()}"


def main() -> int:
    """Measure, compare, and write; return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these claims")
    parser.add_argument("--fast", action="store_true", help="those that no machine changes")
    parser.add_argument("--check", action="store_true", help="write nothing; fail where worse")
    parser.add_argument("--again", action="store_true", help="measure even what is measured")
    parser.add_argument("--tables", action="store_true", help="measure nothing, write the tables")
    given = parser.parse_args()
    book = read()
    if unknown := set(given.names) - set(book.claims):
        parser.error(f"no claim {', '.join(sorted(unknown))}; there are {', '.join(book.claims)}")
    chosen = [
        claim
        for claim in book.claims.values()
        if claim.name in (given.names or book.claims) and (claim.fast or not given.fast)
    ]
    commit, machine = _commit(), _machine()
    folder = RESULTS / re.sub(r"\W+", "-", machine) / commit
    worse, failed = [], False
    for i, claim in enumerate(() if given.tables else chosen, start=1):
        print(f"{i}/{len(chosen)} {claim.name}: {claim.command}", flush=True)
        begun_s = time.monotonic()
        try:
            records = run(claim, folder, again=given.again or commit.endswith("-dirty"))
        except subprocess.CalledProcessError as error:
            last = (error.stderr.strip().splitlines() or ["it said nothing"])[-1]
            print(f"  failed: {last}", flush=True)
            failed = True
            continue
        lines = claim.worse(records)
        worse += lines
        print(*(f"  worse: {line}" for line in lines), sep="\n", end="\n" if lines else "")
        print(f"  {time.monotonic() - begun_s:.0f} s", flush=True)
        if not given.check:
            record_values(claim, records, f"`{commit}` on {machine}", CLAIMS)
    if not given.check:
        print(*(f"wrote {page}" for page in write_tables(read())), sep="\n")
    print(f"{len(worse)} numbers are worse than claimed")
    return int(failed or (given.check and bool(worse)))


if __name__ == "__main__":
    sys.exit(main())
