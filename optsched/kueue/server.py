"""Kueue's objects on an API server."""

from collections.abc import Callable
from typing import TypeVar
from urllib.parse import quote

from ..errors import InputError
from ..executors.base import Entry, NoAnswerError, inner
from ..executors.kubernetes.api import NOT_FOUND, KubernetesApi, RejectedError
from .objects import BOOST, STARTS, Flavor, Queue, Workload, read_flavor, read_queue, read_workload

GROUP = "/apis/kueue.x-k8s.io"
VERSIONS = ("v1beta2", "v1beta1")
"""Those that are understood, the best first."""
Read = TypeVar("Read")


class KueueServer(KubernetesApi):
    """Reads queues, flavors and Workloads, and writes boosts and expected starts: nothing else."""

    _version: str | None = None

    def read(self) -> tuple[list[Queue], list[Flavor], list[Workload]]:
        """Return all there are. Raises NoAnswerError, and InputError where there is no Kueue, or
        one that is not understood."""
        if self._version is None:
            self._version = self._served()
        queues = self._all("clusterqueues", read_queue)
        flavors = self._all("resourceflavors", read_flavor)
        local = dict(self._all("localqueues", _local_queue))
        workloads = self._all("workloads", lambda given: read_workload(given, local))
        return queues, flavors, [workload for workload in workloads if workload is not None]

    def boost(self, workload: Workload, boost: int) -> None:
        """Write a boost, or remove it where it is 0; nothing if the Workload is gone. Raises
        NoAnswerError."""
        self._annotate(workload, BOOST, str(boost) if boost else None)

    def starts(self, workload: Workload, text: str | None) -> None:
        """Write when a Workload is expected to start, or remove that; nothing if it is gone. Raises
        NoAnswerError."""
        self._annotate(workload, STARTS, text)

    def _annotate(self, workload: Workload, name: str, text: str | None) -> None:
        path = (
            f"{GROUP}/{self._version}/namespaces/{quote(workload.namespace, safe='')}"
            f"/workloads/{quote(workload.name, safe='')}"
        )
        try:
            self._ask("PATCH", path, {"metadata": {"annotations": {name: text}}})
        except RejectedError as error:
            if error.status != NOT_FOUND:
                raise NoAnswerError(f"{name} of {workload.id} cannot be written: {error}") from None

    def _served(self) -> str:
        try:
            versions = [entry["version"] for entry in self._ask("GET", GROUP)["versions"]]
        except RejectedError as error:
            if error.status == NOT_FOUND:
                raise InputError(
                    f"there is no Kueue at {self.address}; install Kueue 0.17 or later there"
                ) from None
            raise NoAnswerError(
                f"the API server at {self.address} does not tell its versions of Kueue: {error}"
            ) from None
        served = next((version for version in VERSIONS if version in versions), None)
        if served is None:
            raise InputError(
                f"Kueue at {self.address} has {', '.join(versions)}; known are "
                f"{', '.join(VERSIONS)}"
            )
        return served

    def _all(self, what: str, read: Callable[[Entry], Read]) -> list[Read]:
        items, _ = self._list(f"{GROUP}/{self._version}/{what}", f"Kueue's {what}")
        objects = []
        for given in items:
            try:
                objects.append(read(given))
            except (KeyError, TypeError, ValueError) as error:
                name = inner(given, "metadata").get("name")
                raise NoAnswerError(
                    f"{what} {name} is not as Kueue's API says: {type(error).__name__} {error}"
                ) from None
        return objects


def _local_queue(given: Entry) -> tuple[tuple[str, str], str]:
    return (given["metadata"]["namespace"], given["metadata"]["name"]), str(
        given["spec"].get("clusterQueue") or ""
    )
