"""A name that is nearly right is answered with the right one, wherever there is a list to choose from."""

import pytest
from click.testing import CliRunner

from optsched.cli import main

EXAMPLE = "instances/examples/quota.json"


@pytest.mark.parametrize(("line", "said"), [
    ("slove x.json", "command 'slove' is unknown (perhaps solve); `optsched --help` names them all"),
    ("verify_bound a b", "command 'verify_bound' is unknown (perhaps verify-bound)"),
    (f"solve {EXAMPLE} --solver cpsta", "solver 'cpsta' is unknown (perhaps cpsat); choose from"),
    (f"solve {EXAMPLE} --solver sjff", "solver 'sjff' is unknown (perhaps sjf); choose from"),
    (f"simulate {EXAMPLE} --policy SRSFF", "policy 'SRSFF' is unknown (perhaps srsf); choose from"),
    (f"round {EXAMPLE} --solver prize", "round solver 'prize' is unknown (perhaps price); choose from"),
    (f"solve {EXAMPLE} --objective deadlin,wct", "objective 'deadlin' is unknown (perhaps deadline); choose from"),
    (f"solve {EXAMPLE} --objective 0.5*makspan+wct", "objective '0.5*makspan' is unknown (perhaps makespan); choose"),
    (f"simulate {EXAMPLE} --policy fifo --estimates histroy", "'histroy' are unknown (perhaps history); choose from"),
    (f"solve {EXAMPLE} --solver qqqqqqqq", "solver 'qqqqqqqq' is unknown; choose from"),
])
def test_the_nearest_name_is_named(line: str, said: str) -> None:
    result = CliRunner().invoke(main, line.split())
    assert result.exit_code == 2
    assert said in result.output
