"""Runs in which a heuristic answered for the solver that was asked."""

from collections import Counter, defaultdict
from collections.abc import Sequence

from .results import Result


def fallbacks(results: Sequence[Result]) -> list[str]:
    """Return a sentence for each method and reason, with the number of its runs that it applies
    to."""
    runs = Counter(result.run.method for result in results)
    reasons: dict[str, Counter[str]] = defaultdict(Counter)
    for result in results:
        reason = (result.answer or {}).get("fallback")
        if reason:
            reasons[result.run.method][str(reason)] += 1
    return [
        f"`{method}`: in {count:,} of {runs[method]:,} runs a heuristic answered: {reason}"
        for method, counts in reasons.items()
        for reason, count in counts.most_common()
    ]


def fallbacks_markdown(results: Sequence[Result]) -> str:
    """Return the sentences under a heading, nothing where there are none."""
    sentences = fallbacks(results)
    return (
        "\n".join(
            ["### Answers of heuristics", "", *(f"- {sentence}" for sentence in sentences), ""]
        )
        if sentences
        else ""
    )
