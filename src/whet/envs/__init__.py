"""Environments that an agent acts in. Each module is loaded when its name is first asked for, not with this one."""

from whet.envs.protocol import EnvError, Environment, EnvironmentInfo
from whet.envs.registry import ENVIRONMENTS

__all__ = ["ENVIRONMENTS", "EnvError", "Environment", "EnvironmentInfo"]

for _name, _place, _says in (
    ("textcraft", "textcraft.environment:TEXTCRAFT", "craft a Minecraft item from recipes (ADaPT; AgentGym)"),
    (
        "babyai",
        "babyai.environment:BABYAI",
        "instructions in a grid world, by macro-actions (minigrid; AgentGym)",
    ),
    ("maze", "maze:MAZE", "walk to the goal of a double-T maze (LMRL-Gym; AgentGym)"),
    ("wordle", "wordle:WORDLE", "guess a word of five letters in six tries (LMRL-Gym; AgentGym)"),
    (
        "sciworld",
        "sciworld.environment:SCIWORLD",
        "experiments of elementary science (scienceworld; AgentGym)",
    ),
    ("webshop", "webshop.environment:WEBSHOP", "buy the product that an instruction asks for (WebShop; AgentGym)"),
    ("alfworld", "household.alfworld:ALFWORLD", "household goals in text, with your games (ALFWorld; AgentGym)"),
    ("cookingworld", "household.environment:COOKINGWORLD", "cook a recipe in a house (TextWorldExpress)"),
    ("twc", "household.environment:TWC", "put things where they belong in a house (TextWorldExpress)"),
    ("weather", "tools.weather_goals:WEATHER", "questions about the weather, by 19 tools (AgentGym)"),
    ("movie", "tools.movie_goals:MOVIE", "questions about films and people, by 16 tools (AgentGym)"),
    ("academia", "tools.academia_goals:ACADEMIA", "questions about papers and authors, by 9 tools (AgentGym)"),
    ("sheet", "tools.sheet_goals:SHEET", "changes to tables, by 20 tools (AgentGym)"),
    ("todo", "tools.todo_goals:TODO", "questions and changes in a to-do list, by 12 tools (AgentGym)"),
    ("sqlgym", "sql.environment:SQLGYM", "answer a question by one SQL query over SQLite (BIRD; AgentGym)"),
    ("searchqa", "searchqa.environment:SEARCHQA", "search documents, hop by hop, and answer (AgentGym-RL)"),
):
    ENVIRONMENTS.late(_name, f"{__name__}.{_place}", says=_says)
