"""The options of `whet eval --env agenteval`."""

from __future__ import annotations

import pytest

from support.commands import whet
from whet.cli.agenteval import policy_and_settings, policy_folder
from whet.config import ConfigError


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--env", "agenteval", "--samples", "4"), "--env agenteval does not read --samples"),
        (("--env", "agenteval", "--as-published", "maze"), "does not read --as-published"),
        (("--env", "maze", "--items", "4"), "--items is of --env agenteval"),
        (("--env", "agenteval", "--items", "0"), "--items"),
        (("--env", "agenteval", "--policy", "no/such/model", "--out", "/tmp/never"), "there is no folder"),
        (("--env", "agenteval", "--policy", "http://127.0.0.1:9/v1"), "give --model too"),
        (("--env", "agenteval", "nonsense=1"), "nonsense"),
    ],
)
def test_mistakes_are_refused(arguments, says):
    done = whet("eval", *arguments, check=False)
    text = " ".join((done.stdout + done.stderr).split())
    assert done.returncode == 2, text
    assert says in text
    assert "Traceback" not in text


def test_a_runs_folder_stands_for_its_best_policy(tmp_path):
    assert policy_folder("tiny_agent") == "tiny_agent"
    (tmp_path / "config.yaml").write_text("method: agent_clone\n")
    with pytest.raises(ConfigError, match="has not finished"):
        policy_folder(str(tmp_path))
    (tmp_path / "best").mkdir()
    best = str(tmp_path / "best")
    assert policy_folder(str(tmp_path)) == best
    assert policy_and_settings(str(tmp_path), "", ["seed=1"]) == (best, ["seed=1"])
    assert policy_and_settings("rules=none", "tiny_agent", ["seed=1"]) == ("tiny_agent", ["rules=none", "seed=1"])
    with pytest.raises(ConfigError, match="are two agents"):
        policy_and_settings(str(tmp_path), "tiny_agent", [])
