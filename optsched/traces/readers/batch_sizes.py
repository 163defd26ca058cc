"""Batch sizes that change while a job trains, by the rules of Shockwave's simulator (NSDI'23)."""

from itertools import groupby

SAMPLES = {
    "ResNet-18": 50_000,
    "ResNet-50": 100_000,
    "Transformer": 10_000,
    "LM": 59_675,
    "Recommendation": 117_907,
    "CycleGAN": 6_287,
    "A3C": 4,
}
"""Samples of one epoch."""
LARGEST = {"ResNet-18": 256, "ResNet-50": 128, "Transformer": 128, "LM": 80, "Recommendation": 8192}
"""The largest batch of a GPU that was measured; models not listed keep theirs."""

GNS = {
    ("ResNet-18", 16, 1): (31, 41, 51, 71),
    ("ResNet-18", 32, 1): (21, 31, 51),
    ("ResNet-18", 64, 1): (11, 31),
    ("ResNet-18", 128, 1): (11,),
    ("ResNet-18", 16, 2): (21, 31, 91, 111),
    ("ResNet-18", 32, 2): (11, 21, 41),
    ("ResNet-18", 64, 2): (21, 41),
    ("ResNet-18", 128, 2): (41,),
    ("ResNet-18", 16, 4): (11, 21, 81, 91),
    ("ResNet-18", 32, 4): (21, 31, 61),
    ("ResNet-18", 64, 4): (11, 61),
    ("ResNet-18", 128, 4): (11,),
    ("ResNet-50", 64, 1): (101,),
    ("ResNet-50", 32, 2): (101, 111),
    ("ResNet-50", 64, 2): (81,),
    ("ResNet-50", 32, 4): (131, 221),
    ("ResNet-50", 64, 4): (191,),
    ("LM", 5, 1): (31, 41, 61, 71),
    ("LM", 10, 1): (11, 21, 41),
    ("LM", 20, 1): (11, 41),
    ("LM", 40, 1): (11,),
    ("LM", 5, 2): (31, 51, 61, 71),
    ("LM", 10, 2): (11, 31, 41),
    ("LM", 20, 2): (31, 41),
    ("LM", 40, 2): (11,),
    ("LM", 5, 4): (11, 31, 71, 91),
    ("LM", 10, 4): (11, 31, 61),
    ("LM", 20, 4): (11, 61),
    ("LM", 40, 4): (61,),
    ("Recommendation", 512, 1): (21, 41, 71, 91),
    ("Recommendation", 1024, 1): (21, 51, 91),
    ("Recommendation", 2048, 1): (21, 41),
    ("Recommendation", 4096, 1): (41,),
}
"""Epochs, counted from 0, from which the batch is twice as large, by model, first batch and GPUs.
Measured by the authors from the gradient noise scale (McCandlish et al., 2018)."""

ACCORDION_HEAD = {
    ("Recommendation", 512): 30,
    ("Recommendation", 1024): 30,
    ("Recommendation", 2048): 40,
    ("ResNet-18", 256): 20,
}
"""Length of the first critical regime in epochs where it is not 10."""


def batch_size(model: str, first: int, gpus: int, rule: str, epoch: int) -> int:
    """The batch of each GPU in an epoch counted from 0.

    `static` never changes. `accordion` (Agarwal et al., MLSys 2021) uses the largest outside
    critical regimes: the first epochs, for ResNet-18 also 150 to 159 and 250 to 259, for ResNet-50
    the first ten of every 30; it leaves models without regimes alone. `gns` doubles it at the
    epochs of `GNS`.
    """
    most = LARGEST.get(model, first)
    if rule == "gns":
        doublings = sum(1 for start in GNS.get((model, first, gpus), ()) if epoch >= start)
        return max(first, min(first << doublings, most))
    if (
        rule == "accordion"
        and model in LARGEST
        and model != "Transformer"
        and not _critical(model, first, epoch)
    ):
        return most
    return first


def _critical(model: str, first: int, epoch: int) -> bool:
    if model == "ResNet-50":
        return epoch % 30 < 10
    if epoch < ACCORDION_HEAD.get((model, first), 10):
        return True
    return model == "ResNet-18" and (150 <= epoch < 160 or 250 <= epoch < 260)


def phases(model: str, first: int, gpus: int, rule: str, epochs: int) -> list[tuple[int, int]]:
    """(batch, epochs) one after the other."""
    sizes = (batch_size(model, first, gpus, rule, epoch) for epoch in range(epochs))
    return [(size, len(list(same))) for size, same in groupby(sizes)]


def steps_of_epoch(model: str, batch: int) -> int:
    """Steps that go once through the samples."""
    return -(-SAMPLES[model] // batch)
