"""The Kubernetes executor does what every executor must, on a real API server."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.executors.conformance import Conformance
from tests.live.kubernetes_cluster import KubernetesCluster

from .conftest import KubernetesPlace

pytestmark = pytest.mark.slow


@pytest.fixture
def place(kubernetes: KubernetesCluster) -> Iterator[KubernetesPlace]:
    with tempfile.TemporaryDirectory(prefix="optsched-place-") as name:
        Path(name).chmod(0o755)
        made = KubernetesPlace(Path(name), kubernetes)
        yield made
        made.clear()


class TestKubernetes(Conformance):
    pass
