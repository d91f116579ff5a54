"""Records on disk: one directory a session, one file a call, and the file's suffix is the state of the call."""

from switchyard_py.store.closings import Seal, SessionClosed
from switchyard_py.store.endings import Endings, SessionDeleted, SessionInUse, UnknownSession
from switchyard_py.store.filesystem import Filesystem
from switchyard_py.store.intent import CallIntent
from switchyard_py.store.leftovers import Leftovers
from switchyard_py.store.names import State
from switchyard_py.store.reader import CompletionsPage, SessionReader, SessionSummary
from switchyard_py.store.readiness import Room, free_room, store_fault
from switchyard_py.store.records import SCHEMA_VERSION, Fault
from switchyard_py.store.retention import Retention, Sweep
from switchyard_py.store.writer import Writer

__all__ = [
    "SCHEMA_VERSION",
    "CallIntent",
    "CompletionsPage",
    "Endings",
    "Fault",
    "Filesystem",
    "Leftovers",
    "Retention",
    "Room",
    "Seal",
    "SessionClosed",
    "SessionDeleted",
    "SessionInUse",
    "SessionReader",
    "SessionSummary",
    "State",
    "Sweep",
    "UnknownSession",
    "Writer",
    "free_room",
    "store_fault",
]
