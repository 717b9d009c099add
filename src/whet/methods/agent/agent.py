"""An agent that acts in environments and learns nothing: what `whet eval agent` measures, a model or an endpoint."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from whet.config.acts import Inside, NoEffect
from whet.config.environments import AgentEvaluation, AgentRunConfig
from whet.methods.agent.base import AgentAlgorithm, agent_spec
from whet.trainer.loop import Phase


class AgentConfig(AgentRunConfig):
    """An agent that is measured and not trained."""

    method: Literal["agent"] = "agent"
    evaluation: Annotated[
        AgentEvaluation, Inside("validation_samples", NoEffect("nothing is trained, so no weights are chosen"))
    ] = AgentEvaluation()


class Agent(AgentAlgorithm[AgentConfig]):
    """acts in environments, and is measured; nothing is trained"""

    spec = agent_spec(AgentConfig)

    def phases(self) -> Iterator[Phase]:
        yield self.evaluator.before()
