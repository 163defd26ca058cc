"""Every policy, on random instances that use everything: sound plans, the same every time."""

import pytest
from hypothesis import given, settings

from optsched import Instance
from optsched.objectives import parse
from optsched.plugins.registry import names, policy
from optsched.simulate.run import simulate
from optsched.verify import verify
from tests.simulate.random_instances import instances
from tests.simulate.windowed import windowed

WCT = parse("wct")


@pytest.mark.parametrize("name", names("policies"))
@given(instance=instances() | windowed())
@settings(max_examples=12)
def test_plans_are_sound_and_reproducible(name: str, instance: Instance) -> None:
    check(name, instance)


@pytest.mark.slow
@pytest.mark.parametrize("name", names("policies"))
@given(instance=instances() | windowed())
@settings(max_examples=400)
def test_many_plans_are_sound_and_reproducible(name: str, instance: Instance) -> None:
    check(name, instance)


def check(name: str, instance: Instance) -> None:
    plan = simulate(instance, policy(name))
    report = verify(instance, plan, WCT, replay=True)
    assert report.ok, "\n".join(map(str, report.violations))
    assert simulate(instance, policy(name)) == plan
