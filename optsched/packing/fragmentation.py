"""Fragmentation gradient descent: a job goes where the GPUs that typical jobs cannot use grow
least.

Source: Q. Weng et al., Beware of fragmentation: scheduling GPU-sharing workloads with fragmentation
gradient descent, USENIX ATC'23, sections 4 and 5; constants of the artifact.
"""

import numpy as np

from .gradient import Gradient
from .problem import WHOLE, Array


class FragmentationGradient(Gradient):
    """FGD: the fragments of a node are what is left of GPUs that are too small for a typical job,
    and all that is left where it does not fit; scores are the logistic of their decrease in GPUs,
    cut to whole numbers up to 100."""

    def loss(self, cpus: Array, left: Array, gpu_type: str | None) -> Array:
        return self.fragments(cpus, left, gpu_type)

    def points(self, growth: Array) -> Array:
        scores: Array = (100 / (1 + np.exp(growth / WHOLE))).astype(np.int64)
        return scores
