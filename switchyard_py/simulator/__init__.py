"""An embedded engine that speaks vLLM's wire without a model or a GPU.

Deterministic: the same request gets the same tokens and the same log-probabilities. Replies come from a script or
from a rule (`replies.py`); what it cannot do is listed in `docs/simulator.md`.
"""

from switchyard_py.simulator.app import create_simulator
from switchyard_py.simulator.settings import SimulatorSettings, SimulatorSettingsError, compose_settings, load_script

__all__ = ["SimulatorSettings", "SimulatorSettingsError", "compose_settings", "create_simulator", "load_script"]
