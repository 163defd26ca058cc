"""The Kubernetes executor does what every executor must, on a real API server."""

from collections.abc import Callable
from pathlib import Path

import pytest

from optsched.testing.executors import Conformance
from tests.live.kubernetes_cluster import KubernetesCluster

from .conftest import KubernetesPlace

pytestmark = pytest.mark.slow


@pytest.fixture
def open_place(kubernetes: KubernetesCluster) -> Callable[[Path], KubernetesPlace]:
    return lambda folder: KubernetesPlace(folder, kubernetes)


class TestKubernetes(Conformance):
    pass
