"""An agent that acts in environments and learns nothing: what `whet eval agent` measures, a model or an endpoint."""

from __future__ import annotations

from collections.abc import Iterator

from whet.methods.agent.agent_config import AgentConfig
from whet.methods.agent.base import AgentAlgorithm, agent_spec
from whet.trainer.loop import Phase


class Agent(AgentAlgorithm[AgentConfig]):
    """acts in environments, and is measured; nothing is trained"""

    spec = agent_spec(AgentConfig)

    def phases(self) -> Iterator[Phase]:
        yield self.evaluator.before()
