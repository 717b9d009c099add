"""Train the language models that make other language models better: critics, actors, agents.

    import whet

    run = whet.train("grpo", out="runs/first", num_steps=20)
    print(run)

A file of your own registers what is yours with `whet.grader`, `whet.reward`, `whet.advantage`, `whet.loss`,
`whet.prompts`, `whet.env`, `whet.benchmark`, `whet.strategy`, `whet.callback`, `whet.method` or `whet.preset`, and is
named in the settings: `plugins=["mine.py"]`.

Importing this loads nothing more: what a name needs is loaded when the name is first used, torch too.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # for type checkers and editors; `_PLACES` says the same to Python
    from whet.api.actor import Actor, load_actor
    from whet.api.commands import evaluate, scale, train
    from whet.api.comparison import compare
    from whet.api.critic import Critic, Critique, load_critic
    from whet.api.export import export
    from whet.api.hub_push import push_to_hub
    from whet.api.run import Run
    from whet.callbacks import CALLBACKS, callback
    from whet.config.advantages import ADVANTAGES
    from whet.config.losses import LOSSES
    from whet.credit.advantages import advantage
    from whet.envs import ENVIRONMENTS
    from whet.envs.adapters import from_gymnasium, from_reasoning_gym
    from whet.envs.plugin import env
    from whet.envs.verifiers_tasks import from_verifiers
    from whet.errors import WhetError
    from whet.evaluation.inference_scaling import Strategy, strategy
    from whet.evaluation.strategies import STRATEGIES
    from whet.evaluation.user_benchmarks import BENCHMARKS, benchmark
    from whet.grading import GRADERS, from_trl, from_verl, grader
    from whet.methods import METHODS
    from whet.methods.base import method
    from whet.methods.user_presets import preset
    from whet.rewards import REWARDS, reward
    from whet.tasks.prompts import PROMPTS, Prompts, prompts
    from whet.trainer.user_losses import loss
    from whet.types import Episode, Grade, Row, Segment, Task

    __version__: str

__all__ = [
    "ADVANTAGES",
    "BENCHMARKS",
    "CALLBACKS",
    "ENVIRONMENTS",
    "GRADERS",
    "LOSSES",
    "METHODS",
    "PROMPTS",
    "REWARDS",
    "STRATEGIES",
    "Actor",
    "Critic",
    "Critique",
    "Episode",
    "Grade",
    "Prompts",
    "Row",
    "Run",
    "Segment",
    "Strategy",
    "Task",
    "WhetError",
    "advantage",
    "benchmark",
    "callback",
    "compare",
    "env",
    "evaluate",
    "export",
    "from_gymnasium",
    "from_reasoning_gym",
    "from_trl",
    "from_verifiers",
    "from_verl",
    "grader",
    "load_actor",
    "load_critic",
    "loss",
    "method",
    "preset",
    "prompts",
    "push_to_hub",
    "reward",
    "scale",
    "strategy",
    "train",
]

_PLACES = {
    "whet.api.actor": ("Actor", "load_actor"),
    "whet.api.commands": ("evaluate", "scale", "train"),
    "whet.api.comparison": ("compare",),
    "whet.api.critic": ("Critic", "Critique", "load_critic"),
    "whet.api.export": ("export",),
    "whet.api.hub_push": ("push_to_hub",),
    "whet.api.run": ("Run",),
    "whet.callbacks": ("CALLBACKS", "callback"),
    "whet.config.losses": ("LOSSES",),
    "whet.rewards": ("REWARDS", "reward"),
    "whet.config.advantages": ("ADVANTAGES",),
    "whet.credit.advantages": ("advantage",),
    "whet.envs": ("ENVIRONMENTS",),
    "whet.envs.adapters": ("from_gymnasium", "from_reasoning_gym"),
    "whet.envs.verifiers_tasks": ("from_verifiers",),
    "whet.envs.plugin": ("env",),
    "whet.errors": ("WhetError",),
    "whet.evaluation.user_benchmarks": ("BENCHMARKS", "benchmark"),
    "whet.grading": ("GRADERS", "from_trl", "from_verl", "grader"),
    "whet.methods": ("METHODS",),
    "whet.methods.user_presets": ("preset",),
    "whet.methods.base": ("method",),
    "whet.evaluation.inference_scaling": ("Strategy", "strategy"),
    "whet.evaluation.strategies": ("STRATEGIES",),
    "whet.tasks.prompts": ("PROMPTS", "Prompts", "prompts"),
    "whet.trainer.user_losses": ("loss",),
    "whet.types": ("Episode", "Grade", "Row", "Segment", "Task"),
}
_MODULE_OF = {name: module for module, names in _PLACES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from whet.distribution import version

        return version()
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'whet' has no attribute {name!r}")
    found = getattr(import_module(_MODULE_OF[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULE_OF, "__version__"})
