"""The settings and jobs of examples/cluster are valid, and each names its cluster."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from whet.cluster.server_process import command_of
from whet.methods.registry import config_of

FOLDER = Path(__file__).parents[2] / "examples" / "cluster"
SETTINGS = sorted(FOLDER.glob("*_7b.yaml"))


@pytest.mark.parametrize("file", SETTINGS, ids=lambda file: file.stem)
def test_the_settings_of_a_paper_are_valid_and_have_ranks_and_workers(file):
    command = file.read_text().splitlines()[0].split()
    assert command[:3] == ["#", "whet", "train"]
    overrides = [word for word in command if "=" in word]
    config = config_of(command[3], file, overrides)
    assert (config.cluster.ranks, config.cluster.workers) == (4, 4)


def test_the_settings_with_servers_are_valid_and_start_them():
    config = config_of("grpo", FOLDER / "vllm_servers.yaml", [])
    cluster, engine = config.cluster, config.engine
    assert (engine.kind, engine.urls, cluster.ranks, cluster.servers, cluster.workers) == ("vllm", (), 4, 4, 0)
    words = command_of(cluster, "MODEL", "bfloat16")
    assert words[:5] == ("/opt/vllm/bin/vllm", "serve", "MODEL", "--gpu-memory-utilization", "0.85")


def test_there_is_one_for_each_of_the_five_systems():
    names = {"critique_rl_7b", "bapo_7b", "agentgym_rl_7b", "agentevol_7b", "critique_loop_7b"}
    assert {file.stem for file in SETTINGS} == names


def test_the_slurm_job_is_a_shell_script_that_starts_a_run():
    file = FOLDER / "slurm.sbatch"
    subprocess.run(["bash", "-n", str(file)], check=True)
    text = file.read_text()
    assert "ray symmetric-run --address" in text
    assert "cluster.address=auto" in text


def test_the_kubernetes_job_runs_what_whet_takes():
    job = YAML(typ="safe").load(FOLDER / "rayjob.yaml")
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    words = job["spec"]["entrypoint"].split()
    assert words[:3] == ["whet", "train", "grpo"]
    settings = [word for word in words if "=" in word]
    assert config_of("grpo", None, settings).cluster.ranks == 8
    pins = re.findall(r'"ray==([\d.]+)"', (FOLDER.parents[1] / "pyproject.toml").read_text())
    assert {job["spec"]["rayClusterSpec"]["rayVersion"]} == set(pins)
