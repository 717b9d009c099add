"""OpenEnv's own client at `whet env serve`: 1,000 actions in each environment, held against a record of this process.

    .venv/bin/python benchmarks/openenv_client.py record EPISODES.json         # with whet's interpreter
    .venv/bin/whet env serve --port 9180 &
    VENV/bin/python benchmarks/openenv_client.py play EPISODES.json http://127.0.0.1:9180     # with openenv installed

The second part needs nothing of whet, so that any version of `openenv` (0.10.0, 0.4.1) plays in a virtual environment
of its own.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import time
from pathlib import Path
from typing import Any

NUM_ACTIONS = 1000
NUM_ITEMS = {
    **dict.fromkeys(("textcraft", "babyai", "maze", "wordle"), 1000),
    **dict.fromkeys(("weather", "movie", "academia", "sheet", "todo", "sqlgym", "searchqa", "webshop"), 1000),
    **dict.fromkeys(("sciworld", "cookingworld", "twc"), 5),
}
"""Items that are played, over and over, by environment. Where Java plays, an item takes up to seconds."""


def record(path: Path) -> None:
    """The experts' episodes of training items, as this process answers them, until there are enough actions."""
    from whet.envs import ENVIRONMENTS

    episodes = []
    for name, num_items in NUM_ITEMS.items():
        info = ENVIRONMENTS.get(name)
        env: Any = info.make()
        num_actions, index, items = 0, 0, info.splits()["train"][:num_items]
        while num_actions < NUM_ACTIONS:
            turns, is_over = [["", env.reset(items[index % len(items)], seed=3)[0], None, False]], False
            moves = iter(info.expert(env, seed=3)) if info.expert is not None else iter(())
            while not is_over and num_actions < NUM_ACTIONS and (move := next(moves, None)) is not None:
                action = move[1]
                observation, reward, terminated, truncated, _ = env.step(action)
                is_over = terminated or truncated
                turns.append([action, observation, reward, is_over])
                num_actions += 1
            episodes.append({"env": name, "index": index % len(items), "turns": turns})
            index += 1
        env.close()
    path.write_text(json.dumps(episodes))
    print(f"{len(episodes)} episodes in {path}")


def play(path: Path, address: str) -> None:
    """Plays the same by OpenEnv's client, and counts the answers that differ."""
    from openenv.core import GenericEnvClient

    episodes = json.loads(path.read_text())
    print(f"openenv {importlib.metadata.version('openenv')}")
    num_wrong = 0
    for name in dict.fromkeys(episode["env"] for episode in episodes):
        begun, num_actions, wrong = time.perf_counter(), 0, 0
        with GenericEnvClient(base_url=f"{address}/openenv/{name}").sync() as client:
            for episode in episodes:
                if episode["env"] != name:
                    continue
                answer = client.reset(seed=3, split="train", index=episode["index"])
                for action, observation, reward, is_over in episode["turns"]:
                    if action:
                        answer = client.step({"text": action})
                        num_actions += 1
                    expected = (observation, reward, is_over)
                    wrong += (answer.observation["text"], answer.reward, answer.done) != expected
                if client.state()["step_count"] != len(episode["turns"]) - 1:
                    wrong += 1
        seconds = time.perf_counter() - begun
        print(f"{name}: {num_actions:,} actions, {wrong} answers differ, {num_actions / seconds:,.0f} actions/s")
        num_wrong += wrong
    raise SystemExit(num_wrong > 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=("record", "play"))
    parser.add_argument("episodes", type=Path)
    parser.add_argument("address", nargs="?", default="http://127.0.0.1:9180")
    options = parser.parse_args()
    if options.what == "record":
        record(options.episodes)
    else:
        play(options.episodes, options.address)


if __name__ == "__main__":
    main()
