"""Questions whose answers have to be searched for in documents (AgentGym-RL's SearchQA)."""
