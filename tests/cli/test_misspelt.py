"""A name that is nearly right is answered with the right one, wherever there is a list to choose
from."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from optsched.cli import main

EXAMPLE = "instances/examples/quota.json"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            "slove x.json",
            "command 'slove' is unknown (did you mean solve?); `optsched --help` names them all",
        ),
        ("verify_bound a b", "command 'verify_bound' is unknown (did you mean verify-bound?)"),
        (
            f"solve {EXAMPLE} --solver cpsta",
            "solver 'cpsta' is unknown (did you mean cpsat?); choose from",
        ),
        (
            f"solve {EXAMPLE} --solver sjff",
            "solver 'sjff' is unknown (did you mean sjf?); choose from",
        ),
        (
            f"simulate {EXAMPLE} --policy SRSFF",
            "policy 'SRSFF' is unknown (did you mean srsf?); choose from",
        ),
        (
            f"round {EXAMPLE} --solver prize",
            "round solver 'prize' is unknown (did you mean price?); choose from",
        ),
        (
            f"solve {EXAMPLE} --objective deadlin,wct",
            "objective 'deadlin' is unknown (did you mean deadline?); choose from",
        ),
        (
            f"solve {EXAMPLE} --objective 0.5*makspan+wct",
            "objective '0.5*makspan' is unknown (did you mean makespan?); choose",
        ),
        (
            f"simulate {EXAMPLE} --policy fifo --estimates histroy",
            "'histroy' are unknown (did you mean history?); choose from",
        ),
        ("import philli log.csv", "'philli' is not one of 'acme',"),
        ("import philli log.csv", "'tiresias' (did you mean philly?)."),
        ("generate --jobs 4 --gpus 4 --like mixd", "'workflows' (did you mean mixed?)."),
        (f"solve {EXAMPLE} --solver qqqqqqqq", "solver 'qqqqqqqq' is unknown; choose from"),
    ],
)
def test_the_nearest_name_is_named(line: str, said: str) -> None:
    result = CliRunner().invoke(main, line.split())
    assert result.exit_code == 2
    assert said in result.output


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (
            "solve PLAN",
            "PLAN: is a plan (optsched-plan/1), expected an instance (optsched/1); give that file",
        ),
        (
            "bound PLAN",
            "PLAN: is a plan (optsched-plan/1), expected an instance (optsched/1); give that file",
        ),
        (
            f"verify {EXAMPLE} {EXAMPLE}",
            f"{EXAMPLE}: is an instance (optsched/1), expected a plan (optsched-plan/1)",
        ),
        (
            f"verify-bound {EXAMPLE} PLAN",
            "PLAN: is a plan (optsched-plan/1), expected a bound (optsched-bound/1)",
        ),
        (
            "verify-bound PLAN PLAN",
            "PLAN: is a plan (optsched-plan/1), expected a bound (optsched-bound/1)",
        ),
    ],
)
def test_a_file_of_another_kind_is_one_sentence(command: str, said: str, tmp_path: Path) -> None:
    plan = str(tmp_path / "plan.json")
    made = CliRunner().invoke(main, ["solve", EXAMPLE, "--solver", "fifo", "-o", plan, "-q"])
    assert made.exit_code == 0, made.output
    result = CliRunner().invoke(main, command.replace("PLAN", plan).split())
    assert result.exit_code == 2
    assert said.replace("PLAN", plan) in result.output and result.output.count("\n") == 1
