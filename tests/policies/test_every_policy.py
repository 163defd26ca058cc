"""Every policy, on random instances that use everything: sound plans, the same every time."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optsched import Instance, Plan
from optsched.objectives import parse
from optsched.plugins.registry import names, policy
from optsched.simulate.run import simulate
from tests.simulate.random_instances import instances
from tests.simulate.windowed import windowed
from tests.verified import checked

WCT = parse("wct")
SHORT = {
    "a-srpt": {"early": "no yes", "tau": "3s"},
    "ces": {"buffer": "0", "boot": "2s", "order": "fifo backfill"},
    "optimus": {"interval": "1s 7s", "place": "packed emptiest"},
    "philly": {"tau": "2s", "reclaim": "0 0.5", "retries": "0"},
    "themis": {"lease": "2s 8s", "fairness": "0.5"},
    "tiresias": {"thresholds": "3,20", "promote": "0 0.5 2", "place": "packed emptiest"},
}
"""Options, with values between blanks, that have a policy act often in small instances."""


@pytest.mark.parametrize("name", names("policies"))
@given(instance=instances() | windowed())
@settings(max_examples=12)
def test_plans_are_sound_and_reproducible(name: str, instance: Instance) -> None:
    assert sound(name, instance, {}) == simulate(instance, policy(name))


@pytest.mark.slow
@pytest.mark.parametrize("name", names("policies"))
@given(instance=instances() | windowed())
@settings(max_examples=400)
def test_many_plans_are_sound_and_reproducible(name: str, instance: Instance) -> None:
    assert sound(name, instance, {}) == simulate(instance, policy(name))


@pytest.mark.parametrize("name", SHORT)
@given(instance=instances(), data=st.data())
@settings(max_examples=25)
def test_plans_are_sound_with_short_times(
    name: str, instance: Instance, data: st.DataObject
) -> None:
    values = {key: st.sampled_from(values.split()) for key, values in SHORT[name].items()}
    sound(name, instance, data.draw(st.fixed_dictionaries(values)))


def sound(name: str, instance: Instance, options: dict[str, str]) -> Plan:
    """Return the plan of a policy, which passes the verifier."""
    plan = simulate(instance, policy(name, options=options))
    checked(instance, plan, replay=True)
    return plan
