"""The settings of an agent that is measured and not trained."""

from __future__ import annotations

from typing import Annotated, Literal

from whet.config.acts import Inside, NoEffect
from whet.config.environments import AgentEvaluation, AgentRunConfig


class AgentConfig(AgentRunConfig):
    """An agent that is measured and not trained."""

    method: Literal["agent"] = "agent"
    evaluation: Annotated[
        AgentEvaluation, Inside("validation_samples", NoEffect("nothing is trained, so no weights are chosen"))
    ] = AgentEvaluation()
