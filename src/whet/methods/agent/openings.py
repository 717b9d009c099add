"""How the episodes of a run open: by whose rules, and in which form the observations are shown.

What is rolled out and what is learnt open alike. Where they do not, the run says so before it begins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from whet.config import ConfigError
from whet.config.environments import NO_RULES, OWN_RULES, AgentRunConfig
from whet.config.yaml_text import MAX_BYTES, NotYaml, load
from whet.envs import EnvironmentInfo
from whet.envs.shown_form import OWN_FORM, ShownForm
from whet.methods.environment_tasks import rules_of
from whet.tasks.files import DataError, read_text
from whet.tasks.prompts import Message
from whet.trajectories.files import read_trajectories
from whet.trajectories.format_detection import TOOLS
from whet.trajectories.openings import Opening, opening_of
from whet.trajectories.records import ENV_SEED, FIRST_OBSERVATION, Trajectory
from whet.trajectories.tools import tools_text
from whet.types import is_whole

SETTING, KINDS = "rules (own, none or FILE)", ".yaml or .json"
YAML_ENDINGS = (".yaml", ".yml")
PLACEHOLDER = "{observation}"
"""In a third turn of a YAML file: where the first observation stands."""
MAX_CHARACTERS = 200_000
"""Of one turn in a YAML file."""


@dataclass(frozen=True)
class Given:
    """Trajectories of the run's files, in its action format, and what there is to say of them."""

    trajectories: Sequence[Trajectory] = ()
    notes: Sequence[str] = ()


class Openings:
    """The openings of a run's environments.

    Raises: ConfigError, DataError.
    """

    def __init__(self, config: AgentRunConfig, infos: Mapping[str, EnvironmentInfo], given: Given) -> None:
        self._infos, self._given, self._format = infos, given, config.format
        self._rules = _rules_by_environment(config, infos)
        self._own = {name: Opening(rules=rules_of(info, config.format).text) for name, info in infos.items()}
        self._of_files = {name: opening_of(given.trajectories, name) for name in infos}
        self._openings = {name: self._chosen(name) for name in infos}
        self._forms = {name: self._form(name, config.observations) for name in infos}

    def rules(self, name: str) -> Opening:
        """The rules of an environment and the reply to them, shown or not."""
        return self._openings[name]

    def form(self, name: str) -> ShownForm:
        return self._forms[name]

    def tools(self, name: str) -> str:
        """The JSON list of an environment's tools, for the chat template. Empty: the format has none."""
        return tools_text(name) if self._format == TOOLS else ""

    def shows_rules(self, name: str, *, reads_rules: bool) -> bool:
        """Whether prompts of an environment show the rules.

        Args:
            reads_rules: whether the policy does, where the settings do not say.
        """
        rules = self._rules.get(name)
        return reads_rules if rules is None else rules != NO_RULES

    def messages(self, name: str, *, shown: bool) -> tuple[Message, ...]:
        """The chat before the first observation."""
        opening = self._openings[name]
        if not shown or not opening.rules:
            return ()
        return {"role": "user", "content": opening.rules}, {"role": "assistant", "content": opening.reply}

    def as_shown(self, trajectory: Trajectory, *, is_given: bool) -> Trajectory:
        """A trajectory as rollouts show it: with their opening, their form of the observations, and their tools.

        Args:
            is_given: it is of the run's files. Its observations stay as they are, and its opening does unless `rules`
                says another.
        """
        name = trajectory.environment
        if name in self._infos:
            trajectory = replace(trajectory, tools=self.tools(name))
        if name not in self._infos or (is_given and self._rules.get(name) is None):
            return trajectory
        messages, form = list(trajectory.messages), self._forms[name]
        for position, text in enumerate(self._openings[name].text):
            messages[position] = replace(messages[position], text=text)
        if not is_given and form != OWN_FORM:
            for position in range(FIRST_OBSERVATION, len(messages), 2):
                text = messages[position].text
                shown = form.shown(text, max(1, len(text)), is_first=position == FIRST_OBSERVATION)
                messages[position] = replace(messages[position], text=shown)
        return replace(trajectory, messages=tuple(messages))

    def remarks(self, *, reads_rules: bool) -> tuple[list[str], list[str]]:
        """What there is to say before the run begins: notes, and warnings where rollouts and trajectories differ."""
        notes, warnings = list[str](), list[str]()
        for name, opening in self._openings.items():
            shown = self.shows_rules(name, reads_rules=reads_rules)
            if shown:
                notes += self._source_notes(name)
                if opening.num_openings > 1:
                    warnings.append(
                        f"{name}: the file has {opening.num_openings} different openings; rollouts begin with the most "
                        f"frequent one ({len(opening.rules):,} characters)"
                    )
            form = self._forms[name]
            if form != OWN_FORM:
                notes.append(
                    f"{name}: observations are shown in the recorded form, with {len(form.before_first):,} characters "
                    "before the first one"
                )
            warnings += self._form_warnings(name)
        return notes, warnings

    def _source_notes(self, name: str) -> list[str]:
        rules, opening, of_files = self._rules.get(name), self._openings[name], self._of_files[name]
        size = f"{len(opening.rules):,} characters"
        if of_files is None or of_files.text == opening.text:
            is_from_file = rules not in (None, OWN_RULES) or opening.text != self._own[name].text
            source = rules if rules not in (None, OWN_RULES) else "the trajectories"
            return [f"{name}: episodes begin with the rules of {source} ({size})"] if is_from_file else []
        source = "whet's rules" if rules == OWN_RULES else f"the rules of {rules}"
        return [
            f"{name}: the trajectories begin with {len(of_files.rules):,} characters of rules; they are learnt and "
            f"rolled out under {source} ({size}), as rules={rules} says"
        ]

    def _form_warnings(self, name: str) -> list[str]:
        of_files = self._of_files[name]
        if of_files is None:
            return []
        if of_files.form is not None and of_files.form != self._forms[name]:
            return [
                f"{name}: observations of the trajectories have another form than those of rollouts: "
                "observations=recorded shows theirs"
            ]
        episodes = [episode for episode in self._given.trajectories if episode.environment == name]
        if of_files.form is None and not any(ENV_SEED in episode.info for episode in episodes):
            return [
                f"{name}: whet knows no recorded form of its observations, so those of rollouts may differ from those "
                "of the trajectories"
            ]
        return []

    def _chosen(self, name: str) -> Opening:
        rules = self._rules.get(name)
        if rules is None:
            return self._of_files[name] or self._own[name]
        return self._own[name] if rules in (OWN_RULES, NO_RULES) else read_opening(rules, name)

    def _form(self, name: str, observations: str | None) -> ShownForm:
        """By default that of the trajectories, or else that of the rules' file."""
        if observations == "own":
            return OWN_FORM
        forms = [opening.form for opening in (self._of_files[name], self._openings[name]) if opening is not None]
        form = next((form for form in forms if form is not None), None)
        if form is None and observations == "recorded":
            raise ConfigError(
                f"observations=recorded shows observations as a file has them, and none is named for {name} whose form "
                f"whet knows: set rules to a file of trajectories of {name}, or observations=own"
            )
        return form or OWN_FORM


def _rules_by_environment(config: AgentRunConfig, infos: Mapping[str, EnvironmentInfo]) -> dict[str, str | None]:
    """Raises: ConfigError where environments are named that the run does not have, or one YAML file is of several."""
    rules = config.rules
    if isinstance(rules, Mapping):
        if strangers := sorted(rules.keys() - infos.keys()):
            raise ConfigError(f"rules names {', '.join(strangers)}, which data.env does not: add it, or leave it out")
        return dict(rules)
    if rules is not None and len(infos) > 1 and rules.lower().endswith(YAML_ENDINGS):
        first, second, *_ = infos
        raise ConfigError(
            f"rules = {rules} opens the episodes of one environment, and there are {len(infos)}: name a file for each, "
            f"such as rules={{{first}: {rules}, {second}: {OWN_RULES}}}"
        )
    return dict.fromkeys(infos, rules)


def read_opening(path: str, environment: str) -> Opening:
    """The opening of an environment's episodes, from YAML or from trajectories.

    Raises: DataError where there is no such file, or no opening of this environment in it.
    """
    if path.lower().endswith(YAML_ENDINGS):
        return _from_yaml(path)
    read_text(Path(path), SETTING, KINDS)  # its sentence names the setting
    trajectories = read_trajectories(path)
    opening = opening_of(trajectories, environment)
    if opening is None:
        others = ", ".join(sorted({trajectory.environment for trajectory in trajectories})) or "no environment"
        raise DataError(
            f"rules: {path} has episodes of {others}, and none of {environment}: name a file that has one "
            f"(rules={{{environment}: FILE}})"
        )
    return opening


def _from_yaml(path: str) -> Opening:
    text = read_text(Path(path), SETTING, KINDS)
    if len(text) > MAX_BYTES:  # parsing would take long
        raise DataError(f"rules: {path} has {len(text):,} characters, more than {MAX_BYTES:,}: give a shorter opening")
    try:
        turns = load(text)
    except (NotYaml, RecursionError) as error:
        raise DataError(f"rules: {path} is no YAML ({error}); mend it") from error
    if not isinstance(turns, list) or len(turns) not in (2, 3):
        raise DataError(
            f"rules: {path} has to be a list of two turns, of user and assistant, each with role and content; a third "
            f"one, of user, may say what stands before the first observation, and ends in {PLACEHOLDER}"
        )
    roles = ("user", "assistant", "user")
    contents = [
        _content(turn, role, f"rules: {path}, turn {number}")
        for number, (turn, role) in enumerate(zip(turns, roles, strict=False), 1)
    ]
    form = None
    if len(contents) == len(roles):
        before, placeholder, after = contents[2].partition(PLACEHOLDER)
        if not placeholder or after.strip():
            raise DataError(f"rules: {path}, turn 3: it has to end in {PLACEHOLDER}, once; write it there")
        form = ShownForm(before_first=before)
    return Opening(rules=contents[0], reply=contents[1], form=form)


def _content(turn: Any, role: str, place: str) -> str:
    if not isinstance(turn, dict) or set(turn) != {"role", "content"} or turn["role"] != role:
        raise DataError(f"{place}: expected {{role: {role}, content: ...}}; write it so")
    content = turn["content"]
    if not isinstance(content, str) or not content.strip() or len(content) > MAX_CHARACTERS or not is_whole(content):
        raise DataError(f"{place}: content has to be a text of 1 to {MAX_CHARACTERS:,} whole characters; mend it")
    return content
