"""Counts of this process since it started."""

from dataclasses import asdict, dataclass


@dataclass(slots=True)
class Stats:
    """Model calls by what became of them; each call counts once in `calls`."""

    calls: int = 0
    captured: int = 0
    unidentified: int = 0
    """Calls on a captured route that belong to no session: forwarded, not recorded."""
    agent_gone: int = 0
    errors_told: int = 0

    def as_dict(self) -> dict[str, int]:
        """The counts by name."""
        return asdict(self)
