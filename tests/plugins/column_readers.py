"""A plug-in whose graders read columns of the rows."""

from whet.kit import from_trl, from_verl, grader


@grader("by_level")
def by_level(completion, answer, level, info):
    """Half for a right answer of an easy row, and nothing where the columns are not those of the row."""
    assert info["level"] == level
    return float(answer in completion) / (1 if level == "hard" else 2)


@grader("by_question")
def by_question(completion, problem, target):
    return float(problem.startswith(completion) and target == "4")


def of_trl(prompts, completions, difficulty, tests, *, weight=None):
    assert len(prompts) == len(completions) == len(difficulty) == len(tests) == 1
    return [difficulty[0] * float(completions[0] == tests[0]["out"][0])]


def of_verl(data_source, solution_str, ground_truth, extra_info):
    """Pays for the answer, and says what came with it."""
    return {"score": float(solution_str == ground_truth), "pred": f"{data_source} {extra_info['index']}"}


grader("columns:trl")(from_trl(of_trl))
grader("columns:verl")(from_verl(of_verl))


@grader("columns:free")
def free(completion, prompt, level="none", colour="none", **rest):
    return float((level, colour, rest["answer"]) == ("hard", "none", "4"))


grader("columns:trl_free")(
    from_trl(lambda completions, colour="none", **columns: [float(columns["level"] == ["hard"])])
)
