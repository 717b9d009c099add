"""The runtime: services by name, an engine for every policy, roles, and several episodes of each task."""

from functools import partial

import pytest

from whet.config.parts import EndpointConfig, EngineConfig, SamplingConfig
from whet.engines.endpoint import BudgetSpent, EndpointEngine
from whet.models.lean import steady_positions
from whet.rollout.driver import GRADER, Ask
from whet.rollout.runtime import Runtime
from whet.rollout.services import Fault
from whet.rollout.solve import Solve
from whet.tasks.prompts import CHAINS
from whet.types import Grade, Request, Sampling, Task


def grade(asked):
    return [Grade(score=float("2" in text)) for text, _ in asked]


def requests(policy):
    context = tuple(policy.tokenizer.encode("Solve: 7 + 5"))
    return [Request(context=context, sampling=Sampling(max_new_tokens=5), seed=i) for i in range(2)]


def test_it_has_the_grader_and_every_policy_also_those_that_come_later(random_policy):
    policies = {"policy": random_policy}
    runtime = Runtime(policies, grade, EngineConfig())
    assert list(runtime) == [GRADER, "policy"]
    policies["kept"] = random_policy.fork("kept")
    assert (list(runtime), len(runtime)) == ([GRADER, "policy", "kept"], 3)
    assert runtime[GRADER] is grade
    assert runtime["kept"](requests(random_policy)) == runtime["policy"](requests(random_policy))
    with pytest.raises(KeyError):
        runtime["nobody"]


def test_an_engine_is_kept_and_made_anew_where_another_policy_takes_the_name(random_policy):
    policies = {"policy": random_policy}
    runtime = Runtime(policies, grade, EngineConfig(max_rows=3))
    engine = runtime["policy"].__self__
    assert runtime["policy"].__self__ is engine
    assert engine.policy is random_policy
    policies["policy"] = random_policy.fork("policy")
    assert runtime["policy"].__self__ is not engine
    assert runtime["policy"].__self__.policy is policies["policy"]


def test_a_role_samples_by_its_settings(random_policy):
    runtime = Runtime({"policy": random_policy}, grade, EngineConfig())
    settings = SamplingConfig(temperature=0.7, top_p=0.9, max_new_tokens=12, stop=("end",))
    role = runtime.policy_role("solver", "policy", settings)
    assert (role.name, role.policy, role.tokenizer) == ("solver", "policy", random_policy.tokenizer)
    assert role.sampling == Sampling(temperature=0.7, top_p=0.9, max_new_tokens=12, stop=("end",))
    warmer = runtime.policy_role("solver", "policy", settings, temperature=1.0).sampling
    assert warmer == Sampling(temperature=1.0, top_p=0.9, max_new_tokens=12, stop=("end",))
    for temperature in (None, 1.0):
        greedy = runtime.policy_role("solver", "policy", settings, greedy=True, temperature=temperature).sampling
        assert greedy == Sampling(temperature=0.0, top_p=1.0, max_new_tokens=12, stop=("end",))


def test_the_plays_of_a_task_stand_next_to_each_other(random_policy):
    runtime = Runtime({"policy": random_policy}, grade, EngineConfig())
    rollout = Solve(CHAINS, runtime.policy_role("solver", "policy", SamplingConfig(max_new_tokens=8)), ("key",))
    tasks = [Task(id=f"t{i}", prompt=f"{i} + 5", answer="2") for i in range(3)]
    groups = runtime.by_task(rollout, tasks, num_samples=2)
    assert [[episode.task.id for episode in group] for group in groups] == [["t0"] * 2, ["t1"] * 2, ["t2"] * 2]
    segments = [episode.segments[0] for group in groups for episode in group]
    assert len({segment.seed for segment in segments}) == 6
    assert all(segment.grade is not None for segment in segments)
    # A reply is a function of its seed, and not of who was in the batch.
    again = runtime.by_task(rollout, tasks[1:2], num_samples=2)
    assert [episode.segments[0].tokens for episode in again[0]] == [e.segments[0].tokens for e in groups[1]]


def test_flows_ask_any_service_by_name(random_policy):
    async def rollout(number):
        found: Grade = await Ask(GRADER, (str(number), None))
        return found.score

    assert Runtime({"policy": random_policy}, grade, EngineConfig()).roll_out(
        partial(rollout, number) for number in (1, 2, 3)
    ) == [
        0.0,
        1.0,
        0.0,
    ]


def test_what_an_endpoint_wrote_is_not_read_past_a_models_positions(random_policy):
    """A reply of one token there may be many here: the tokenizers are not the same."""
    settings = SamplingConfig(max_new_tokens=8)
    pytest.importorskip("openai", reason="openai is not installed; it comes with the extra 'endpoint'")
    positions = steady_positions(random_policy.causal_lm)
    alone = Runtime({"policy": random_policy}, grade, EngineConfig())
    assert alone.role("critic", "policy", settings).max_positions is None
    config = EndpointConfig(url="http://127.0.0.1:1/v1", model="nobody")
    runtime = Runtime({"policy": random_policy}, grade, EngineConfig(), {"actor": EndpointEngine("actor", config)})
    role = runtime.policy_role("critic", "policy", settings)

    async def reply(count):
        try:
            return await role.reply([{"role": "user", "content": "7 " * count}], seed=0)
        except Fault as fault:
            return fault.failure

    short, long = runtime.roll_out([partial(reply, 5), partial(reply, positions)])
    assert short.role == "critic"
    assert (long.kind, f"{positions} positions" in long.reason) == ("endpoint_error", True)


def test_what_workers_spend_of_an_endpoints_tokens_counts_together(random_policy):
    pytest.importorskip("openai", reason="openai is not installed; it comes with the extra 'endpoint'")
    config = EndpointConfig(url="http://127.0.0.1:1/v1", model="nobody", max_tokens=100)
    runtime = Runtime({"policy": random_policy}, grade, EngineConfig(), {"actor": EndpointEngine("actor", config)})
    runtime.grow({"endpoint/actor.read": 40.0, "endpoint/actor.written": 20.0})
    assert runtime.counts()["endpoint/actor.read"] == 40
    with pytest.raises(BudgetSpent, match=r"actor: 120 tokens were read and written .* actor\.max_tokens = 100"):
        runtime.grow({"endpoint/actor.read": 40.0, "endpoint/actor.written": 20.0})
