"""The model card of an exported policy: its origin, its training, its results and its use."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Any, Literal

from whet.api.card_origin import MADE_HERE, data_licence, method_in_words, method_name, papers, trained_by
from whet.config.base import plain
from whet.config.environment_data import EnvironmentData
from whet.config.environments import NO_RULES, OWN_RULES, AgentRunConfig
from whet.config.runs import RunConfig
from whet.config.show import tree_difference
from whet.digests import digest
from whet.distribution import version
from whet.methods.base import Skill
from whet.methods.registry import preset_of
from whet.models.provenance import (
    LICENCE_KEYS,
    LICENCE_TEXTS,
    NOT_STATED,
    is_hub_id,
    licence_in_words,
    provenance_in_words,
    public,
    public_name,
)
from whet.report.read import read_object, read_report_spec, read_rows
from whet.report.rows import best_rows, columns_of, row_title, summary_rows
from whet.report.table import count_in_words, denominators_in_words, intervals_in_words, intervals_of, shown
from whet.run.load import LoadedRun

Weights = Literal["whole", "adapter", "merged", "gguf"]
LIBRARIES: Mapping[Weights, str] = {"adapter": "peft", "gguf": "gguf"}
UNSET = ("null", "{}", "[]")
"""Values of settings that are not given, as a card would show them."""
TINY_WORLD = "the tiny world (chains of arithmetic, read from left to right and modulo 10)"
SHORT = 16
"""Hex digits of a sha256 on a card."""
USES: Mapping[Skill, str] = {
    "answer": "answers questions",
    "critique": "critiques answers",
    "refine": "writes its answer anew after a critique",
    "act": "acts in environments, turn by turn",
}


WHOLE = 'model, tokenizer = (kind.from_pretrained("DIR") for kind in (AutoModelForCausalLM, AutoTokenizer))'
OVER_A_FOLDER = """\
tokenizer = AutoTokenizer.from_pretrained("DIR")
model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained("BASE"), "DIR")"""
"""For an adapter whose base is in a folder."""
SNIPPET = """\
{importing}from transformers import AutoModelForCausalLM, AutoTokenizer

# DIR: the folder of this card, or its repository's name
{loading}
turn = {{"role": "user", "content": "..."}}  # {worded}
prompt = tokenizer.apply_chat_template([turn], add_generation_prompt=True, tokenize=False){begun}
ids = tokenizer(prompt, add_special_tokens=False, return_tensors="pt").input_ids
reply = model.generate(ids, max_new_tokens={max_new_tokens}, do_sample=False)
print(tokenizer.decode(reply[0, ids.shape[1]:], skip_special_tokens=True))"""


def model_card(trained: LoadedRun, name: str, weights: Weights) -> str:
    """Markdown, with the metadata that model hubs read. It gives the base model's licence, or says that none is stated.
    No folder of this machine is named."""
    base, record = public_name(trained.model(name).path), trained.source(name)
    has_text = (trained.place(name) / LICENCE_TEXTS[0]).is_file()
    return "\n".join(
        [
            *_metadata(trained, record, weights),
            f"# {_title(trained, name)}\n",
            f"{_described(trained, name)}\n",
            *_facts(trained, name, base, record, weights),
            *_table(trained),
            *_usage(trained, name, base, record, weights),
            "## Licence\n",
            f"{_licence(record, has_text, data_licence(trained.config.data) == MADE_HERE)}\n",
        ]
    )


def _title(trained: LoadedRun, name: str) -> str:
    method = method_name(trained)
    if trained.versions[name] > 0:
        return f"{name}, trained with {method}"
    return f"{name}, which a run of {method} holds and has not trained"


def _licence(record: Mapping[str, Any], has_text: bool, is_own_data: bool) -> str:
    """
    Args:
        has_text: the folder holds the licence's text.
        is_own_data: whet's own code made the data.
    """
    words = " ".join(licence_in_words(record).split())  # a separate line could be a heading, or a table
    if not record.get("license"):
        return (
            f"{words[0].upper()}{words[1:]}, and then add a `license:` to the metadata above. What the base model and "
            "the data allow binds you."
        )
    text = " Its text is in `LICENSE`." if has_text else ""
    binds = "" if is_own_data else " What the data allows binds you too."
    return f"{words[0].upper()}{words[1:]}, which is the base model's.{text}{binds}"


def _metadata(trained: LoadedRun, record: Mapping[str, Any], weights: Weights) -> Iterator[str]:
    yield "---"
    yield f"library_name: {LIBRARIES.get(weights, 'transformers')}"
    yield "pipeline_tag: text-generation"
    if is_hub_id(record.get("base_model")):
        yield f"base_model: {json.dumps(record['base_model'])}"
    tags = [method_name(trained), *(f"arxiv:{paper}" for paper in papers(trained))]
    yield f"tags: [whet, {', '.join(map(json.dumps, tags))}]"
    for key in LICENCE_KEYS:
        if record.get(key):
            yield f"{key}: {json.dumps(record[key])}"
    if not record.get("license"):
        yield f"# license: {NOT_STATED}"
    yield "---\n"


def _described(trained: LoadedRun, name: str) -> str:
    uses = [USES[skill] for skill in trained.skills(name)]
    text = f"A language model that {' and '.join(uses)}." if uses else "A language model."
    says = (trained.algorithm.__doc__ or trained.config.method).strip().partition("\n")[0]
    return f"{text} {says}."


def _facts(trained: LoadedRun, name: str, base: str, record: Mapping[str, Any], weights: Weights) -> Iterator[str]:
    config, run = trained.config, trained.folder
    env = read_object(run / "env.json") or {}
    copied = "" if trained.role(name) == name else f", a copy of `{trained.role(name)}`"
    held = {
        "whole": "all of the model's",
        "adapter": "a LoRA adapter, in PEFT's layout",
        "merged": "the base model's with the LoRA adapter merged into them",
        "gguf": "all of the model's, as a GGUF file in float32",
    }[weights]
    came_from = provenance_in_words(record)
    yield "| | |\n|---|---|"
    for key, value in {
        "policy": f"`{name}`{copied} after {trained.versions[name]:,} updates",
        "weights": held,
        "method": method_in_words(trained),
        "trained by": _cell(trained_by(env)),
        "selected by": _selected_by(trained, name),
        "base model": _cell(f"`{base}`{_inputs(trained, f'{trained.role(name)}.path = ')}"),
        **({"which came from": _cell(came_from)} if came_from else {}),
        "licence": _cell(licence_in_words(record).removeprefix("licence ")),
        "data": _cell(f"{_data(config.data)}{_inputs(trained, 'data.')}"),
        "licence of the data": _cell(data_licence(config.data)),
        "settings": _cell(
            f"{_changed(config, method_name(trained))}; sha256 of config.yaml {digest(run / 'config.yaml')[:SHORT]}"
        ),
        "made with": f"whet {env.get('whet', '?')}, torch {env.get('torch', '?')}, transformers "
        f"{env.get('transformers', '?')}; exported by whet {version()}, whose code is Apache-2.0",
    }.items():
        yield f"| {key} | {value} |"
    yield ""


def _changed(config: RunConfig, name: str) -> str:
    """The settings that differ from those of a name that `whet train` takes."""
    lines = tree_difference(public(plain(preset_of(name).config)), public(plain(config)))
    sides = {key: value.rpartition(" -> ") for key, _, value in (line.partition(": ") for line in lines)}
    # Other data have keys of their own: those that are not set say nothing.
    keys = [
        f"`{key}={new}`"
        for key, (old, _, new) in sides.items()
        if new != "(absent)" and not (old == "(absent)" and new in UNSET)
    ]
    return f"those of `{name}` but {', '.join(keys)}" if keys else f"those of `{name}`"


def _selected_by(trained: LoadedRun, name: str) -> str:
    """The measurement that chose a policy's weights, in words."""
    events = read_rows(trained.folder / "events.jsonl")
    chosen = [row for row in events if row.get("event") == "best" and row.get("policy") == name]
    if chosen:
        return f"{str(chosen[-1].get('message', '')).removesuffix(' is the best so far')}, the best of the validations"
    if trained.versions[name] == 0:
        return "nothing: no update has moved them"
    return "nothing: these are the weights as training left them"


def _inputs(trained: LoadedRun, setting: str) -> str:
    """The digest of the file that a setting names, or one over the digests of several files."""
    digests = {name: value for name, value in trained.origin.get("inputs", {}).items() if name.startswith(setting)}
    if not digests:
        return ""
    whole = next(iter(digests.values())) if len(digests) == 1 else _sha256(digests)
    return f", sha256 {whole[:SHORT]}" + (f" of its {len(digests)} files' digests" if len(digests) > 1 else "")


def _data(data: Any) -> str:
    """The kind and source of the problems, and a digest of their settings."""
    values = plain(data)
    digest_of_settings = _sha256(values)
    values = public(values)
    named = {key: value for key, value in values.items() if value and (key == "hub" or key.endswith("path"))}
    named |= {key: values[key] for key in ("revision", "subset", "dataset") if values.get(key)}
    title = TINY_WORLD if values["kind"] == "chains" else values["kind"]
    if isinstance(data, EnvironmentData):
        named["env"] = ", ".join(data.shares)
    shown = ", ".join(f"{key} `{value}`" for key, value in named.items())
    return f"{title}{': ' if shown else ''}{shown}, sha256 of its settings {digest_of_settings[:SHORT]}"


def _sha256(values: Mapping[str, Any]) -> str:
    return sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def _table(trained: LoadedRun) -> Iterator[str]:
    report_spec, summary = read_report_spec(trained.folder), read_object(trained.folder / "summary.json")
    rows = summary_rows(summary, report_spec)
    yield "## How it did\n"
    if not rows:
        yield "The run has not finished, so there is no table yet.\n"
        return
    columns, best, intervals = (
        columns_of(report_spec, rows),
        best_rows(report_spec, rows),
        intervals_of(report_spec, rows),
    )
    yield f"| {report_spec.who} | {' | '.join(_cell(column.title) for column in columns)} |"
    yield f"|---|{'---:|' * len(columns)}"
    for name, row in rows.items():
        cells = [shown(column, row[column.key]) for column in columns]
        marked = [
            f"**{c}**" if name in best and k.key == report_spec.best else c for c, k in zip(cells, columns, strict=True)
        ]
        if name in intervals:
            headline = next(i for i, column in enumerate(columns) if column.key == report_spec.best)
            marked[headline] += f" {intervals[name]}"
        yield f"| {_cell(row_title(report_spec, name))} | {' | '.join(marked)} |"
    words = [
        count_in_words(report_spec, rows),
        intervals_in_words(report_spec, intervals),
        denominators_in_words(columns),
    ]
    yield f"\nIn percent. {' '.join(filter(None, words))}\n"


def _usage(trained: LoadedRun, name: str, base: str, record: Mapping[str, Any], weights: Weights) -> Iterator[str]:
    words = trained.words()
    yield "## How to use it\n"
    if weights == "gguf":
        yield f"With llama.cpp: `llama-server -m {name}.gguf`, or `llama-quantize {name}.gguf small.gguf q8_0` first.\n"
    over_a_folder = weights == "adapter" and not (is_hub_id(base) and record.get("base_model") == base)
    if over_a_folder:
        yield f"It is an adapter: install peft, and give the folder of the base model, `{base}`, in place of BASE.\n"
    elif weights == "adapter":
        yield f"With peft installed, `from_pretrained` loads the base model (`{base}`) and this adapter over it.\n"
    skills = trained.skills(name)
    wordings = {
        "answer": (words.solve, words.solve_prefill),
        "critique": (words.critique, ""),
        "refine": (words.refine, words.refine_prefill),
        "act": ("", ""),
    }
    first = next(iter(skills), None)
    snippet = (
        ""
        if weights == "gguf"
        else SNIPPET.format(
            importing="from peft import PeftModel\n" if over_a_folder else "",
            loading=OVER_A_FOLDER if over_a_folder else WHOLE,
            worded="worded as below" if first != "act" else "of a conversation as below",
            begun=f" + {wordings[first][1]!r}" if first and wordings[first][1] else "",
            max_new_tokens=skills[first].max_new_tokens if first else 128,
        )
    )
    if snippet:
        yield f"```python\n{snippet}\n```\n"
    for skill in skills:
        wording, prefill = wordings[skill]
        if skill == "act":
            yield _acting(trained.config)
            continue
        if skill == "refine":
            yield "It writes its answer anew in the same conversation: the question's turn, its own answer, and then:\n"
        else:
            yield f"It {USES[skill]} when the user's turn is worded so:\n"
        yield "\n".join(f"    {line}" for line in wording.split("\n")) + "\n"
        if prefill:
            yield f"and its own turn begun for it with `{json.dumps(prefill, ensure_ascii=False)}`.\n"


def _acting(config: RunConfig) -> str:
    """How to prompt an agent."""
    assert isinstance(config, AgentRunConfig)
    envs = ",".join(config.data.shares)
    rules = "the rules of `config.yaml` (`rules`)"
    if config.rules is None or isinstance(config.rules, str):
        rules = {
            None: "the environment's rules, or those of the trajectories that it learnt, where the model's config.json "
            "does not say `reads_rules: false`",
            OWN_RULES: "the environment's rules",
            NO_RULES: "no rules",
        }.get(config.rules, f"the rules of `{config.rules}`")
    return (
        f"It was trained in {envs}. A conversation begins with {rules}, then the first observation; each reply is "
        f"read in the format `{config.format}`, and the next message is the environment's answer. "
        f"`whet eval --policy DIR --env {envs}` runs it, and measures it.\n"
    )


def _cell(text: str) -> str:
    """The text on one line, without any kind of line end: a separate line could be a heading, or a row."""
    return " ".join(text.replace("|", "\\|").splitlines())
