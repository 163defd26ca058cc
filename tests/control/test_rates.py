"""What a kWh costs and emits on a live cluster."""

import time
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from optsched import Cluster, Instance, Profile
from optsched.control.rates import DAYS_AHEAD, SOUND, known
from optsched.control.settings import read_settings
from optsched.errors import InputError
from optsched.files.faults import find_faults
from optsched.kueue.handover import Handover
from optsched.objectives import Tariff

from .test_controller import SETTINGS, Lab
from .test_settings import START, said_of

BY_DAY = {"22:00": 0.18, "07:00": 0.32}


def rate_at(stated: object, now: datetime, at: datetime) -> float:
    """The price of an hour from an instant on, as a round at `now` knows it."""
    rates = known(stated, now.timestamp())  # type: ignore[arg-type]
    assert rates is not None
    instance = Instance(cluster=Cluster(energy_price_per_kwh=rates), now_s=now.timestamp())
    assert not find_faults(instance)
    return Tariff.of(rates).integral(at.timestamp(), 3600.0) / 3600.0


@pytest.mark.parametrize("zone", ["UTC", "America/Los_Angeles", "Europe/Berlin"])
def test_times_of_day_hold_on_every_day(zone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        for now in (datetime(2026, 3, 7, 23, 59), datetime(2026, 10, 24), datetime(2026, 7, 1, 12)):
            day = now.replace(hour=0, minute=0)
            for days in range(DAYS_AHEAD - 1):
                at = day + timedelta(days=days)
                found = [rate_at(BY_DAY, now, at.replace(hour=hour)) for hour in (0, 6, 7, 21, 22)]
                assert found == pytest.approx([0.18, 0.18, 0.32, 0.32, 0.18])
            later = known(BY_DAY, (day + timedelta(hours=23, minutes=58)).timestamp())
            assert later == known(BY_DAY, day.timestamp()), "the same all day long"
            skipped = {f"{hour:02}:{minute:02}": 1.0 for hour in (2, 3) for minute in (0, 30)}
            assert rate_at(skipped, now, now) == 1.0
    finally:
        monkeypatch.undo()
        time.tzset()


def test_of_a_long_table_what_is_near_is_known() -> None:
    now = datetime(2026, 7, 1, 12)
    begin = datetime(2026, 6, 1)
    steps = tuple(
        ((begin + timedelta(hours=hour)).timestamp(), float(hour)) for hour in range(24 * 60)
    )
    rates = known(steps, now.timestamp())
    assert isinstance(rates, tuple) and len(rates) == 24 * (DAYS_AHEAD + 1)
    for days in (-1, 0, DAYS_AHEAD - 1):
        at = datetime(2026, 7, 1, 5) + timedelta(days=days)
        assert rate_at(steps, now, at) == 24 * (30 + days) + 5
    assert known(steps[:1], now.timestamp()) == steps[:1], "what began long ago holds"
    assert known(steps[-1:], now.timestamp()) == steps[-1:], "the first also holds before"
    assert (known(0.25, 0.0), known(None, 0.0)) == (0.25, None)


def test_a_file_says_rates(tmp_path: Path) -> None:
    path = tmp_path / "cluster.toml"
    table = '[energy_price_per_kwh]\n"07:00" = 0.32\n"22:00" = 0\n'
    steps = "carbon_g_per_kwh = [[2026-08-01T00:00:00Z, 300], [2026-08-01T06:00:00Z, 0.5]]\n"
    path.write_text(f'{START}objective = "wct+2*energy_cost+0.01*carbon"\n{steps}{table}')
    settings = read_settings(path)
    assert settings.energy_price_per_kwh == {"07:00": 0.32, "22:00": 0.0}
    assert settings.carbon_g_per_kwh == ((1785542400.0, 300.0), (1785564000.0, 0.5))
    path.write_text(f"{START}energy_price_per_kwh = 0.25\n")
    assert read_settings(path).rates(0.0)["energy_price_per_kwh"] == 0.25
    [said] = said_of(tmp_path, f'{START}objective = "energy_cost"\n')
    assert "objective energy_cost needs cluster.energy_price_per_kwh" in said


@pytest.mark.parametrize(
    "faulty",
    [
        *("-0.1", "nan", "inf", "1e300", "true", '"cheap"', "{}", "[]", '{"7:00" = 1}', "[1]"),
        *('{"24:00" = 1}', '{"07:00" = -1}', "[[1, 2]]", "[[2026-08-01T00:00:00, 1, 2]]"),
        "[[2026-08-01T00:00:00, -1]]",
        "[[0001-01-01T00:00:00, 1]]",
        "[[2026-08-01T06:00:00, 1], [2026-08-01T06:00:00, 2]]",
        "[[2026-08-01T06:00:00Z, 1], [2026-08-01T00:00:00, 2]]",
    ],
)
def test_a_faulty_rate_is_one_sentence(tmp_path: Path, faulty: str) -> None:
    [said] = said_of(tmp_path, f"{START}energy_price_per_kwh = {faulty}\n")
    assert said == f"energy_price_per_kwh: {SOUND}; correct it"


def test_jobs_wait_for_cheap_energy(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    now_s = lab.clock.at_s
    price = ((now_s, 0.5), (now_s + 300.0, 0.1))
    settings = SETTINGS.model_copy(
        update={"objective": "energy_cost", "energy_price_per_kwh": price}
    )
    lab.controller.take_over(settings, lab.controller.drivers_of(settings), lab.executor)
    lab.submit("j", 4, 50.0, profile=Profile(power_w={"a": 300.0}))
    lab.run(120)
    assert lab.controller.state.jobs["j"].live is None
    cluster = lab.controller.cluster
    assert cluster is lab.controller.cluster and cluster.energy_price_per_kwh == price
    lab.run(600)
    job = lab.controller.state.jobs["j"]
    assert job.finished == "completed" and job.attempts[0].started_s is not None
    assert now_s + 300.0 <= job.attempts[0].started_s <= now_s + 370.0
    lab.controller.journal.close()


def test_kueue_has_no_rates() -> None:
    settings = SETTINGS.model_copy(update={"objective": "carbon", "carbon_g_per_kwh": 300.0})
    with pytest.raises(InputError, match="objective carbon needs cluster"):
        Handover(settings, None)  # type: ignore[arg-type]
