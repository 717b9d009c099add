"""`whet eval` and `whet report`: what a run came to."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.markup import escape

from whet.cli.agenteval import NAME as AGENTEVAL
from whet.cli.agenteval import policy_and_settings, refuse_unread, show_agenteval
from whet.cli.app import app
from whet.cli.as_published import as_published, check_published
from whet.cli.console import SettingsArgument, SettingsCommand, file_and_settings, guarded, out, progress_bar, usage
from whet.cli.own_files import PluginsCommand, PluginsOption, load_own, with_plugins
from whet.cli.parts import print_parts

if TYPE_CHECKING:
    from whet.config.runs import RunConfig
    from whet.methods.evaluator import EvalSettings


MAX_REASONS = 10
"""Reasons why replies have no score, as many as are shown."""


@app.command(name="eval", cls=SettingsCommand)
def evaluate(
    ctx: typer.Context,
    target: Annotated[
        str, typer.Argument(metavar="DIR|METHOD", help="A run folder; or a method, whose settings name the models.")
    ] = "",
    settings: SettingsArgument = None,
    critic: Annotated[
        list[str] | None,
        typer.Option(
            "--critic",
            help="critic_sft, critic_stage1, critic_stage2, or as their rows are called: sft_critic, stage1, stage2; "
            "self (the actor as its own critic), no_critic (plain answers); oracle, where there are references; in "
            "the tiny world also judge, alarmist, empty, false; with --strategy also always_correct, always_wrong, "
            "random. Of a run of one policy: best, last; of an agent: after, last. May be repeated. Default: all of "
            "the run's.",
        ),
    ] = None,
    split: Annotated[Literal["train", "validation", "test"], typer.Option(help="Whose problems.")] = "test",
    samples: Annotated[
        int, typer.Option(min=1, max=10_000, help="Sampled chains a problem, with majority votes. 1: one greedy chain.")
    ] = 1,
    refinements: Annotated[
        int, typer.Option(min=1, max=10_000, help="Sampled refinements after each greedy critique, with pass@k.")
    ] = 1,
    temperature: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            help="With --samples or --refinements above 1. Default: 0.7 for critics; for a policy alone the run's own.",
        ),
    ] = None,
    rounds: Annotated[int | None, typer.Option(min=1, max=1000, help="Rounds of critique and refinement.")] = None,
    policy: Annotated[
        str, typer.Option(help="An agent to measure: a model's folder, or the URL of an endpoint (with --model).")
    ] = "",
    model: Annotated[str, typer.Option(help="Of the endpoint, the model's name.")] = "",
    env: Annotated[
        str,
        typer.Option(
            help="The environments that it acts in, separated by commas; NAME=URL for one on a server; or agenteval, "
            "all of AgentGym's that can run here."
        ),
    ] = "",
    items: Annotated[
        int | None,
        typer.Option(min=1, help="With --env agenteval: items of each environment. Default: the published counts."),
    ] = None,
    to: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="With --env agenteval: its folder. Default: runs/agenteval."),
    ] = None,
    published: Annotated[
        str,
        typer.Option(
            "--as-published",
            metavar="NAME",
            help="Measure an agent in an environment as its paper does: temperature, turns and action format. "
            "textcraft, babyai, maze, wordle, sciworld: AgentGym's; agentgym_rl_textcraft, ...: AgentGym-RL's. "
            "Settings of your own hold, and are named.",
        ),
    ] = "",
    benchmark: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="What is asked and measured; DIR is then a run or any model. Settings: file=FILE, limit=N, "
            "policy=NAME, prompts=NAME. `whet list benchmarks` says what there is.",
        ),
    ] = "",
    oracle_verifier: Annotated[
        bool, typer.Option("--oracle-verifier", help="Keep answers that the verifier finds right.")
    ] = False,
    strategy: Annotated[
        str,
        typer.Option(
            metavar="NAME[,NAME...]",
            help="How a budget of tokens is spent at test time: majority, parallel, critic_weighted:by=probability, "
            "..., or all. `whet list strategies` says what they are.",
        ),
    ] = "",
    budget: Annotated[
        str,
        typer.Option(
            metavar="N[,N...]",
            help="With --strategy: generated tokens a question. Default: 1, 2, 4, 8 and 16 times what an answer may "
            "have.",
        ),
    ] = "",
    level_samples: Annotated[
        int, typer.Option(min=0, max=10_000, help="With --strategy: answers that say how hard a question is. 0: none.")
    ] = 8,
    text_votes: Annotated[
        bool, typer.Option("--text-votes", help="With --strategy: count equal texts, not what the grader finds equal.")
    ] = False,
    plugins: PluginsOption = None,
) -> None:
    """Measure critics (answer, critique, refine, and what came of it), or a policy that answers alone.

    A run's measurements, with the texts behind them, are kept in DIR/eval.

    Examples: whet eval runs/first --samples 8;  whet eval runs/first --critic oracle;
    whet eval runs/first --strategy majority,parallel,critic_filtered --budget 100,200,400;
    whet eval runs/first data.test_path=other.jsonl;
    whet eval critique_rl data.kind=file data.test_path=test.jsonl prompts=english actor.path=A critic.path=B;
    whet eval --policy models/mine --env textcraft,maze;
    whet eval --policy models/mine --as-published textcraft rules=FILE;
    whet eval --policy models/mine --env agenteval --out runs/mine_agenteval;
    whet eval runs/first --benchmark first_error file=labelled.json
    """

    def work() -> None:
        from whet.methods.evaluator import EvalSettings

        own_settings = with_plugins(settings, plugins)
        given = given_options(ctx)
        _refuse_empty(given)
        refuse_unread(env, given)
        if env == AGENTEVAL:
            agent_place, more = policy_and_settings(target, policy, own_settings)
            agent = agent_settings(agent_place, model, "")
            show_agenteval(agent, more, items=items, temperature=temperature, to=to)
            return
        if benchmark:
            if not target:
                raise usage("say what to measure: a run's folder, or a model's")
            unread = [option for option in given if option not in ("--benchmark", "--plugins")]
            _measure_by(benchmark, target, own_settings, unread)
            return
        protocol = None
        if published:
            protocol = as_published(published, own_settings, env=env, temperature=temperature)
            own_settings = [*own_settings, *protocol.settings]
        rounds_settings = [f"evaluation.num_rounds={rounds}"] if rounds is not None else []
        rounds_settings += ["evaluation.oracle_verifier=true"] if oracle_verifier else []
        of_agent = agent_settings(policy, model, protocol.env if protocol is not None and policy else env)
        config, run = _config_and_run(target, of_agent, own_settings, rounds_settings, is_agent=bool(policy or env))
        changed = tuple(own_settings) if run is not None else ()
        if protocol is None:
            _refuse_unused(given, has_strategy=bool(strategy), samples=max(samples, refinements))
        else:
            check_published(published, protocol, config, given, samples=samples)
            out.print(escape(protocol.sentence), highlight=False, soft_wrap=True)
        if strategy:
            if samples > 1 or refinements > 1 or rounds_settings:
                raise usage("a budget says how many samples and rounds there are: leave --samples and the like out")
            asked = {"names": tuple(critic or ()), "split": split, "temperature": temperature, "changed": changed}
            _scale(config, run, strategy, budget, asked | {"level_samples": level_samples, "by_text": text_votes})
            return
        at = temperature if protocol is None else protocol.temperature
        wanted = EvalSettings(tuple(critic or ()), split, samples, at, refinements, changed)
        _measure(config, run, wanted, several=samples > 1 or bool(rounds_settings))

    guarded(work, None)


@app.command(cls=PluginsCommand)
def report(
    folders: Annotated[
        list[Path], typer.Argument(metavar="DIR ...", help="A run folder, finished or not, or several.")
    ],
    to: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Of several runs: the page. Default: comparison.html.")
    ] = None,
    plugins: PluginsOption = None,
) -> None:
    """Write DIR/report.html: one file that opens from disk, with curves and texts to look at.

    Of several runs, write a page that compares them, as `whet compare` does.
    """

    def work() -> None:
        from whet.report.comparison import compare_runs
        from whet.report.comparison_page import write_comparison
        from whet.report.page import write_report

        load_own(plugins)
        if len(folders) == 1 and to is not None:
            raise usage("--out is of several runs: the page of one is DIR/report.html")
        page = (
            write_report(folders[0])
            if len(folders) == 1
            else write_comparison(compare_runs(folders), to or Path("comparison.html"))
        )
        out.print(f"open {escape(str(page))}", soft_wrap=True, highlight=False)

    guarded(work, None)


def _refuse_empty(given: Mapping[str, Any]) -> None:
    """Refuses options without a value that can be used.

    Args:
        given: as `given_options` returns them.
    """
    if given.get("--temperature") == float("inf"):
        raise usage("--temperature is infinite: give a number, such as 0.7")
    for option in ("--benchmark", "--strategy", "--budget", "--policy", "--env", "--as-published"):
        if option in given and not given[option]:
            raise usage(f"{option} is empty: give it a value, or leave it out")


def _refuse_unused(given: Mapping[str, Any], *, has_strategy: bool, samples: int) -> None:
    """Refuses options that would change nothing.

    Args:
        given: as `given_options` returns them.
        samples: the most samples of one answer, critique or episode. 1: what is measured is greedy.
    """
    if has_strategy:
        return
    of_strategies = [name for name in ("--budget", "--level-samples", "--text-votes") if name in given]
    if of_strategies:
        verb = "is" if len(of_strategies) == 1 else "are"
        raise usage(
            f"{' and '.join(of_strategies)} {verb} of strategies: say which, such as --strategy majority,parallel"
        )
    if "--temperature" in given and samples == 1:
        raise usage("--temperature is of samples: ask for some, such as --samples 8, or leave it out")


def _config_and_run(
    target: str, of_agent: list[str], settings: list[str], rounds: list[str], *, is_agent: bool
) -> tuple[RunConfig, Path | None]:
    """The settings to measure with, and the run's folder if the target is a run.

    Args:
        of_agent: settings of `--policy`, `--model` and `--env`.
        settings: from the command line.
        rounds: settings of `--rounds` and `--oracle-verifier`, which methods with a critic have.
    """
    from whet.run.evaluate import target_of

    more = [target] if is_agent and target else []  # the first setting stands where a run's folder would
    file, overrides = file_and_settings([*of_agent, *more, *settings])
    if is_agent:
        target = "agent"
    if not target:
        raise usage("say what to measure: a run's folder, a method, or an agent with --policy and --env")
    config, run = target_of(target, file, overrides)
    if not rounds:
        return config, run
    if not hasattr(getattr(config, "evaluation", None), "num_rounds"):
        raise usage(
            "--rounds and --oracle-verifier are of critics; this is a policy that answers alone: leave them out"
        )
    return target_of(target, file, [*overrides, *rounds])


def _measure(config: RunConfig, run: Path | None, wanted: EvalSettings, *, several: bool) -> None:
    """Measure and show it.

    Args:
        several: whether there is more than one sample or round.
    """
    from whet.report.table import summary_tables
    from whet.run.evaluate import beside_training
    from whet.run.evaluate import evaluate as measure

    with closing(progress_bar()) as progress:
        found, session = measure(config, run, wanted, progress)
    report_spec = session.algorithm.spec.report_of(session.algorithm.config)
    for table in summary_tables({"rows": found}, report_spec, several=several, width=out.width):
        out.print(table)
    _print_samples(found)
    print_parts(found)
    if run is not None:
        problems = f"{report_spec.problem}s"
        out.print(escape(beside_training(run, config, problems, wanted)), highlight=False)
        out.print(f"kept in {escape(str(run / 'eval'))}", soft_wrap=True, highlight=False)


def given_options(ctx: typer.Context) -> dict[str, Any]:
    """The options on the command line, such as `--budget`, with their values."""
    return {
        param.opts[0]: ctx.params[param.name]
        for param in ctx.command.params
        if param.name is not None
        and param.opts[0].startswith("-")
        and (source := ctx.get_parameter_source(param.name)) is not None
        and source.name == "COMMANDLINE"
    }


def _measure_by(benchmark: str, target: str, settings: list[str], options: list[str]) -> None:
    """Measure by a benchmark and show it.

    Args:
        options: given ones that no benchmark reads.
    """
    from rich.table import Table

    from whet.api.benchmarks import measure, settings_of

    measurement = measure(target, settings_of(benchmark, *file_and_settings(settings), options=options))
    table = Table.grid(padding=(0, 3))
    for name, value in measurement.metrics.items():
        table.add_row(f"  [bold]{escape(name)}[/bold]", "-" if value is None else f"{value:.4g}")
    out.print(f"{escape(benchmark)}, {escape(measurement.policy)} of {escape(target)}", highlight=False, soft_wrap=True)
    out.print(table)
    failures = sorted(measurement.failures.items(), key=lambda failure: -failure[1])
    for reason, count in failures[:MAX_REASONS]:
        out.print(f"{count} without a score: {escape(reason)}", highlight=False, soft_wrap=True)
    if rest := failures[MAX_REASONS:]:
        out.print(f"{sum(count for _, count in rest)} more without a score, for {len(rest)} other reasons")
    for file, sha256 in measurement.digests.items():
        out.print(f"read {escape(file)} (sha256 {sha256[:12]})", highlight=False, soft_wrap=True)
    if measurement.kept is not None:
        out.print(f"kept in {escape(str(measurement.kept))}", soft_wrap=True, highlight=False)


def _scale(config: RunConfig, run: Path | None, strategy: str, budget: str, more: Mapping[str, Any]) -> None:
    """Measure strategies and show what they come to."""
    from whet.evaluation.inference_scaling import strategies_of
    from whet.report.inference_scaling import level_table, scaling_table
    from whet.run.inference_scaling import ScaleSettings, budgets_of, scale

    asked = ScaleSettings(strategies_of(strategy), budgets_of(budget), **more)
    with closing(progress_bar()) as progress:
        found = scale(config, run, asked, progress)
    for record in found.values():
        out.print(scaling_table(record))
        if levels := level_table(record):
            out.print(levels)
    if run is not None:
        kept = f"kept in {escape(str(run / 'eval'))}; `whet report {escape(shlex.quote(str(run)))}` draws the curves"
        out.print(kept, soft_wrap=True, highlight=False)


def agent_settings(policy: str, model: str, env: str) -> list[str]:
    """The settings that the options for agents stand for."""
    found = [f"data.env={_environments(env)}"] if env else []
    if model and not policy.startswith(("http://", "https://")):
        raise usage("--model is of an endpoint: give its URL as --policy, or leave --model out")
    if policy.startswith(("http://", "https://")):
        if not model:
            raise usage("an endpoint serves models by name: give --model too")
        return [*found, "policy.kind=endpoint", f"policy.url={policy}", f"policy.model={model}"]
    return [*found, f"policy.path={policy}"] if policy else found


def _environments(env: str) -> str:
    """The setting that names environments, those on servers by their addresses."""
    parts = [part.strip().partition("=") for part in env.split(",")]
    if not any(mark for _, mark, _ in parts):
        return f"[{env}]"
    return json.dumps({name: {"url": url} if mark else 1.0 for name, mark, url in parts})


def _print_samples(found: Mapping[str, Mapping[str, float | None]]) -> None:
    """What sampled chains, refinements and episodes came to; the table's own numbers are of all samples alike."""
    kinds = {"majority": "majority", "pass": "at least one", "average": "mean"}
    for critic, metrics in found.items():
        lines = {
            what: {title: metrics.get(f"{kind}_{key}") for kind, title in kinds.items()}
            for key, what in (("answer", "sampled answers"), ("refine", "sampled refinements"))
        }
        counted = "episodes, sampled" if "success" in metrics else "refinements of one critique, sampled"
        lines[counted] = {n: metrics[n] for n in metrics if n.startswith("pass@")}
        for what, values in lines.items():
            shown = [f"{title} {100 * value:.1f} %" for title, value in values.items() if value is not None]
            if shown:
                out.print(f"{critic}, {what}: {', '.join(shown)}", highlight=False, soft_wrap=True)
