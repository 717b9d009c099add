"""Questions in words, answered by one SQL query over a SQLite database (BIRD; AgentGym's sqlgym)."""
