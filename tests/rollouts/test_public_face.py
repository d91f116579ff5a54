"""The library is what its list says, needs nothing of the server, and its results are JSON."""

import importlib
import json
import subprocess
import sys
from inspect import ismodule

import orjson
from session_records import assistant, conversation, envelope, lineage_of, record, recorded, user

from switchyard_py import rollouts
from switchyard_py.rollouts import SessionLink, accept, link_sessions, read_session

SERVER = ("starlette", "uvicorn", "aiohttp", "httpx", "pydantic", "typer", "yaml", "prometheus_client")


def test_the_public_list_is_complete() -> None:
    module = importlib.import_module("switchyard_py.rollouts")
    public = {name for name, value in vars(module).items() if not name.startswith("_") and not ismodule(value)}
    assert public == set(rollouts.__all__)


def test_nothing_of_the_server_is_imported() -> None:
    code = f"import sys; import switchyard_py.rollouts; print([name for name in {SERVER} if name in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_results_are_json_without_ids_and_messages() -> None:
    records = [*recorded("mt_turn1", "mt_turn2_drop_reasoning"), {"uuid": 1}]
    value = lineage_of(records).to_json()
    text = json.dumps(value)
    assert json.loads(text) == orjson.loads(orjson.dumps(value))
    assert "Call the tool" not in text
    assert value["diagnoses"][0]["cause"] == "reasoning_not_resent"
    assert value["diagnoses"][0]["explanation"] == "the agent did not send the reasoning back"
    assert value["calls"][2]["flaw"]["code"] == "R1"
    assert value["chains"][0]["verdict"] == {"trainable": True, "reasons": ()}
    assert value["main"]["reason"] == "last_turn"


def test_sessions_are_linked_to_their_parents() -> None:
    child = accept(
        read_session(envelope(conversation(2, session_id="child", parent_session_id="s"), session_id="child"))
    )
    orphan = accept(read_session(envelope(conversation(1, session_id="o", parent_session_id="gone"), session_id="o")))
    main = lineage_of(conversation(1))
    assert link_sessions([main, child, orphan]) == [
        SessionLink("s", None, known=False),
        SessionLink("child", "s", known=True),
        SessionLink("o", "gone", known=False),
    ]


def test_a_session_with_several_agents_is_no_child_of_one_of_them() -> None:
    main = record(0, [1], [2], [user("q"), assistant("a")], call={"agent": {"x-session-id": "ses_0"}})
    child = record(
        1,
        [3],
        [4],
        [user("q"), assistant("a")],
        parent_session_id="ses_0",
        call={"agent": {"x-session-id": "ses_1"}},
    )
    assert lineage_of([main, child]).parent_session_id is None
    assert lineage_of([child]).parent_session_id == "ses_0"
    assert lineage_of([child | {"parent_session_id": "s"}]).parent_session_id is None
