"""A two-call tool conversation through the proxy, in front of a simulated engine, with every claim about it checked."""

from switchyard_py.demo.claims import Claim
from switchyard_py.demo.conversation import Unanswered
from switchyard_py.demo.demonstration import Demonstration
from switchyard_py.demo.presentation import Presentation

__all__ = ["Claim", "Demonstration", "Presentation", "Unanswered"]
