"""A critic in the loop of an agent: who sits where, which world comes again, groups, and faults that nobody is paid
for."""

from __future__ import annotations

import time
from copy import copy
from dataclasses import dataclass, replace

import pytest

from support.counter import Counter, info_of
from whet.credit import groups_of, refine_outcome, rewarded, verdict_match
from whet.envs.formats import PARSERS
from whet.envs.registry import ENVIRONMENTS
from whet.evaluation.agents import turns_trace
from whet.methods.agent.critique_rollout import AgentCritique, attempt_text
from whet.methods.agent.oracles import Experts, action_critic, critique_text, rule_critic
from whet.methods.agent.review import Reviewer
from whet.methods.agent.revisions import revision_metrics, revision_traces, revisions
from whet.methods.stages import terms_of
from whet.methods.stages_config import Stage2
from whet.rollout.agent import Agent
from whet.rollout.driver import roll_out
from whet.rollout.environments import Environments
from whet.rollout.free import roll_out_free
from whet.rollout.retries import EpisodeCounts, Retries
from whet.rollout.roles import EndpointRole, written
from whet.rollout.services import Fault
from whet.tasks.prompts import ACTING
from whet.types import Failure, Sampling, Task

WRONG, RIGHT = ACTING.closing(right=False), ACTING.closing(right=True)


class Forgetful(Counter):
    """Counts down where it is told to go, at its item or below."""

    seeds = ()

    def reset(self, item, *, seed=0):
        type(self).seeds = (*type(self).seeds, (item, seed))
        return super().reset(item, seed=seed)

    def fork(self):
        return copy(self)

    def step(self, action):
        if action != "go":
            return f"{self.left} to go", 0.0, False, False, {"invalid": True}
        return super().step(action)


def going(env, *, seed=0):
    while env.left:
        yield "I go.", "go"


def forgetful():
    Forgetful.seeds = ()
    return replace(info_of(Forgetful), expert=going, success_above=0.5)


class Obedient:
    """Goes where it was told to, and nowhere else."""

    name, policy, sampling = "agent", "rule", Sampling()

    def __init__(self):
        self.shown = []

    async def reply(self, messages, *, prefill="", seed, parent=None, group=None, follows=None):
        self.shown.append([message["content"] for message in messages])
        action = "go" if "\ngo" in messages[0]["content"] else "wait"
        return written("agent", f"Action: {action}", policy="rule", parent=parent, seed=seed)


class Says:
    """A critic that says one thing after the other, and remembers what it was shown."""

    name, policy, sampling = "critic", "rule", Sampling()

    def __init__(self, *texts):
        self.texts, self.shown = list(texts), []

    async def reply(self, messages, *, prefill="", seed, parent=None, group=None, follows=None):
        self.shown.append(messages)
        text = self.texts[(len(self.shown) - 1) % len(self.texts)]
        return written("critic", text, policy="critic", parent=parent, seed=seed, group=group or {})


def a_task(item=2):
    return Task(id=f"counter_{item}", prompt="", info={"item": item, "environment": "counter"})


def rounds(critic, info=None, role=None, max_turns=3, **settings):
    agent = Agent(
        agent=role or Obedient(), environment=info or forgetful(), opening=(), parse=PARSERS.get("react"), key=(7,),
        max_turns=max_turns, leaves=True,
    )  # fmt: skip
    return AgentCritique(agent=agent, critic=critic, prompts=ACTING, **settings)


@pytest.fixture
def envs():
    made = Environments(timeout_s=5.0)
    yield made
    made.close()


def oracle(info):
    return rule_critic("oracle", Experts({"counter": info}, {}, 10), ACTING)


def test_the_oracle_critiques_and_the_second_attempt_begins_in_the_same_world(envs):
    info, role = forgetful(), Obedient()
    [episode] = roll_out([rounds(oracle(info), info, role)(a_task())], {"environment": envs})
    assert [s.role[0] for s in episode.segments] == [*"oaoaoao", "c", *"oaoao"]
    assert [s.parent for s in episode.segments] == [None, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]
    [found] = revisions(episode)
    assert found.critique.text == f"go\ngo\n{WRONG}"
    assert (found.exchange.answer_correct, found.exchange.refinement_correct) == (False, True)
    assert found.exchange.judged_right
    assert attempt_text(found.second) == "Action: go\n1 to go\nAction: go\n0 to go"
    assert role.shown[3] == [f"2 to go\n\ngo\ngo\n{WRONG}"]  # with the first observation
    assert len(set(Forgetful.seeds)) == 1, "both attempts, and the expert, began in one and the same world"
    assert len(Forgetful.seeds) == 3
    assert (envs.counts["made"], envs.counts["reused"]) == (1, 1), "the world was left with the first attempt"


def test_a_verdict_that_calls_the_attempt_right_lets_it_stand(envs):
    critic = Says(RIGHT)
    [episode] = roll_out([rounds(critic)(a_task())], {"environment": envs})
    [found] = revisions(episode)
    assert found.stands
    assert (found.exchange.answer_correct, found.exchange.refinement_correct) == (False, False)
    metrics = revision_metrics([episode])
    assert (metrics["acc"], metrics["acc_refine"], metrics["acc_dis"], metrics["retried"]) == (0, 0, 0, 0)
    assert metrics["turns"] == 3
    [again] = roll_out([rounds(Says(f"go\n{RIGHT}"), again="always")(a_task())], {"environment": envs})
    assert revision_metrics([again])["i2c"] == 1.0


def test_critiques_of_one_attempt_are_one_group_each_with_an_attempt_of_its_own(envs):
    critic = Says(f"go\n{WRONG}", WRONG, RIGHT)
    rollout = rounds(critic, num_critiques=3)
    episodes = roll_out([rollout(a_task(), sample=i) for i in range(2)], {"environment": envs})
    assert len({str(each) for each in critic.shown}) == 1, "all of them read the same attempt"
    terms, total = terms_of(Stage2())
    groups = groups_of(rewarded(episodes, "critic", terms, total), "critic", "answer")
    assert [len(group) for group in groups] == [3, 3]
    assert [[scored.reward for scored in group] for group in groups] == [[1.2, 0.2, -1.0]] * 2
    rows = list(revision_traces(episodes[:1], phase="p", step=1, split="train", critic="training"))
    assert [row["refinement_score"] for row in rows] == [1.0, 0.0, 0.0]
    assert [row["verdict"] for row in rows] == ["wrong", "wrong", "correct"]


@pytest.mark.parametrize(
    ("item", "says", "verdict", "helps", "scored"),
    [
        (2, f"go\n{WRONG}", 1.0, 1.0, 1.2),  # failed, called so, and the next attempt succeeds
        (2, WRONG, 1.0, 0.0, 0.2),  # called so, and no help
        (2, RIGHT, 0.0, 0.0, -1.0),  # a failure that is called right, and stands
        (2, "go\n", 0.0, 1.0, -1.0),  # help without a verdict is paid nothing, behind the gate
        (0, RIGHT, 1.0, 1.0, 1.2),  # a success that is let stand
        (0, WRONG, 0.0, 0.0, -1.0),  # a success that is called wrong, and thrown away
    ],
)
def test_rewards_by_hand(envs, item, says, verdict, helps, scored):
    """Verdict x success: gated, 1 for the attempt that counts and 0.2 for the verdict, or -1."""
    rollout = rounds(Says(says), role=Lucky() if item == 0 else Obedient())
    [episode] = roll_out([rollout(a_task(max(1, item)))], {"environment": envs})
    [index] = episode.indices("critic")
    assert verdict_match()(episode, index) == verdict
    assert refine_outcome()(episode, index) == helps
    terms, total = terms_of(Stage2())
    [[each]] = groups_of(rewarded([episode], "critic", terms, total), "critic", "answer")
    assert each.reward == pytest.approx(scored)


class Lucky(Obedient):
    """Goes at its first attempt, and not where it is told anything."""

    async def reply(self, messages, **named):
        action = "wait" if "Success" in messages[0]["content"] else "go"
        return written("agent", f"Action: {action}", policy="rule", parent=named["parent"], seed=named["seed"])


class Fragile(Forgetful):
    """Breaks where it is gone in, as often as is left."""

    left_to_break = 0

    def step(self, action):
        if action == "go" and type(self).left_to_break:
            type(self).left_to_break -= 1
            raise OSError("the world has ended")
        return super().step(action)


@pytest.mark.parametrize(("breaks", "lost"), [(1, 0), (5, 2)])
def test_a_fault_in_the_second_attempt_pays_nobody(envs, breaks, lost):
    """The chain is played again, the first attempt and the other chains stay; what is lost for good is in no group."""
    Fragile.left_to_break = breaks
    info = replace(forgetful(), make=Fragile)
    episode_counts = EpisodeCounts(budget=1.0)
    rollout = rounds(Says(f"go\n{WRONG}"), info, num_critiques=3, retries=Retries(episode_counts, 1))
    [episode] = roll_out([rollout(a_task())], {"environment": envs})
    assert len(episode.indices("critic")) == 3 - lost
    terms, total = terms_of(Stage2())
    [group] = groups_of(rewarded([episode], "critic", terms, total), "critic", "answer")
    assert [scored.reward for scored in group] == [1.2] * (3 - lost)
    assert (episode_counts.lost, episode_counts.by_kind["env_error"]) == (lost, breaks)


def test_attempts_that_fail_early_are_held_against_all_attempts(envs):
    """One world in ten breaks at its first step, when no attempt has ended."""

    class Cracked(Forgetful):
        def step(self, action):
            if self.left == 10:
                raise OSError("the world has ended")
            return super().step(action)

    episode_counts = EpisodeCounts(budget=0.5)
    rollout = rounds(Says(RIGHT), replace(forgetful(), make=Cracked), retries=Retries(episode_counts, 0))
    roll_out([rollout(a_task(item % 10 + 1)) for item in range(220)], {"environment": envs})
    assert (episode_counts.episodes, episode_counts.lost) == (198, 22)


def test_a_critic_that_fails_is_no_reward_and_the_attempt_stands(envs):
    def broken(task, attempt, seed):
        raise Fault(Failure(kind="endpoint_error", reason="gone"))

    rollout = rounds(broken, num_critiques=2, retries=Retries(EpisodeCounts(budget=1.0), 1))
    [episode] = roll_out([rollout(a_task())], {"environment": envs})
    assert (episode.outcome, episode.reason) == ("endpoint_error", "gone")
    assert groups_of([episode], "critic", "answer") == []
    metrics = revision_metrics([episode])
    assert (metrics["faults"], metrics["n"], metrics["acc"], metrics["acc_refine"]) == (1.0, 1, 0.0, 0.0)
    assert (metrics["acc_dis"], metrics["unparsed"]) == (None, None), "nobody has judged"


def test_critiques_that_are_lost_do_not_flatter_the_critic(envs):
    """Of four items one is solved at once. The critic of the others fails: those left out, it would lead by 75 points
    without having said a word."""

    class AtOnce(Obedient):
        async def reply(self, messages, **named):
            action = "go" if messages[0]["content"].startswith("1 ") else "wait"
            return written("agent", f"Action: {action}", policy="rule", parent=named["parent"], seed=named["seed"])

    def judge(task, attempt, seed):
        if attempt[-1].grade.score == 0.0:
            raise Fault(Failure(kind="env_error", reason="no room"))
        return RIGHT

    rollout = rounds(judge, role=AtOnce(), retries=Retries(EpisodeCounts(budget=1.0), 0))
    episodes = roll_out([rollout(a_task(item)) for item in (1, 2, 3, 4)], {"environment": envs})
    metrics = revision_metrics(episodes)
    assert (metrics["acc"], metrics["acc_refine"], metrics["delta"], metrics["n"]) == (0.25, 0.25, 0.0, 4)
    assert (metrics["acc_dis"], metrics["acc_dis_incorrect"], metrics["faults"]) == (1.0, None, 3.0)
    assert metrics["turns_attempt"] == (1 + 3 * 3) / 4


def test_a_first_attempt_counts_once_however_many_critiques_it_has(envs):
    """The first is cut after three turns, which three critiques follow; two of the attempts after them succeed."""
    rollout = rounds(Says(f"go\n{WRONG}", WRONG, f"go\n{WRONG}"), num_critiques=3)
    [episode] = roll_out([rollout(a_task())], {"environment": envs})
    metrics = revision_metrics([episode])
    assert (metrics["n"], metrics["acc_refine"]) == (3, 2 / 3)
    assert metrics["turns_attempt"] == (3 + 2 + 3 + 2) / 4
    assert metrics["cut_by_horizon"] == 2 / 4


class LateForgetful(Forgetful):
    """Its functions are coroutines."""

    async def reset(self, item, *, seed=0):
        return super().reset(item, seed=seed)

    async def step(self, action):
        return super().step(action)


class Hanging(Forgetful):
    def reset(self, item, *, seed=0):
        time.sleep(1)
        return super().reset(item, seed=seed)


def test_what_an_oracle_asks_worlds_of_coroutines_is_answered():
    info = replace(info_of(LateForgetful), expert=going, success_above=0.5)
    experts = Experts({"counter": info}, {}, 10)
    assert experts.plan(a_task(2), 0) == ("go", "go")
    assert experts.judged(a_task(2), 0, ["wait"], "go") == (True, "go")
    assert experts.judged(a_task(2), 0, [], "wait") == (False, "go")


class Halves(Forgetful):
    """Each step is worth a half, so that no step alone is a success."""

    def step(self, action):
        text, _, *ends, info = super().step(action)
        return text, 0.5, *ends, info


def test_an_action_that_ends_an_episode_is_judged_by_the_reward_of_the_whole_episode():
    experts = Experts({"counter": replace(info_of(Halves), expert=going, success_above=0.9)}, {}, 10)
    assert experts.judged(a_task(2), 0, ["go"], "go") == (True, "go")


class Silent(Forgetful):
    def reset(self, item, *, seed=0):
        raise NotImplementedError


def test_an_error_without_a_text_is_said_by_its_name():
    experts = Experts({"counter": replace(info_of(Silent), expert=going)}, {}, 10)
    with pytest.raises(Fault, match="item 2: NotImplementedError"):
        experts.plan(a_task(2), 0)


def test_an_oracle_does_not_wait_for_a_world_that_hangs():
    experts = Experts({"counter": replace(info_of(Hanging), expert=going)}, {}, 10, timeout_s=0.05)
    with pytest.raises(Fault) as caught:
        experts.plan(a_task(2), 0)
    assert caught.value.failure.kind == "timeout"
    assert "item 2: no answer within 0.05 s" in caught.value.failure.reason


@dataclass
class Said:
    """What an endpoint gives back."""

    text: str
    stop_reason: str = "eos"
    logprobs: None = None
    num_written: int | None = None


def test_a_model_an_endpoint_and_a_rule_sit_in_the_same_seat(envs):
    info = forgetful()
    endpoint = EndpointRole("critic", "critic", Sampling())
    services = {"environment": envs, "critic": lambda prompts: [Said(f"go\ngo\n{WRONG}") for _ in prompts]}
    found = []
    for critic in (Says(f"go\ngo\n{WRONG}"), endpoint, oracle(info)):
        [episode] = roll_out([rounds(critic, info)(a_task())], services)
        found.append([(s.role, s.text, s.parent, s.grade) for s in episode.segments])
        assert episode.segments[episode.indices("critic")[0]].parsed["verdict"] == "wrong"
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize(
    ("name", "says"), [("judge", WRONG), ("empty", ""), ("false", f"go\n{RIGHT}"), ("oracle", f"go\ngo\n{WRONG}")]
)
def test_rules_by_name(envs, name, says):
    info = forgetful()
    critic = rule_critic(name, Experts({"counter": info}, {}, 10), ACTING)
    [episode] = roll_out([rounds(critic, info)(a_task())], {"environment": envs})
    assert episode.segments[episode.indices("critic")[0]].text == says


def test_more_episodes_than_worlds_do_not_wait_for_each_other_for_ever():
    """Each has left the world of its first attempt before it asks for another."""
    few = Environments(capacity=2, timeout_s=5.0)
    info = forgetful()
    rollout = rounds(oracle(info), info, num_critiques=2)
    try:
        episodes = roll_out_free([rollout(a_task(), sample=i) for i in range(5)], {"environment": few})
    finally:
        few.close()
    assert all(each.exchange.refinement_correct for episode in episodes for each in revisions(episode))


def test_a_long_attempt_loses_its_middle_before_a_critic_reads_it(envs):
    critic = Says(WRONG)
    roll_out([rounds(critic, max_turns=40, max_shown=100)(a_task(1))], {"environment": envs})
    [message] = critic.shown[0]
    assert len(message["content"]) <= 100 + len("1 to go\n\n")
    assert "[...]" in message["content"]


def test_a_text_is_a_plan_and_then_the_verdict():
    assert critique_text(ACTING, right=True) == RIGHT
    assert critique_text(ACTING, right=False, plan=["go", "stop"]) == f"go\nstop\n{WRONG}"


# --- actions, before they are taken -----------------------------------------------------------------------------------


class Mends(Obedient):
    """Proposes to wait, and does what it is told last."""

    async def reply(self, messages, **named):
        self.shown.append([message["content"] for message in messages])
        action = "go" if self.shown[-1][-1].startswith("go\n") else "wait"
        return written("agent", f"Action: {action}", policy="rule", parent=named["parent"], seed=named["seed"])


def reviewed(critic, role=None, most=1):
    rollout = rounds(None, role=role or Mends(), num_critiques=0)
    return replace(rollout, agent=replace(rollout.agent, review=Reviewer(critic, ACTING, most)))


def test_an_action_that_is_called_wrong_is_sent_back_and_no_world_hears_of_it(envs):
    info, role = forgetful(), Mends()
    critic = action_critic("oracle", Experts({"counter": info}, {}, 10), ACTING)
    [episode] = roll_out([reviewed(critic, role)(a_task())], {"environment": envs})
    assert [s.role[0] for s in episode.segments] == [*"oarao", *"arao"]
    assert [s.parent for s in episode.segments] == [None, 0, 1, 2, 3, 4, 5, 6, 7]
    assert [s.parsed.get("proposed") for s in episode.segments if s.role == "agent"] == ["wait", None, "wait", None]
    assert role.shown[1] == ["2 to go", "Action: wait", f"go\n{WRONG}"]
    metrics = revision_metrics([episode])
    assert (metrics["acc"], metrics["turns"], metrics["sent_back"]) == (1.0, 2.0, 1.0)
    shown = turns_trace(episode, score=1.0, phase="p", step=1, split="test", label="oracle")
    assert [(turn["role"], turn["text"]) for turn in shown["turns"][:4]] == [
        ("proposal", "Action: wait"), ("reviewer", f"go\n{WRONG}"), ("agent", "Action: go"), ("observation", "1 to go"),
    ]  # fmt: skip


def test_an_action_that_is_called_right_is_taken_with_what_was_said_of_it(envs):
    critic = Says(RIGHT)
    [episode] = roll_out([reviewed(critic)(a_task(1))], {"environment": envs})
    assert [s.role[0] for s in episode.segments] == [*"oaro", *"aro", *"aro"]
    assert [s.parent for s in episode.segments] == [None, 0, 1, 1, 3, 4, 4, 6, 7, 7]
    assert critic.shown[1] == ACTING.critique_messages("1 to go", "Action: wait\n1 to go\nAction: wait")


def test_after_so_many_proposals_the_last_is_taken_unread(envs):
    stubborn = Obedient()
    [episode] = roll_out([reviewed(Says(WRONG), stubborn, most=2)(a_task(1))], {"environment": envs})
    assert [s.role[0] for s in episode.segments] == [*"o", *("araraao"[:5] + "o") * 3]
    assert len({s.seed for s in episode.segments if s.role == "agent"}) == 9, "each is drawn anew"


@pytest.mark.parametrize(
    ("name", "action", "says"),
    [
        ("oracle", "wait", f"go\n{WRONG}"),
        ("oracle", "go", RIGHT),
        ("judge", "wait", WRONG),
        ("false", "wait", RIGHT),
        ("empty", "wait", ""),
    ],
)
def test_an_action_is_right_where_it_brings_the_goal_nearer(name, action, says):
    critic = action_critic(name, Experts({"counter": forgetful()}, {}, 10), ACTING)
    assert critic(a_task(3), [written("agent", "", parsed={"action": "go"})], action, 5) == says


@pytest.mark.parametrize("name", ["academia", "movie", "sheet", "todo", "weather"])
def test_an_expert_with_tools_is_nearer_after_each_of_its_calls_and_not_after_another(name):
    info = ENVIRONMENTS.get(name)
    experts = Experts({name: info}, {}, 40)
    for item in info.splits()["test"][:2]:
        task = Task(id=f"{name}_{item}", prompt="", info={"environment": name, "item": item})
        way = experts.plan(task, 0)
        assert len(way) > 1
        for place, action in enumerate(way):
            assert experts.judged(task, 0, way[:place], action) == (True, action)
        first = way[0]
        assert experts.judged(task, 0, [first], first) == (False, way[1]), "once is enough"
