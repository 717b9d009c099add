"""BabyAI: instructions in a grid world."""
