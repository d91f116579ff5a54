from pathlib import Path

import pytest

from switchyard_py.simulator import SimulatorSettingsError, compose_settings, load_script
from switchyard_py.simulator.settings import Fault, parse_fault


def test_script_and_fault_options_come_together(tmp_path: Path) -> None:
    script = tmp_path / "script.yaml"
    script.write_text(
        """
        replies:
          - content: hello
          - when: {contains: weather}
            thinking: hm
            tool_calls: [{name: get_weather, arguments: {city: Paris}}]
        faults:
          - {call: 2, status: 503}
        """
    )
    settings = compose_settings(script, ["call=3,cut_after=1", "strip=token_ids,strip=logprobs"], model="m", slots=1)
    assert settings.replies[1].tool_calls[0].arguments == {"city": "Paris"}
    assert settings.faults == (
        Fault(call=2, status=503),
        Fault(call=3, cut_after=1),
        Fault(strip=("token_ids", "logprobs")),
    )


def test_an_empty_script_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "empty.yaml").write_text("")
    assert load_script(tmp_path / "empty.yaml").replies == ()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("replies: [{contents: x}]", "replies.0.contents: unknown key"),
        ("replies: [{}]", "replies.0: give either raw, or any of thinking, content and tool_calls"),
        ("replies: [{raw: x, content: y}]", "replies.0: give either raw"),
        ("faults: [{call: 1}]", "faults.0: give one of status"),
        ("faults: [{status: 200}]", "faults.0.status: Input should be greater than or equal to 400"),
        ("- x", "Input should be"),
        ("a: [", "not YAML or JSON"),
        ("replies: [{content: 2024-01-01}]", "only JSON values"),
    ],
)
def test_a_bad_script_is_refused_with_the_place(tmp_path: Path, text: str, problem: str) -> None:
    script = tmp_path / "bad.yaml"
    script.write_text(text)
    with pytest.raises(SimulatorSettingsError) as caught:
        load_script(script)
    assert str(script) in str(caught.value)
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_script_is_named(tmp_path: Path) -> None:
    with pytest.raises(SimulatorSettingsError, match=r"nowhere\.yaml: No such file"):
        load_script(tmp_path / "nowhere.yaml")


@pytest.mark.parametrize(
    ("text", "problem"),
    [("503", "write key=value pairs"), ("code=3", "unknown key 'code', write one of call"), ("delay=soon", "delay: ")],
)
def test_a_bad_fault_is_refused(text: str, problem: str) -> None:
    with pytest.raises(SimulatorSettingsError, match=problem):
        parse_fault(text)


def test_a_bad_setting_is_refused() -> None:
    with pytest.raises(SimulatorSettingsError, match="slots: "):
        compose_settings(None, [], slots=0)
