"""Self-talk on the shipped model: records that hold, forms with equal data, and a run from start to end."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from support.sessions import Silent, finished, session_of
from whet.config import ConfigError
from whet.config.reads import check_all_read
from whet.grading import ChainGrader
from whet.methods.registry import config_of
from whet.methods.self_correct.examples import FORMS, demonstration_of, row_of, self_corrections_of
from whet.methods.self_correct.records import find_problems, mistakes, numbers, of_record, plain_text
from whet.methods.self_correct.rollout import FATES
from whet.run.session import prepare
from whet.run_folder.folder import SELF_TALK, RunFolder
from whet.types import Task

SMALL = (
    "feedback=judge", "num_steps=2", "prompts_per_step=24", "num_epochs=1", "rows_per_step=8",
    "learning.minibatch_rows=8", "learning.learning_rate=1e-4", "validate_every=100",
)  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("talk")
    return finished("self_talk", *SMALL, folder=folder), folder


def records_of(folder):
    return [of_record(json.loads(line)) for line in (folder / SELF_TALK).read_text().splitlines()]


def test_every_record_holds_on_the_real_tiny_model(run):
    """The invariants of spec section 4, each looked at anew and not by the checker alone."""
    session, folder = run
    self_corrections = records_of(folder)
    chains = [talk for talk in self_corrections if talk.form == "step"]
    assert len(chains) == session.loop.found["build"]["learnt"] > 8
    by_id = {task.id: task for task in session.algorithm.run.tasks["train"]}
    for talk in self_corrections:
        [grade] = ChainGrader().grade([(talk.text, Task(id="", prompt="", answer=talk.gold_answer))])
        assert grade.score == 1.0
        assert grade.extracted == talk.final_answer == talk.gold_answer == by_id[talk.qid].answer
        assert find_problems(talk, is_right=True) == []
        raw = "\n".join(piece.text for piece in talk.segments)
        assert numbers(talk.text) == numbers(raw)
        assert "claimed" in raw
        assert not any(word in talk.text.casefold() for word in ("claimed", "step sentence", "correctness of"))
    for talk in chains:
        labels = [piece.label for piece in talk.segments if piece.kind == "check"]
        after = [two.kind for one, two in zip(talk.segments, talk.segments[1:], strict=False) if one.label == "Wrong"]
        assert labels[-1] == "Correct"
        assert after == ["fix"] * talk.rounds == ["fix"] * labels.count("Wrong")


def test_a_share_of_chains_without_repairs_is_kept_and_no_more(run):
    session, folder = run
    rounds = [talk.rounds for talk in records_of(folder) if talk.form == "step"]
    found, clean = session.loop.found["build"], rounds.count(0)
    assert 0 < clean <= 0.3 * len(rounds)
    assert (clean, len(rounds) - clean) == (min(found["clean"], int(found["repaired"] * 3 / 7)), found["repaired"])
    assert sum(found[fate] for fate in FATES) == 48  # every chain came to something


def test_all_forms_have_as_many_texts_of_the_same_questions(run):
    session, folder = run
    method, self_corrections = session.algorithm, records_of(folder)
    pairs = [self_corrections_of(each) for each in method._chosen]
    texts = {arm: [demonstration_of(arm, pair, method.run.prompts) for pair in pairs] for arm in ("plain", *FORMS)}
    assert len({tuple(each.messages[0]["content"] for each in shown) for shown in texts.values()}) == 1
    assert [each.text for each in texts["self_talk"]] == [talk.text for talk in self_corrections if talk.form == "step"]
    assert [each.text for each in texts["response"]] == [
        talk.text for talk in self_corrections if talk.form == "response"
    ]
    for (chain, response), plain in zip(pairs, texts["plain"], strict=True):
        assert plain.text == plain_text(chain)
        assert response.text.endswith(plain.text if response.rounds else plain.text.rpartition("\n")[2])
    steps = {each.name: each.num_steps for each in session.loop.done}
    assert steps["learn_plain"] == steps["learn_response"] == steps["learn_self_talk"] == -(-len(pairs) // 8)


def test_the_loss_is_on_the_text_and_the_same_questions_are_drawn(run):
    session, _ = run
    method = session.algorithm
    for arm in ("plain", "self_talk"):
        rows = method._rows(arm, 1)
        tokenizer = session.loop.policies["policy"].tokenizer
        prompts = [tokenizer.decode(row.tokens[: row.trains[0]]) for row in rows]
        assert all(prompt.startswith("<|user|>Solve: ") for prompt in prompts)
        assert all(np.array_equal(row.trains, np.arange(row.trains[0], len(row.tokens))) for row in rows)
        assert all(row.tokens[-1] == tokenizer.eos_token_id for row in rows)
    assert prompts == [tokenizer.decode(row.tokens[: row.trains[0]]) for row in method._rows("plain", 1)]


def test_steps_found_wrong_are_read_and_not_learnt_where_that_is_asked_for(run):
    session, _ = run
    method, policy = session.algorithm, session.loop.policies["policy"]
    pairs = [self_corrections_of(each) for each in method._chosen]
    for arm, form in FORMS.items():
        whole, rest = (
            [row_of(arm, pair, method.run.prompts, policy, with_mistakes=learnt) for pair in pairs]
            for learnt in (True, False)
        )
        num_left_out = 0
        for pair, one, other in zip(pairs, whole, rest, strict=True):
            [talk] = [talk for talk in pair if talk.form == form]
            assert np.array_equal(one.tokens, other.tokens)
            left_out = policy.tokenizer.decode(one.tokens[np.setdiff1d(one.trains, other.trains)]).strip("\n")
            wrong = [talk.text[start:end] for start, end in mistakes(talk)]
            assert left_out == "\n".join(wrong)
            assert len(wrong) == talk.rounds
            assert one.trains[-1] == other.trains[-1]
            num_left_out += len(wrong)
        assert num_left_out > 0


def test_every_form_begins_with_the_actor_as_it_was_and_has_a_row(run):
    session, folder = run
    policies = session.loop.policies
    before = policies["policy_initial"].model.state_dict()
    assert {"policy_plain", "policy_response", "policy_self_talk"} <= policies.keys()
    begun = {row["phase"]: row["validation/acc"] for row in session.loop.folder.read_metrics() if row["step"] == 0}
    assert len(set(begun.values())) == 1, "all forms are validated before their first update, on the same weights"
    assert set(begun) == {"learn_plain", "learn_response", "learn_self_talk"}
    assert any((before[name] != weight).any() for name, weight in policies["policy"].model.state_dict().items())
    rows = json.loads((folder / "summary.json").read_text())["rows"]
    assert list(rows) == ["before", "plain", "response", "self_talk"]
    assert rows["plain"]["repaired"] is None
    assert rows["self_talk"]["repaired"] is not None
    assert rows["self_talk"]["n"] == 12


def test_a_text_longer_than_a_reply_may_be_is_not_learnt():
    method = session_of("self_talk", *SMALL, "sampling.max_new_tokens=40", "forms=[self_talk]").algorithm
    method._begin()
    metrics = method._build(1).metrics
    lengths = [len(method.run.loop.policies["policy"].tokenizer.encode(talk.text))
               for told in method._queue for talk in self_corrections_of(told)]  # fmt: skip
    assert metrics["talk/long"] > 0
    assert all(length < 40 for length in lengths)


def test_a_run_that_keeps_nothing_says_so_and_ends(tmp_path):
    session = finished("self_talk", *SMALL, "sampling.max_new_tokens=8", "num_steps=1", folder=tmp_path)
    assert [each.name for each in session.loop.done] == ["before", "build"]
    assert session.loop.found["build"]["learnt"] == 0
    assert "nothing_kept" in (tmp_path / "events.jsonl").read_text()


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (("forms=[]",), "name some of"),
        (("forms=[plain,plain]",), "each once"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, says):
    with pytest.raises(ConfigError, match=says):
        config_of("self_talk", None, settings)


def prepared(*settings):
    return prepare(config_of("self_talk", None, ["num_threads=1", *settings]), Silent(), RunFolder(Path()))


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (("prompts=english", "feedback=oracle"), "tiny world only"),
        (("prompts=short",), "step by step"),
        (("prompts=english", "warm_start.rows_per_step=2", "warm_start.critic_steps=0"), "has no effect"),
        (("prompts=english", "smoothing.max_new_tokens=9"), "has no effect"),
    ],
)
def test_other_data_need_critics_who_go_by_steps(gsm8k, small_model, settings, says):
    own = (f"data.path={gsm8k}", "data.kind=file", f"policy.path={small_model}", f"critic.path={small_model}")
    with pytest.raises(ConfigError, match=says):
        check_all_read(prepared(*own, *settings).algorithm.config)
