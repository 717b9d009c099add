"""`whet chat`: talk to a run's critic or actor in the terminal, or by a pipe."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer
from rich.markup import escape
from rich.padding import Padding
from rich.text import Text

from whet.cli.app import app
from whet.cli.console import DraftOption, ProductsOption, guarded, out, usage
from whet.cli.export import PolicyOption, RunArgument
from whet.cli.own_files import PluginsCommand, PluginsOption, load_own

if TYPE_CHECKING:
    from whet.api.actor import Actor
    from whet.api.critic import Critic, Critique
    from whet.run.load import LoadedRun
    from whet.types import StopReason, Task

T = TypeVar("T")
FENCE = '"""'
HELP = f"""A question ends with an empty line; so does an answer. A text that has empty
lines stands between {FENCE} and {FENCE}. From a pipe each line is a question, or a
question, a tab and an answer to judge.
  /task             a problem of the run's test set, whose answers are graded
  /reference TEXT   the right answer to the last question: grades its answer
  /help             this
  /quit             or Ctrl-D, Ctrl-C"""


@app.command(cls=PluginsCommand)
def chat(
    run: RunArgument,
    policy: PolicyOption = None,
    temperature: Annotated[float, typer.Option(min=0.0, max=10.0, help="0: greedy.")] = 0.0,
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Of samples, where not greedy.")] = 0,
    products: ProductsOption = "float32",
    draft: DraftOption = 0,
    plugins: PluginsOption = None,
) -> None:
    """Talk to a trained critic (question and answer in, critique and verdict out) or actor (question in, answer out).

    From a pipe each line is a question, or a question, a tab and an answer to judge.

    Examples: whet chat runs/first;  whet chat runs/first --policy actor;  whet chat runs/first < questions.txt
    """

    def work() -> None:
        from whet.run.load import load_run

        if hasattr(sys.stdin, "reconfigure"):
            sys.stdin.reconfigure(errors="replace")
        load_own(plugins)
        try:
            with out.status("loading"):
                talk = _talk(replace(load_run(run), products=products, draft=draft), policy, temperature, seed)
            talk.greet()
            if _is_typed():
                talk.go()
            else:
                talk.go_through(sys.stdin)
        except (EOFError, KeyboardInterrupt):
            out.print()

    guarded(work, None)


def _talk(trained: LoadedRun, policy: str | None, temperature: float, seed: int) -> SelfCorrection:
    """The conversation's models: a critic and an actor, or one of them."""
    from whet.api.actor import actor_of
    from whet.api.critic import critic_of

    chosen = policy or trained.best
    trained.check([chosen])
    skills = trained.skills(chosen)
    if not skills.keys() & {"answer", "critique"}:
        others = [name for name in trained.names if trained.skills(name).keys() & {"answer", "critique"}]
        advice = f"choose --policy of: {', '.join(others)}" if others else "load it with transformers"
        if "act" in skills:
            advice = f"it acts in environments, and `whet eval {shlex.quote(str(trained.folder))}` runs it"
        raise usage(f"policy {chosen!r} of a run of {trained.config.method} neither answers nor critiques: {advice}")
    critic = chosen if "critique" in skills else None
    actor = chosen if "answer" in skills else trained.who("answer")
    loaded = trained.load(dict.fromkeys(name for name in (critic, actor) if name is not None))
    return SelfCorrection(
        trained,
        critic=None if critic is None else critic_of(trained, loaded[critic]),
        actor=None if actor is None else actor_of(trained, loaded[actor]),
        temperature=temperature,
        seed=seed,
    )


@dataclass
class SelfCorrection:
    """One conversation in the terminal."""

    trained: LoadedRun
    critic: Critic | None
    actor: Actor | None
    temperature: float
    seed: int
    _tasks: list[Task] = field(default_factory=list)
    """Tasks of the run's test set that `/task` has not shown yet, the next one last."""
    is_piped: bool = False
    """Whether lines come from a pipe, so that no question to the user is possible."""
    _given: str = ""
    """The answer behind the question in a line from a pipe."""
    _last: tuple[str, str] | None = None
    """The question and the answer that `/reference` grades."""

    def greet(self) -> None:
        who = " and ".join(speaker.policy.name for speaker in (self.critic, self.actor) if speaker is not None)
        out.print(f"[bold]{escape(who)}[/bold] of {escape(str(self.trained.folder))}", soft_wrap=True, highlight=False)
        if _is_typed():
            out.print("An empty line ends a text. /task: a problem; /help: more; Ctrl-D: leave.", style="dim")

    def go(self) -> None:
        """Run until the user leaves.

        Raises: EOFError, KeyboardInterrupt.
        """
        while True:
            out.print()
            if not self._take(_text("question")):
                return

    def go_through(self, lines: Iterable[str]) -> None:
        """Run lines of questions and commands. A tab separates a question from an answer to it. The user is asked
        nothing: the actor answers where there is no answer, and refines where it can.

        Args:
            lines: up to the end of the input, or to `/quit`. Empty ones are skipped.
        """
        self.is_piped = True
        for line in lines:
            question, _, self._given = line.rstrip("\r\n").partition("\t")
            if not question.strip():
                continue
            out.print()
            _show("question", question)
            if not self._take(question.strip()):
                return

    def _take(self, question: str) -> bool:
        """Run a question or a command. Returns: whether the conversation goes on."""
        command, _, rest = question.partition(" ")
        if command == "/quit":
            return False
        if command == "/reference":
            self._grade_last(rest.strip())
        elif command == "/task":
            task = self._next_task()
            _show("question", task.prompt)
            self._play(task.prompt, task)
        elif question.startswith("/"):
            if command != "/help":
                out.print(f"There is no command {command}.", style="yellow", markup=False, highlight=False)
            out.print(HELP, style="dim", highlight=False, markup=False)
        elif question and self._is_readable(question):
            self._play(question, None)
        return True

    def _is_readable(self, text: str) -> bool:
        """Whether the models have tokens for all of a text. If not, prints so."""
        from whet.models.prompts import measured

        for speaker in (self.critic, self.actor):
            if speaker is not None and (lost := measured([text], speaker.policy.tokenizer)[0][1]):
                text = f"The tokenizer of {speaker.policy.name} has no token for {lost}. /task shows what it can read."
                out.print(text, style="yellow", markup=False, highlight=False)
                return False
        return True

    def _play(self, question: str, task: Task | None) -> None:
        if self.critic is None:
            self._answer(question, task)
        else:
            self._criticise(self.critic, question, task)

    def _answer(self, question: str, task: Task | None) -> str:
        """Show and grade the actor's answer."""
        actor = self.actor
        assert actor is not None
        options = {"temperature": self.temperature, "seed": self.seed}
        answer = _thinking(actor.policy.name, lambda: actor.answer_segment(question, **options))  # type: ignore[arg-type]
        _show(f"answer by {actor.policy.name}", answer.text)
        self._graded(answer.text, task, answer.stop_reason)
        self._last = (question, answer.text)
        return answer.text

    def _criticise(self, critic: Critic, question: str, task: Task | None) -> None:
        answer = self._answer_given()
        if answer and not self._is_readable(answer):
            return
        if answer:
            if self.is_piped:
                _show("answer", answer)
            self._last = (question, answer)
            self._graded(answer, task)
        elif self.actor is not None:
            answer = self._answer(question, task)
        else:
            advice = "put one behind a tab in the question's line" if self.is_piped else "type yours"
            out.print(f"No model here writes answers; {advice}, and the critic judges it.", style="yellow")
            return
        sampling = {"temperature": self.temperature, "seed": self.seed}
        critique = _thinking(critic.policy.name, lambda: critic.critique(question, answer, **sampling))  # type: ignore[arg-type]
        _show(f"critique by {critic.policy.name}", critique.text)
        _show_verdict(critique)
        actor = self.actor
        if actor is None or actor.refining is None:
            return
        if not self.is_piped and not _yes(f"refine by {actor.policy.name}?"):
            return
        refined = _thinking(
            actor.policy.name,
            lambda: actor.refine_segment(question, answer, critique.text, **sampling),  # type: ignore[arg-type]
        )
        _show(f"refinement by {actor.policy.name}", refined.text)
        self._graded(refined.text, task, refined.stop_reason)
        self._last = (question, refined.text)

    def _answer_given(self) -> str:
        """The user's answer. Empty: the actor answers."""
        if self.is_piped:
            return self._given.strip()
        hint = f"(empty: {self.actor.policy.name} answers)" if self.actor else ""
        while (answer := _text("answer", hint=hint)).startswith("/"):
            out.print("An answer, or an empty line; commands are for the next question.", style="dim")
        return answer

    # --- references ---------------------------------------------------------------------------------------------------

    def _next_task(self) -> Task:
        from whet.run.data import load_tasks

        if not self._tasks:
            self._tasks = list(reversed(load_tasks(self.trained.config.data).tasks["test"]))
        return self._tasks.pop()

    def _grade_last(self, reference: str) -> None:
        from whet.types import Task

        if self._last is None or not reference:
            out.print("Ask something first; then /reference TEXT grades the answer to it.", style="yellow")
            return
        question, answer = self._last
        self._graded(answer, Task(id="chat", prompt=question, answer=reference))

    def _graded(self, answer: str, task: Task | None, stop_reason: StopReason = "eos") -> None:
        """Print whether an answer is right, where there is a reference."""
        if task is None or task.answer is None:
            return
        from whet.api.asking import graded

        grade = graded(self.trained.config, answer, task, stop_reason)
        if grade.score is None:
            out.print(f"  could not be graded: {escape(grade.reason)}", style="yellow", highlight=False)
            return
        style, label = ("green", "right") if grade.score == 1 else ("red", "wrong")
        part = "" if grade.score in (0, 1) else f", score {grade.score:.2f}"
        out.print(f"  [{style}]graded {label}[/{style}]{part} (reference: {escape(task.answer)})", highlight=False)


# --- reading and showing ----------------------------------------------------------------------------------------------


def _is_typed() -> bool:
    """Whether the input is a terminal, and no pipe or file."""
    return sys.stdin.isatty()


def _text(label: str, hint: str = "") -> str:
    """Read lines up to an empty one, or between fences. A command is one line.

    Raises: EOFError where there is no more input.
    """
    first = _line(f"{label}{' ' + hint if hint else ''}> ")
    if first.startswith("/") or not first.strip():
        return first.strip()
    fenced = first.startswith(FENCE)
    lines = [first.removeprefix(FENCE)] if first != FENCE else []
    while not (fenced and lines and lines[-1].rstrip().endswith(FENCE)):
        try:
            line = _line(f"{'...':>{len(label)}}> ")
        except EOFError:  # the text so far counts; the next question finds the end
            break
        if not fenced and not line.strip():
            break
        lines.append(line)
    return "\n".join(lines).rstrip().removesuffix(FENCE if fenced else "").strip("\n")


def _yes(question: str) -> bool:
    while (reply := _line(f"{question} (Enter: yes, n: no)> ").strip().lower()) not in ("", "y", "yes", "n", "no"):
        out.print("Enter or n; commands are for the next question.", style="dim")
    return reply not in ("n", "no")


def _line(prompt: str) -> str:
    """Read a typed line."""
    import readline  # noqa: F401 - gives input() its editing and history

    return input(prompt)


def _thinking(who: str, work: Callable[[], T]) -> T:
    with out.status(f"{who} is writing"):
        return work()


def _show(title: str, text: str) -> None:
    out.print(Text(title, style="bold cyan"))
    out.print(Padding(Text(text.strip("\n")), (0, 0, 0, 2), expand=False))


def _show_verdict(critique: Critique) -> None:
    if critique.verdict is None:
        out.print("  [yellow]no readable verdict[/yellow]", highlight=False)
        return
    style = "green" if critique.verdict == "correct" else "red"
    if critique.score is not None:
        out.print(f"  score [{style}]{critique.score:g}[/{style}] of 10", highlight=False)
        return
    sure = "" if critique.probability is None else f"   p(right) = {critique.probability:.3f}"
    out.print(f"  [bold {style}]verdict: {critique.verdict}[/bold {style}]{sure}", highlight=False)
