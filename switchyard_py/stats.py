"""The counts as one JSON object, made from the metrics.

`models`, `total_*` and `routing_overhead` have the names that readers of the original proxy's `/v1/stats` know. NeMo
Gym stores the object as it is with the results of a run.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from prometheus_client.metrics_core import Metric

from switchyard_py.config import Route
from switchyard_py.metrics import RESULTS
from switchyard_py.observation import AGENT_GONE, ANSWERED

KINDS = ("prompt", "completion", "cached", "reasoning")


class Figures:
    """The samples of all metrics, to be added up."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._samples: dict[str, list[tuple[Mapping[str, str], float]]] = defaultdict(list)
        for family in families:
            for sample in family.samples:
                self._samples[sample.name.removeprefix("switchyard_")].append((sample.labels, sample.value))

    def total(self, name: str, **wanted: Collection[str]) -> float:
        """The sum of the samples of that name, without the prefix, whose labels are among the wanted values."""
        return sum(
            value
            for labels, value in self._samples[name]
            if all(labels[label] in among for label, among in wanted.items())
        )

    def count(self, name: str, **wanted: Collection[str]) -> int:
        """The same of a metric that counts."""
        return int(self.total(name, **wanted))


def statistics(families: Iterable[Metric], routes: Sequence[Route]) -> dict[str, object]:
    """The object of `GET /v1/stats`. Tokens are those of recorded calls, times are in milliseconds."""
    figures = Figures(families)
    results = {result: figures.count("capture_records_total", result=[result]) for result in RESULTS}
    open_calls = figures.count("capture_open_calls")
    calls, errors = _calls(figures)
    tokens = _tokens(figures)
    return {
        "total_requests": calls,
        "total_errors": errors,
        "total_tokens": {**tokens, "total": tokens["prompt"] + tokens["completion"]},
        "models": _models(figures, routes),
        "routing_overhead": _times(figures, "proxy_overhead_seconds", until=["last_byte"]),
        "calls": calls,
        "captured": sum(results.values()),
        "unidentified": figures.count("unidentified_calls_total"),
        "uncaptured": figures.count("uncaptured_calls_total"),
        "agent_gone": figures.count("client_disconnects_total"),
        "errors_told": errors,
        "resent": figures.count("upstream_resent_requests_total"),
        "repeated": figures.count("upstream_repeated_requests_total"),
        "replays": figures.count("replays_total"),
        "in_flight": figures.count("calls_in_flight"),
        "workers": figures.count("workers"),
        "ledger": {
            "begun": sum(results.values()) + open_calls,
            **results,
            "open": open_calls,
            "abandoned": figures.count("capture_abandoned_calls"),
            "refused": figures.count("capture_refused_calls_total"),
            "unwritten": figures.count("capture_unwritten_marks"),
        },
        "faulty_files": figures.count("capture_faulty_files_total"),
    }


def _models(figures: Figures, routes: Sequence[Route]) -> dict[str, object]:
    """By what a call was sent to: the target's model, or the route where the agent names the model."""
    by_model: dict[str, list[str]] = defaultdict(list)
    for route in routes:
        by_model[route.target.model or route.name].append(route.name)
    return {model: _model(figures, names) for model, names in by_model.items()}


def _model(figures: Figures, routes: Collection[str]) -> dict[str, object]:
    calls, errors = _calls(figures, route=routes)
    tokens = _tokens(figures, route=routes)
    return {
        "calls": calls,
        "errors": errors,
        **{f"{kind}_tokens": count for kind, count in tokens.items()},
        "total_tokens": tokens["prompt"] + tokens["completion"],
        "total_latency": _times(figures, "call_seconds", route=routes),
    }


def _calls(figures: Figures, **wanted: Collection[str]) -> tuple[int, int]:
    """Calls that are over, and those of them whose agent was told of an error."""
    calls = figures.count("calls_total", **wanted)
    return calls, calls - figures.count("calls_total", outcome=[ANSWERED, AGENT_GONE], **wanted)


def _tokens(figures: Figures, **wanted: Collection[str]) -> dict[str, int]:
    return {kind: figures.count("tokens_total", kind=[kind], **wanted) for kind in KINDS}


def _times(figures: Figures, histogram: str, **wanted: Collection[str]) -> dict[str, float]:
    count = figures.count(f"{histogram}_count", **wanted)
    total_ms = round(figures.total(f"{histogram}_sum", **wanted) * 1000, 3)
    return {"count": count, "total_ms": total_ms, "avg_ms": round(total_ms / count, 3) if count else 0.0}
