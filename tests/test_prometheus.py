"""What deploy/ gives Prometheus, checked by its own program: it takes the files, each alert comes
when it is due and no other does, and it reads the numbers."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from optsched.control.api.metrics import _families
from optsched.control.measures import ROUND_S, Histogram
from tests.control.hostile import Hostile

DEPLOY = Path(__file__).parents[1] / "deploy"
RULES = DEPLOY / "prometheus-rules.yaml"


def rounds_of_up_to(longest_s: float) -> dict[str, float | str]:
    """Two rounds in five minutes: one of half that time, and one of that time."""
    return {
        f'optsched_round_duration_seconds_bucket{{le="{at_most}"}}': (
            f"0+{(float(at_most) >= longest_s / 2) + (float(at_most) >= longest_s)}x100"
        )
        for at_most, _ in Histogram(ROUND_S).buckets()
    }


QUIET: dict[str, float | str] = {
    'up{job="optsched"}': 1,
    "optsched_last_round_timestamp_seconds": 1e9,  # later than all that is looked at
    'optsched_jobs{status="waiting"}': 3,
    'optsched_jobs{status="lost"}': 0,
    "optsched_failing_parts": 0,
    "optsched_disk_short": 0,
    'optsched_node_usable{node="a"}': 1,
    'optsched_node_usable{node="b"}': 1,
    "optsched_attempts_unreachable": 0,
    **rounds_of_up_to(10.0),
    "optsched_longest_wait_seconds": 6 * 86400,
    'optsched_gpus{node="a",gpu_type="a100"}': 8,
    'optsched_gpus{node="b",gpu_type="h100"}': 8,
    'optsched_gpus_in_use{node="a"}': 8,
    'optsched_gpus_in_use{node="b"}': 4,
    "optsched_failures_total": "0+1.5x100",
    'optsched_notices_total{way="email",outcome="sent"}': "0+25x100",
    'optsched_notices_total{way="email",outcome="failed"}': "0+0.5x100",
}
"""A cluster of which nothing is to be told, five minutes apart."""
LOUD: dict[str, dict[str, float | str]] = {
    "OptschedDown": {'up{job="optsched"}': 0},
    "OptschedDecidesNothing": {"optsched_last_round_timestamp_seconds": 0},
    "OptschedPartFails": {"optsched_failing_parts": 1},
    "OptschedDiskFull": {"optsched_disk_short": 1},
    "OptschedNodeOut": {'optsched_node_usable{node="b"}': 0},
    "OptschedAttemptsLost": {'optsched_jobs{status="lost"}': 1},
    "OptschedRoundsSlow": rounds_of_up_to(30.0),
    "OptschedJobWaitsLong": {"optsched_longest_wait_seconds": 8 * 86400},
    "OptschedGpusIdle": {'optsched_gpus_in_use{node="b"}': 3},
    "OptschedManyFailures": {"optsched_failures_total": "0+2x100"},
    "OptschedNoticesFail": {'optsched_notices_total{way="email",outcome="failed"}': "0+5x100"},
}
"""What is otherwise where an alert is due."""
PROMTOOL = shutil.which("promtool")
pytestmark = pytest.mark.skipif(PROMTOOL is None, reason="promtool (Prometheus) is not installed")


def promtool(*words: str | Path, given: str | None = None) -> str:
    done = subprocess.run(
        [str(PROMTOOL), *map(str, words)], input=given, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_prometheus_takes_its_files(tmp_path: Path) -> None:
    shutil.copy(RULES, tmp_path)
    token = tmp_path / "metrics-token"
    token.write_text("x")
    text = (DEPLOY / "prometheus.yaml").read_text()
    (tmp_path / "prometheus.yaml").write_text(
        text.replace("/var/lib/optsched/metrics-token", str(token))
    )
    assert "11 rules found" in promtool("check", "config", tmp_path / "prometheus.yaml")


def test_alerts_come_when_they_should(tmp_path: Path) -> None:
    """None on a quiet cluster; on one where one thing is otherwise its own, after four hours."""
    shutil.copy(RULES, tmp_path)
    names = re.findall(r"- alert: (\w+)", RULES.read_text())
    assert [*LOUD] == names
    cases = []
    for due, otherwise in (("", {}), *LOUD.items()):
        assert otherwise.keys() <= QUIET.keys()
        series = [
            {"series": name, "values": value if isinstance(value, str) else f"{value:g}x100"}
            for name, value in (QUIET | otherwise).items()
        ]
        asked = [
            {
                "expr": f'count by (alertname) (ALERTS{{alertname="{name}",alertstate="firing"}})',
                "eval_time": "4h",
                "exp_samples": [{"labels": f'{{alertname="{name}"}}', "value": 1}]
                if name == due
                else [],
            }
            for name in names
        ]
        cases.append({"interval": "5m", "input_series": series, "promql_expr_test": asked})
    rules = {"rule_files": ["prometheus-rules.yaml"], "evaluation_interval": "5m", "tests": cases}
    (tmp_path / "test.yaml").write_text(json.dumps(rules))
    promtool("test", "rules", tmp_path / "test.yaml")


def test_prometheus_reads_the_numbers(tmp_path: Path) -> None:
    lab = Hostile(tmp_path)
    lab.submit({"gpus": 1, "duration_s": 5.0, "tenant": "a"}, 5.0, 0.0, 0, None)
    lab.run(10)
    registry = CollectorRegistry(auto_describe=False)

    class Numbers:
        def collect(self) -> list[Any]:
            return _families(lab.controller)

    registry.register(Numbers())  # type: ignore[arg-type]
    promtool("check", "metrics", given=generate_latest(registry).decode())
