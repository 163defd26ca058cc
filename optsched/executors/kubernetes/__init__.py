"""Runs jobs as pods on the nodes of a Kubernetes cluster."""

from .api import KubernetesApi
from .executor import KubernetesExecutor
from .site import Site, Volume

__all__ = ["KubernetesApi", "KubernetesExecutor", "Site", "Volume"]
