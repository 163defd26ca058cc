"""How hypothesis runs the tests of rounds: instances are large, machines slow."""

from hypothesis import HealthCheck, settings

PATIENT = settings(
    deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)
