"""The laws of strategies, on samples of the real tiny model."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby, pairwise

import pytest

from support.sessions import WARM, session_of
from support.strategies import at_each, samples_of, spent
from whet.config import ConfigError
from whet.evaluation.inference_scaling import (
    BestOfN,
    BudgetedSamples,
    Ceiling,
    CriticFiltered,
    CriticWeighted,
    Majority,
    Parallel,
    SelfCheck,
    Sequential,
    Single,
    VerdictGated,
    is_right,
    strategies_of,
)
from whet.evaluation.strategies import STRATEGIES
from whet.methods.critics import roll_out_rounds
from whet.registry import UnknownName

BUDGETS = (1, 40, 120, 260)
ALL = [entry.make()() for entry in STRATEGIES]
OF_A_CRITIC = [each for each in ALL if each.needs_critic]


def name_of(strategy):
    return type(strategy).__name__


@pytest.fixture(scope="module")
def method():
    return session_of("critique_rl", *WARM).algorithm


@pytest.fixture(scope="module")
def task(method):
    return method.run.tasks["test"][0]


# --- what is paid ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", ALL, ids=name_of)
def test_tokens_are_the_segments_and_more_budget_goes_on_from_less(method, task, strategy):
    samples = samples_of(method, task)
    found = at_each(method, samples, strategy, BUDGETS)
    for chosen, budgeted in found:
        written = [sample.segment for sample in budgeted.used.values()]
        assert budgeted.spent == sum(len(segment.tokens) for segment in written) > 0
        assert budgeted.spent == sum(budgeted.tokens(kind) for kind in ("answer", "critique", "refinement"))
        assert budgeted.num_calls == len(written)
        assert chosen.path in budgeted.used  # nothing is given that was not paid for
        assert chosen.kind != "critique"
    for (_, less), (_, more) in pairwise(found):
        if not isinstance(strategy, SelfCheck):  # which looks at what it has at half of its budget
            assert less.used.keys() <= more.used.keys()
        assert less.spent <= more.spent


@pytest.mark.parametrize("strategy", [Majority(), Ceiling(), Parallel(), VerdictGated(), CriticFiltered()], ids=name_of)
def test_only_the_last_chain_exceeds_the_budget(method, task, strategy):
    samples = samples_of(method, task)
    for budget, (_, budgeted) in zip(BUDGETS, at_each(method, samples, strategy, BUDGETS), strict=True):
        ordered = sorted(budgeted.used.values(), key=lambda sample: sample.path)
        chains = [sum(s.num_tokens for s in chain) for _, chain in groupby(ordered, key=lambda sample: sample.path[0])]
        assert sum(chains[:-1]) < budget <= sum(chains)


def test_a_round_is_begun_only_below_the_budget(method, task):
    samples = samples_of(method, task)
    for budget, (chosen, budgeted) in zip(BUDGETS, at_each(method, samples, Sequential(), BUDGETS), strict=True):
        last = [each for each in budgeted.used.values() if len(each.path) >= len(chosen.path) - 1]
        assert budgeted.spent - sum(each.num_tokens for each in last) < budget <= budgeted.spent
        assert len(chosen.path) == max(map(len, budgeted.used))
        assert chosen.path == (0,) * len(chosen.path)


@pytest.mark.parametrize("strategy", [Majority(), Parallel(), CriticWeighted()], ids=name_of)
def test_what_is_begun_together_is_what_one_after_the_other_comes_to(method, task, strategy, monkeypatch):
    together = [budgeted.used for _, budgeted in at_each(method, samples_of(method, task), strategy, BUDGETS)]
    monkeypatch.setattr(BudgetedSamples, "_limit", lambda self, kind: 10**6)
    alone = [budgeted.used for _, budgeted in at_each(method, samples_of(method, task), strategy, BUDGETS)]
    assert [list(each) for each in together] == [list(each) for each in alone]
    texts = [[sample.segment.text for sample in each.values()] for each in (together[-1], alone[-1])]
    assert texts[0] == texts[1]


def test_samples_depend_on_nobody_else_who_asks(method, task):
    """In whichever order strategies come, at whichever budgets: none is given what another one's asking changed."""
    shared, order = samples_of(method, task), [Parallel(), Majority(), Sequential(), CriticWeighted()]
    found = {name_of(each): spent(method, shared, each, 200) for each in order}
    for strategy in reversed(order):
        chosen, budgeted = spent(method, samples_of(method, task), strategy, 200)
        before, scored = found[name_of(strategy)]
        assert (before.path, before.segment.text) == (chosen.path, chosen.segment.text)
        assert scored.used.keys() == budgeted.used.keys()
        assert scored.spent == budgeted.spent


def test_a_chain_is_that_of_whet_eval_with_samples(method, task):
    rounds = method.evaluator.scaling_roles("critic", None, of_run=False, judged=True).sampled
    [group] = roll_out_rounds(method.run, rounds, [task], num_samples=3)
    _, budgeted = spent(method, samples_of(method, task), Parallel(), 400)
    for i, episode in enumerate(group):
        scored = [budgeted.used[path].segment.text for path in ((i,), (i, 0), (i, 0, 0))]
        assert scored == [segment.text for segment in episode.segments]


@pytest.mark.parametrize("strategy", [each for each in ALL if not each.knows_reference], ids=name_of)
def test_the_reference_has_no_part_in_it(method, task, strategy):
    other = replace(task, answer=str((int(task.answer) + 3) % 10))
    for budget in (60, 260):
        chosen = [spent(method, samples_of(method, each), strategy, budget) for each in (task, other)]
        assert chosen[0][0].path == chosen[1][0].path
        assert chosen[0][1].used.keys() == chosen[1][1].used.keys()


def test_the_ceiling_alone_knows_it(method, task):
    assert [name_of(each) for each in ALL if each.knows_reference] == ["Ceiling"]


# --- what comes of it ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "strategy", [Majority(), Ceiling(), BestOfN(), CriticFiltered(), CriticWeighted()], ids=name_of
)
def test_one_answer_without_heat_is_the_single_one(method, task, strategy):
    single, _ = spent(method, samples_of(method, task), Single(), 1)
    chosen, budgeted = spent(method, samples_of(method, task, temperature=0.0), strategy, 1)
    assert sum(sample.kind == "answer" for sample in budgeted.used.values()) == 1
    assert chosen.segment.text == single.segment.text


@pytest.mark.parametrize(
    "strategy", [CriticFiltered(), CriticWeighted(), CriticWeighted(by="probability"), VerdictGated()]
)
def test_a_critic_that_calls_everything_right_leaves_the_majority(method, strategy):
    for task in method.run.tasks["test"][:4]:
        samples = samples_of(method, task, "always_correct")
        for budget in BUDGETS:
            plain, cost = spent(method, samples, Majority(), budget)
            chosen, budgeted = spent(method, samples, strategy, budget)
            assert chosen.path == plain.path
            assert budgeted.spent == cost.spent  # what a rule says costs nothing


def test_always_correct_best_of_n_is_the_first_answer_and_always_wrong_filters_nothing(method, task):
    chosen, _ = spent(method, samples_of(method, task, "always_correct"), BestOfN(), 200)
    assert chosen.path == (0,)
    samples = samples_of(method, task, "always_wrong")
    assert spent(method, samples, CriticFiltered(), 200)[0].path == spent(method, samples, Majority(), 200)[0].path


def test_with_an_oracle_weights_are_never_worse_than_the_majority(method):
    gained = 0
    for task in method.run.tasks["test"]:
        samples = samples_of(method, task, "oracle")
        for budget in (120, 260):
            plain, best = spent(method, samples, Majority(), budget)[0], spent(method, samples, Ceiling(), budget)[0]
            for strategy in (CriticWeighted(), CriticFiltered(), BestOfN()):
                weighted = spent(method, samples, strategy, budget)[0]
                assert is_right(weighted) >= is_right(plain)
                assert is_right(weighted) == is_right(best)  # an oracle picks whatever is right
            gained += is_right(best) > is_right(plain)
    assert gained  # else nothing was shown


def test_a_random_critic_says_the_same_of_the_same_answer_and_both_of_many(method):
    verdicts = []
    for task in method.run.tasks["test"]:
        for _ in range(2):
            _, budgeted = spent(method, samples_of(method, task, "random"), CriticFiltered(), 120)
            verdicts.append([s.verdict for s in budgeted.used.values() if s.kind == "critique"])
        assert verdicts[-1] == verdicts[-2]
    flat = [verdict for each in verdicts for verdict in each]
    assert 0.25 < flat.count("correct") / len(flat) < 0.75
    assert None not in flat


def test_only_what_is_judged_wrong_is_refined(method, task):
    for critic, refined in (("always_correct", 0), ("always_wrong", 1), ("empty", 0)):
        _, budgeted = spent(method, samples_of(method, task, critic), VerdictGated(), 1)
        assert sum(sample.kind == "refinement" for sample in budgeted.used.values()) == refined


def test_a_gated_sequence_ends_where_nothing_is_called_wrong(method, task):
    _, budgeted = spent(method, samples_of(method, task, "always_correct"), Sequential(gate="verdict"), 500)
    assert list(budgeted.used) == [(0,), (0, 0)]
    always, long = spent(method, samples_of(method, task, "always_wrong"), Sequential(gate="verdict"), 200)
    assert len(always.path) > 3
    assert spent(method, samples_of(method, task, "always_wrong"), Sequential(), 200)[1].used.keys() == long.used.keys()


@pytest.mark.integration
def test_self_check_judges_where_answers_disagree_and_spends_the_rest_on_a_vote_elsewhere(method):
    asked = set()
    for task in method.run.tasks["test"]:
        samples = samples_of(method, task, "self")
        chosen, budgeted = spent(method, samples, SelfCheck(), 300)
        judged = any(sample.kind == "critique" for sample in budgeted.used.values())
        half = BudgetedSamples(samples, 150)

        async def first(half=half):
            answers = await half.each(lambda part, i: part.answer(i))
            return await half.keys(answers)

        [keys] = method.run.runtime.roll_out([first])
        agree = max(keys.count(key) for key in keys) / len(keys)
        assert judged is (agree < 0.6)
        if not judged:
            plain, by_vote = spent(method, samples, Majority(), 300)
            assert (chosen.path, budgeted.used) == (plain.path, by_vote.used)
        asked.add(judged)
    assert asked == {True, False}


def test_the_probability_is_the_critics_own_and_costs_nothing(method, task):
    from whet.rollout.samples import chance, fork

    samples = samples_of(method, task)
    strategy = BestOfN(by="probability")
    chosen, budgeted = spent(method, samples, strategy, 260)
    _, plain = spent(method, samples, BestOfN(), 260)
    assert budgeted.spent == plain.spent
    policy, best = method.run.loop.policies["critic"], {}
    for path, sample in budgeted.used.items():
        if sample.kind == "critique":
            rows = fork(policy.tokenizer, method.run.prompts, sample.segment)
            assert rows is not None
            best[path[:1]] = chance(*(float(each[0]) for each in method.run.runtime.scored(rows)))
    assert len(best) > 1
    assert all(0 <= value <= 1 for value in best.values())
    assert best[chosen.path] == max(best.values())


# --- names and options -----------------------------------------------------------------------------------------------


def test_options_stand_behind_the_name():
    asked = ["majority", "critic_weighted:by=probability:critiques=3", "sequential:gate=verdict:vote=true"]
    found = strategies_of(", ".join(asked))
    assert list(found) == asked
    assert found[asked[1]] == CriticWeighted(by="probability", critiques=3)
    assert found[asked[2]] == Sequential(gate="verdict", vote=True)
    assert set(strategies_of("all")) == {entry.name for entry in STRATEGIES}


@pytest.mark.parametrize(
    ("text", "error", "said"),
    [
        ("majorty", UnknownName, "did you mean 'majority'"),
        ("", ConfigError, "--strategy names none; choose of: single"),
        ("critic_weighted:critiques=0", ConfigError, "--strategy critic_weighted:critiques=0: critiques must be"),
        ("critic_weighted:wieght=1", ConfigError, "wieght"),
        ("parallel:gate", ConfigError, "write key=value"),
        ("sequential:gate=oracle", ConfigError, "gate"),
    ],
)
def test_a_strategy_that_cannot_be_is_refused_in_a_sentence(text, error, said):
    with pytest.raises(error, match=said):
        strategies_of(text)


def test_no_critic_has_nothing_to_judge_with(method):
    with pytest.raises(ConfigError, match="no_critic critiques nothing"):
        method.evaluator.scaling_roles("no_critic", None, of_run=False, judged=True)
    assert method.evaluator.scaling_roles("no_critic", None, of_run=False, judged=False).row == "no_critic"


def test_free_running_plays_spend_and_choose_alike(method, task):
    free = session_of("critique_rl", *WARM, "engine.rollout=free").algorithm
    for strategy in (Parallel(), BestOfN(by="probability")):
        found = [spent(each, samples_of(each, task), strategy, 150) for each in (method, free)]
        texts = [[sample.segment.text for sample in budgeted.used.values()] for _, budgeted in found]
        assert texts[0] == texts[1]
        assert found[0][0].path == found[1][0].path
