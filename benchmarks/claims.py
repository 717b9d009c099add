"""The papers' claims, and what the committed results say of each: read by `results_page.py`.

A claim is a difference between two arms of a study, seed by seed, and a premise: what must hold in a world before the
claim can show there. Nothing is computed here but differences; the studies have measured the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from critique_votes_tiny import BUDGETS, FIRST, lead
from study import cell, minus

Result = Mapping[str, Any]
Values = Sequence[float | None]


@dataclass(frozen=True)
class Lead:
    """A paired difference, one value a seed, as shares."""

    what: str
    values: Values
    expected: int = 1
    """The sign that the claim expects."""


@dataclass(frozen=True)
class Premise:
    """What was measured before anything was learnt, and whether that is what the claim needs."""

    text: str
    holds: bool


@dataclass(frozen=True, kw_only=True)
class Claim:
    """What a paper says, where it was tried here, and how to read the result of that."""

    says: str
    env: str
    budget: str
    """What is equal between the arms."""
    result: str
    """A file of `benchmarks/results`, without its ending."""
    premise: Callable[[Result], Premise]
    leads: Callable[[Result], Sequence[Lead]]
    least: float = 0.0
    """As a share: an interval within it, on either side of 0, is no effect."""
    short: str = ""
    """The claim in the README's table; empty: it is not there."""
    reason: str = ""
    """Where it is not shown: what was tested, and where that stands."""


@dataclass(frozen=True, kw_only=True)
class System:
    """A paper and its claims."""

    title: str
    says: str
    """What it does, with links, for the README's table."""
    begin: str
    """The command to begin with."""
    claims: Sequence[Claim]


def _percent(values: Values) -> str:
    return f"{cell(values)} %"


# --- Critique-RL -----------------------------------------------------------------------------------------------------


def _landed(left: str, right: str, metric: str, what: str) -> Callable[[Result], Sequence[Lead]]:
    """One difference of `critique_rl_headline`."""
    return lambda found: [Lead(what, minus(found["values"][left][metric], found["values"][right][metric]))]


def _landed_premise(found: Result) -> Premise:
    sft = found["values"]["sft"]
    helped = minus(sft["acc_refine"], sft["acc"])
    text = (
        f"the SFT critic judges {_percent(sft['acc_dis'])} of the answers as they are and mends {cell(helped)} points"
    )
    return Premise(f"{text}: both can rise", fmean(value or 0 for value in sft["acc_dis"]) < 0.9)


def _acting(found: Result) -> Premise:
    """Whether verdicts act on the actor of each world, by critics that are rules."""
    parts, holds = [], True
    for name, env in found["worlds"].items():
        judge, alarmist = env["rules"]["judge"], env["rules"]["alarmist"]
        parts.append(f"{name}: right verdicts {_percent(judge)}, `alarmist` {_percent(alarmist)}")
        holds = holds and fmean(judge) > fmean(alarmist)
    return Premise(f"Acc@Refine after critics by rule, {'; '.join(parts)}", holds)


def _of_worlds(left: str, right: str, metrics: Mapping[str, str]) -> Callable[[Result], Sequence[Lead]]:
    def leads(found: Result) -> Sequence[Lead]:
        return [
            Lead(f"{env}, {said}", minus(each["values"][left][metric], each["values"][right][metric]))
            for env, each in found["worlds"].items()
            for metric, said in metrics.items()
        ]

    return leads


def _given_up(found: Result) -> Sequence[Lead]:
    """Where alarms are cheap, right answers are called wrong; where they are dear, wrong ones right."""
    sides = {"cheap": ("acc_dis_correct", "right answers"), "dear": ("acc_dis_incorrect", "wrong answers")}
    found_leads = []
    for env, (metric, said) in sides.items():
        if env in found["worlds"]:
            values = found["worlds"][env]["values"]
            difference = minus(values["indirect_refine"][metric], values["sft"][metric])
            found_leads.append(Lead(f"{env}, Acc@Dis on {said}", difference, -1))
    return found_leads


STEPS = "80 steps of training an arm"
RULES = "actors by rule on which the verdict alone acts: `cheap` (mend 0.5, spoil 0.08), `dear` (0.1, 0.5)"
LANDED = "the tiny world, its shipped actor"
CRITIQUE_RL = System(
    title="Critique-RL",
    says="[Critique-RL](https://arxiv.org/abs/2510.24320): a critic learns to judge, then to help "
    "([docs](docs/critique-rl.md))",
    begin="make train",
    claims=[
        Claim(
            says="A critic trained in both stages makes refinements right that were wrong.",
            short="refinements after the critic, over the actor alone",
            env=LANDED,
            budget="none: the actor alone beside the actor with the critic",
            result="critique_rl_headline",
            premise=_landed_premise,
            leads=lambda found: [
                Lead("Acc@Refine − Acc", minus(found["values"]["full"]["acc_refine"], found["values"]["full"]["acc"]))
            ],
        ),
        Claim(
            says="(i) Stage I raises discrimination, on right answers and on wrong ones.",
            env=RULES,
            budget=f"stage I ({STEPS}) beside the SFT critic",
            result="critique_rl_worlds",
            premise=_acting,
            leads=_of_worlds(
                "stage1", "sft", {"acc_dis_correct": "on right answers", "acc_dis_incorrect": "on wrong ones"}
            ),
        ),
        Claim(
            says="(ii) Stage II raises the refinements.",
            env=f"{LANDED}: critiques act through their arithmetic too",
            budget="stage II (40 steps) after stage I (40) beside stage I alone",
            result="critique_rl_headline",
            premise=_landed_premise,
            leads=_landed("full", "stage1", "acc_refine", "Acc@Refine"),
        ),
        Claim(
            says="(iii) Both stages beat stage II alone.",
            short="both stages, over stage II alone",
            env=RULES,
            budget=STEPS,
            result="critique_rl_worlds",
            premise=_acting,
            leads=_of_worlds("full", "stage2", {"acc_dis": "Acc@Dis"}),
            reason="either stage alone judges 97 % of the answers right after as many steps, so the other has nothing "
            "to add ([arms](critique-rl.md#where-the-verdict-alone-acts))",
        ),
        Claim(
            says="(iii) Rewards behind a right verdict judge better than additive ones.",
            env=RULES,
            budget=STEPS,
            result="critique_rl_worlds",
            premise=_acting,
            leads=_of_worlds("full", "additive", {"acc_dis": "Acc@Dis"}),
        ),
        Claim(
            says="(iv) Rewarded by the refinement alone, a critic gives up one class of answers.",
            short="what rewards of the refinement alone do to one class of answers",
            env=RULES,
            budget=f"{STEPS}, beside the SFT critic",
            result="critique_rl_worlds",
            premise=_acting,
            leads=_given_up,
        ),
    ],
)


# --- BAPO ------------------------------------------------------------------------------------------------------------


ENVIRONMENTS = {"rambling": "long wrong replies", "agents": "agents"}
"""Of the studies of BAPO, in words."""


BAPO_TARGET = 0.4
"""Share of good tokens that the paper's search aims at."""


def _reaches(found: Result) -> Premise:
    """Good tokens lack weight in one setting at least."""
    parts, holds = [], False
    for key, runs in found["settings"].items():
        env, staleness = key.split("/")
        share = fmean(run["share_at_1"] for run in runs)
        tokens = fmean(run["premise"]["balance/tokens_positive"] for run in runs)
        parts.append(
            f"{100 * share:.0f} % of the credit, on {100 * tokens:.0f} % of the tokens "
            f"({ENVIRONMENTS[env]}, staleness {staleness})"
        )
        holds = holds or share < BAPO_TARGET
    return Premise(f"good tokens have {'; '.join(parts)}; the target is {100 * BAPO_TARGET:.0f} % of the credit", holds)


def _lever(found: Result) -> Sequence[Lead]:
    leads = []
    for key, runs in found["settings"].items():
        env, staleness = key.split("/")
        searches = [run["rules"]["BAPO, paper/0"] for run in runs]
        values = [search["most"] - search["start"] for search in searches]
        leads.append(Lead(f"{ENVIRONMENTS[env]}, staleness {staleness}", values))
    return leads


def _bapo_leads(found: Result) -> Sequence[Lead]:
    cells = found["cells"]
    ages = {"stale8": "staleness 8", "reuse": "staleness 4, batches reused"}
    return [
        Lead(f"rate 3e-4, {said}", minus(cells[f"high/bapo/{age}"]["values"]["last"],
                                         cells[f"high/fixed/{age}"]["values"]["last"]))
        for age, said in ages.items()
        if f"high/bapo/{age}" in cells
    ]  # fmt: skip


def _fails_with_age(found: Result) -> Premise:
    cells = found["cells"]
    lost = minus(cells["high/fixed/stale8"]["values"]["last"], cells["high/fixed/fresh"]["values"]["last"])
    positive = [value for value in cells["high/fixed/stale8"]["values"].get("share", []) if value is not None]
    text = f"a fixed clip loses {cell([-(value or 0) for value in lost])} points by staleness 8 at a rate of 3e-4"
    text += f"; good tokens have {_percent(positive)} of the weight" if positive else ""
    return Premise(f"{text}. Yet they do not lack it here, as replies are about equally long", False)


def _settled(found: Result) -> Sequence[Lead]:
    """Success after BAPO's search, less that after other rules, in both worlds of `bapo_settled`."""
    arms = {"best fixed": "the best fixed bounds", "clip-higher 0.8, 1.28": "clip-higher", "DPPO 0.2": "DPPO"}
    values = {env: world["arms"]["values"] for env, world in found["worlds"].items()}
    return [
        Lead(f"{ENVIRONMENTS[env]}, over {said}", minus(of["BAPO, paper"]["after"], of[arm]["after"]))
        for env, of in values.items()
        for arm, said in arms.items()
    ]


def _reaches_in_training(found: Result) -> Premise:
    """The widest bounds move the share of good tokens in one world at least."""
    parts, holds = [], False
    for env, world in found["worlds"].items():
        values = world["arms"]["values"]["BAPO, paper"]
        reach = minus(values["most"], values["start"])
        parts.append(
            f"{_percent(values['share'])} of the weight, and the widest bounds add {cell(reach)} points "
            f"({ENVIRONMENTS[env]})"
        )
        holds = holds or fmean(value or 0 for value in reach) > 0.01
    return Premise(f"good tokens have {'; '.join(parts)}", holds)


BAPO = System(
    title="BAPO",
    says="[BAPO](https://arxiv.org/abs/2510.18927): clip bounds that adapt off-policy ([docs](docs/bapo.md))",
    begin="whet train bapo",
    claims=[
        Claim(
            says="The search gives good tokens of old data the weight that they lack.",
            short="its search for bounds, on the weight of good tokens",
            env="TextCraft (`tiny_agent_early`), and chains whose wrong replies are long",
            budget="the same tokens, before an update",
            result="bapo_reach",
            premise=_reaches,
            leads=_lever,
            least=0.01,
            reason="sampled ratios have a mean near 1, and few of them lie past a bound. So the share stays where "
            "numbers and lengths of replies put it. In 38 to 56 % of the updates no bounds reach the target. In the "
            "others the search's starts meet it ([reach](bapo.md#does-the-search-ever-end-between))",
        ),
        Claim(
            says="Where a fixed clip fails on old data, the adaptive one holds.",
            short="over a fixed clip on old data",
            env="the tiny world, replayed batches",
            budget="steps, replies, rate",
            result="bapo_tiny",
            premise=_fails_with_age,
            leads=_bapo_leads,
            reason="nearly every search stayed at its start or ran out at its end "
            "([tables](../../benchmarks/results/bapo_tiny.md))",
        ),
        Claim(
            says="The search learns more from old data than other rules, each at its best rate.",
            short="its search at staleness 8, each rule at its best rate",
            env="chains whose wrong replies are long, and TextCraft (`tiny_agent_early`); 8 updates a batch",
            budget="steps, replies, tries of rates (three times as many for fixed bounds)",
            result="bapo_settled",
            premise=_reaches_in_training,
            leads=_settled,
            reason="hardly a search ends between its two end states. Among the chains the wide one alone, `0.9, 3`, is "
            "the best fixed pair. That agents learn by any rule in these steps is not "
            "shown ([tables](bapo.md#five-rules-at-their-best-rates))",
        ),
    ],
)


# --- agents ----------------------------------------------------------------------------------------------------------


def _success(found: Result, arm: str, row: str) -> Values:
    runs = found["runs"][arm]
    return [runs[str(seed)]["rows"][row]["success"] for seed in found["seeds"]]


def _of_agents(left: tuple[str, str], right: tuple[str, str], what: str) -> Callable[[Result], Sequence[Lead]]:
    return lambda found: [Lead(what, minus(_success(found, *left), _success(found, *right)))]


def _early(found: Result) -> Premise:
    before, cloned = _success(found, "textcraft", "before"), _success(found, "textcraft", "cloned")
    text = f"the agent begins at {_percent(before)} of the test items. Cloned to the end it has {_percent(cloned)}"
    return Premise(text, True)


def _mid_flight(found: Result) -> Premise:
    text = "the base was stopped in mid-flight at a high rate, so that any further cloning helps it"
    return Premise(f"{_early(found).text}. But {text}", False)


def _careless(found: Result) -> Premise:
    """Of a clone that knows the game and errs: it rises no more, is right sometimes, and has a choice left."""
    premise, success = found["found"]["premise"], found["found"]["success"]
    text = f"the clone of careless episodes has {_percent(success['before'])} of the test episodes"
    text += f". Its last rise in validation is {cell(premise['start_last_rise'], sign=True)}"
    text += f", and {_percent(premise['first_signal'])} of the groups have a signal"
    return Premise(text, fmean(value or 0 for value in premise["first_signal"]) > 0.2)


def _of_careless(right: str) -> Callable[[Result], Sequence[Lead]]:
    def leads(found: Result) -> Sequence[Lead]:
        success = found["found"]["success"]
        return [Lead("success, best validated", minus(success["after"], success[right]))]

    return leads


def _four(found: Result) -> Premise:
    """Of the clone that begins: in each environment it is right sometimes and not nearly always."""
    before = {name: values for name, values in found["found"]["worlds"]["before"].items() if name != "mean"}
    text = ", ".join(f"{_percent(values)} in {name}" for name, values in before.items())
    means = [fmean(value or 0 for value in values) for values in before.values()]
    return Premise(f"the clone begins at {text}", all(0.1 <= mean <= 0.8 for mean in means))


def _tools(found: Result) -> Premise:
    """Of RL in academia: the clone is right sometimes, and groups have a signal."""
    tools, training = found["found"]["tools"]["before"], found["found"]["training"]
    signal = [None if flat is None else 1 - flat for flat in training["first group/no_signal"]]
    text = f"the clone begins at {_percent(tools)}, and {_percent(signal)} of RL's first groups have a signal"
    return Premise(text, 0.1 <= fmean(value or 0 for value in tools) <= 0.8 and fmean(v or 0 for v in signal) > 0.2)


def _of_tools(found: Result) -> Sequence[Lead]:
    tools = found["found"]["tools"]
    return [Lead("success, best validated", minus(tools["after"], tools["more_cloning"]))]


def _of_four(found: Result) -> Sequence[Lead]:
    worlds = found["found"]["worlds"]
    return [Lead("mean success of the four", minus(worlds["evol"]["mean"], worlds["more"]["mean"]))]


def _binding(found: Result) -> Premise:
    text = "the expert needs 2.5, 4.9, 10.7 and 14.7 turns at depth 1 to 4. But the rate has fallen to a tenth when the"
    return Premise(f"{text} longer horizon begins", False)


def _horizon_binds(found: Result) -> Premise:
    """Whether the short horizon keeps deep goals from the start, and the long one does not."""
    start, limits = found["found"]["start"], sorted(map(int, found["found"]["start"]))
    short, long = (start[str(limit)] for limit in (limits[0], limits[-1]))
    text = f"the clone has {_percent(short['all'])} of the test episodes within {limits[0]} turns and"
    text += f" {_percent(long['all'])} within {limits[-1]}. Of depth 3 it has {_percent(short['depth 3'])} and"
    text += f" {_percent(long['depth 3'])}"
    deep = [fmean(value or 0 for value in each["depth 3"]) for each in (short, long)]
    return Premise(text, deep[1] > deep[0] + 0.01)


def _of_horizons(found: Result) -> Sequence[Lead]:
    success = {arm: values["all"] for arm, values in found["found"]["sampled"].items()}
    limits = sorted(map(int, found["found"]["start"]))
    fixed = {"short": limits[0], "long": limits[-1]}
    return [Lead(f"over {turns} turns", minus(success["growing"], success[arm])) for arm, turns in fixed.items()]


def _converged_base(found: Result) -> Premise:
    """Whether the base succeeds sometimes, and not always, where nobody has shown it how."""
    premise = found["found"]["premise"]
    explored = premise["round 1 explored"]
    text = f"the base's last rise in validation is {cell(premise['base_last_rise'], sign=True)}"
    text += f", and it succeeds in {_percent(explored)} of the episodes on items that nobody has shown"
    return Premise(text, 0.05 < fmean(value or 0 for value in explored) < 0.8)


def _of_rounds(found: Result) -> Sequence[Lead]:
    success = found["found"]["success"]
    arms = {"last_round": "its last round", "all_phases": "all its phases"}
    return [Lead(f"updates of {said}", minus(success["evol"], success[arm])) for arm, said in arms.items()]


SHORTER = "short of updates in rounds (33 each). As much cloning has as few ([rounds](agentevol.md))"
AGENTGYM_RL = System(
    title="AgentGym-RL, ScalingInter-RL",
    says="[AgentGym-RL, ScalingInter-RL](https://arxiv.org/abs/2509.08755): multi-turn RL, with a horizon that grows "
    "([docs](docs/agents.md))",
    begin="make agents",
    claims=[
        Claim(
            says="RL over many turns raises an agent.",
            short="RL of an agent that was stopped early, over where it began",
            env="TextCraft, `tiny_agent_early`",
            budget="none: before and after 24 steps of RL",
            result="agents_tiny",
            premise=_early,
            leads=_of_agents(("textcraft", "after"), ("textcraft", "before"), "success, best validated"),
        ),
        Claim(
            says="RL raises it more than further cloning does.",
            short="over as many updates of cloning",
            env="TextCraft, `tiny_agent_early`",
            budget="updates",
            result="agents_tiny",
            premise=_mid_flight,
            leads=_of_agents(("textcraft", "after"), ("textcraft_clone", "after"), "success, best validated"),
            reason="the expert's play teaches more than rewards do while there is enough of it. As many updates of "
            "cloning go 15 times as far (rate times updates)",
        ),
        Claim(
            says="RL raises a converged clone of careless episodes, where more cloning of the same does not.",
            short="RL after cloning careless episodes to the end, over more cloning",
            env="TextCraft of depth 1 and 2, ten turns, actions without thoughts",
            budget="none: cloning goes on as long as it likes, and RL asks the expert for nothing",
            result="agents_careless",
            premise=_careless,
            leads=_of_careless("more_cloning"),
            reason="see the arms ([study](agents.md))",
        ),
        Claim(
            says="With tools, RL raises a clone of careless episodes further than more cloning of them.",
            short="RL with tools, over more cloning",
            env="academia, from a further clone of `tiny_agent_worlds`, one a seed",
            budget="none: cloning makes as many updates as AgentEvol, and RL asks the expert for nothing",
            result="new_worlds",
            premise=_tools,
            leads=_of_tools,
            reason="see the arms ([study](agents.md#two-newer-environments))",
        ),
        Claim(
            says="A horizon that grows beats fixed ones.",
            short="a growing horizon over fixed ones (5, 10 turns)",
            env="TextCraft, `tiny_agent_early`: 5 turns, 10 turns, 5 then 10",
            budget="updates",
            result="agents_tiny",
            premise=_binding,
            leads=lambda found: [
                *_of_agents(("textcraft", "last"), ("short", "last"), "over 5 turns, last weights")(found),
                *_of_agents(("textcraft", "last"), ("long", "last"), "over 10 turns, last weights")(found),
            ],
            reason="the second horizon had no learning rate left; the next claim has a constant one",
        ),
        Claim(
            says="At equal steps in environments, a horizon that grows beats fixed ones.",
            short="a growing horizon over fixed ones at equal steps in environments (6, 20 turns)",
            env="TextCraft of depth 1 to 4, a clone of careless episodes: 6 turns, 20 turns, 6 to 20",
            budget="steps in environments; the rate is constant",
            result="scaling_inter",
            premise=_horizon_binds,
            leads=_of_horizons,
            reason="it leads the short horizon by tasks of depth 3 and 4. The long one, under which the paper's agents "
            "collapse, learns steadily here ([study](agents.md#where-the-horizon-binds))",
        ),
    ],
)
AGENTEVOL = System(
    title="AgentGym, AgentEvol",
    says="[AgentGym, AgentEvol](https://arxiv.org/abs/2406.04151): environments and trajectories; explore, filter, "
    "imitate ([environments](docs/environments.md), [rounds](docs/agentevol.md))",
    begin="whet train agent_evol data.env=textcraft",
    claims=[
        Claim(
            says="Rounds of exploring and imitating beat cloning the demonstrations longer.",
            short="rounds over as many updates of cloning",
            env="TextCraft, `tiny_agent_early`",
            budget="updates",
            result="agents_tiny",
            premise=_mid_flight,
            leads=_of_agents(("evol", "after"), ("evol_clone", "after"), "success, best validated"),
            reason=f"the base is {SHORTER}; the next claim has a converged one",
        ),
        Claim(
            says="From a converged base, rounds beat cloning the demonstrations longer.",
            short="rounds from a converged clone, over more cloning",
            env="TextCraft of depth 1 and 2; the expert shows half of the items, and the others are explored",
            budget="expert calls, and updates: of the last round, and of all phases",
            result="agent_evol_worlds",
            premise=_converged_base,
            leads=_of_rounds,
            reason="see the arms ([study](agentevol.md#from-a-converged-base))",
        ),
        Claim(
            says="In four environments at once, rounds beat cloning the demonstrations longer.",
            short="rounds in four environments, over more cloning",
            env="TextCraft, maze, academia and cookingworld, from a further clone of `tiny_agent_worlds`, one a seed",
            budget="updates",
            result="new_worlds",
            premise=_four,
            leads=_of_four,
            reason="rounds lead in academia in all five seeds, and are behind in maze in all five. Maze has 13 "
            "training tasks: more cloning has demonstrations of all, and rounds of half ([by environment]"
            "(agentevol.md#in-four-environments-at-once))",
        ),
    ],
)


# --- AutoMathCritique ------------------------------------------------------------------------------------------------


def _loop_acc(found: Result, arm: str) -> Values:
    return [row["acc"] for row in found["parts"]["loop"]["last"][arm]]


def _covered(found: Result) -> Premise:
    first = [rounds[0]["coverage_answers"] for rounds in found["parts"]["loop"]["rounds"]["equal"]]
    text = f"answers at equal tokens cover {_percent(first)} of the questions in round 1 already, and half of the"
    return Premise(f"{text} 1,000 originals are wrong answers", fmean(first) < 0.8)


def _helps(found: Result) -> Premise:
    rounds = [each[0] for each in found["parts"]["loop"]["rounds"]["critique_loop"]]
    with_it, without = ([each[name] for each in rounds] for name in ("coverage", "coverage_answers"))
    return Premise(
        f"in round 1 answers cover {_percent(without)} of the questions, refinements {_percent(with_it)}", True
    )


def _at_test(found: Result) -> Sequence[Lead]:
    votes = found["parts"]["votes"]
    return [
        Lead(f"budget of {budget} tokens", lead(votes, FIRST, "verdict_gated", BUDGETS.index(budget)))
        for budget in (192, 768)
    ]


def _shared(found: Result) -> Premise:
    last = [seed[4]["accuracy"] for seed in found["parts"]["votes"]["critic_stage2"]["majority"]]
    ceiling = [seed[4]["accuracy"] for seed in found["parts"]["votes"]["critic_stage2"]["ceiling"]]
    text = (
        f"at 768 tokens the vote has {_percent(last)}, while {_percent(ceiling)} of the questions have a right sample"
    )
    return Premise(text, True)


def _envs(found: Result) -> Premise:
    parts, holds = [], False
    for name, env in found["worlds"].items():
        covered = [rounds[0]["coverage_answers"] for rounds in env["arms"]["equal_trained"]["rounds"]]
        helped = minus(env["acc_refine"]["trained"], env["no_critic"])
        parts.append(
            f"{name}: answers at equal tokens cover {_percent(covered)}, a trained critic mends {cell(helped)} points"
        )
        holds = holds or fmean(value or 0 for value in helped) > 0.1
    return Premise("; ".join(parts), holds)


def _of_loops(critic: str) -> Callable[[Result], Sequence[Lead]]:
    def leads(found: Result) -> Sequence[Lead]:
        return [
            Lead(env, minus(each["arms"][critic]["acc"], each["arms"][f"equal_{critic}"]["acc"]))
            for env, each in found["worlds"].items()
            if len(each["seeds"]) > 1  # one seed has no interval
        ]

    return leads


def _talk(found: Result, learnt: str) -> Values:
    return [row["acc"] for row in found["parts"]["talk"]["critic"]["rows"][learnt]]


def _talk_premise(found: Result) -> Premise:
    chains = found["parts"]["talk"]["critic"]["rows"]["before"]
    return Premise(f"the actor alone has {_percent([row['acc'] for row in chains])} right", True)


AUTOMATH = System(
    title="AutoMathCritique, critique-in-the-loop",
    says="[AutoMathCritique, critique-in-the-loop](https://arxiv.org/abs/2411.16579): critiques without people "
    "([docs](docs/auto-critique.md)); an actor improves with a critic ([docs](docs/critique-loop.md)), checks its own "
    "steps ([docs](docs/self-talk.md)), or votes ([docs](docs/test-time.md))",
    begin="make critiques",
    claims=[
        Claim(
            says="A critic in the loop improves the actor more than exploring alone.",
            short="a critic in the loop over as many answers",
            env="the tiny world, half-wrong originals",
            budget="answers a question (the critic's tokens come on top)",
            result="critique_loop_tiny",
            premise=_helps,
            leads=lambda found: [
                Lead("right answers", minus(_loop_acc(found, "critique_loop"), _loop_acc(found, "vanilla")))
            ],
        ),
        Claim(
            says="... and more than exploring at equal tokens.",
            short="the same at equal tokens",
            env="the tiny world, half-wrong originals",
            budget="tokens written while exploring",
            result="critique_loop_tiny",
            premise=_covered,
            leads=lambda found: [
                Lead("right answers", minus(_loop_acc(found, "critique_loop"), _loop_acc(found, "equal")))
            ],
            reason="sampling again is a cheap way to a right answer there "
            "([study](critique-loop.md#eleven-ways-to-improve))",
        ),
        Claim(
            says="A critic that Critique-RL trained, in the loop at equal tokens.",
            short="a critic trained by Critique-RL in the loop, at equal tokens",
            env="tiny worlds from mild to stubborn misconceptions, no originals",
            budget="tokens written while exploring, round by round",
            result="critique_loop_worlds",
            premise=_envs,
            leads=_of_loops("trained"),
            reason="see the crossover ([study](critique-loop.md#from-mild-to-stubborn-tasks))",
        ),
        Claim(
            says="A warm-started critic in the loop at equal tokens.",
            short="a warm-started one there",
            env="tiny worlds from mild to stubborn misconceptions, no originals",
            budget="tokens written while exploring, round by round",
            result="critique_loop_worlds",
            premise=_envs,
            leads=_of_loops("warm"),
            reason="the warm-started critic mends few answers ([study](critique-loop.md#from-mild-to-stubborn-tasks))",
        ),
        Claim(
            says="An actor that learns to check its own steps beats one that learns the same right answers plain.",
            short="an actor that learns to check its own steps, over one that learns the same answers plain",
            env="the tiny world, comments by a critic of Critique-RL",
            budget="texts learnt, updates",
            result="critique_loop_tiny",
            premise=_talk_premise,
            leads=lambda found: [Lead("right answers", minus(_talk(found, "self_talk"), _talk(found, "plain")))],
            reason="a reply that talks to itself mends a quarter of its first attempts, and these are worse by as much "
            "([study](self-talk.md))",
        ),
        Claim(
            says="At test time a critic beats the majority vote at equal tokens.",
            short="at test time, refining what the verdict calls wrong, over the vote at equal tokens",
            env="the tiny world, a critic of Critique-RL, `verdict_gated`",
            budget="tokens at test time",
            result="critique_loop_tiny",
            premise=_shared,
            leads=_at_test,
        ),
    ],
)

SYSTEMS = (CRITIQUE_RL, BAPO, AGENTGYM_RL, AGENTEVOL, AUTOMATH)
