"""SciWorld: experiments of elementary science, simulated by the package scienceworld."""
