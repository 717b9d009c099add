"""AgentGym's five tool environments: weather, movie, academia, sheet and todo. Their services are in memory."""
