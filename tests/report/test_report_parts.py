"""Success in parts, under the table of agents."""

from whet.report.parts import success_parts

ROW = {
    "success": 0.5, "success[maze]": 0.25, "success_low[maze]": 0.07, "success_high[maze]": 0.591, "n[maze]": 8.0,
    **{f"success@{turn}": turn / 16 for turn in range(1, 9)},
}  # fmt: skip


def test_a_line_a_part_and_a_line_a_limit_of_turns():
    other = {
        "success[maze, far]": 1.0,
        "success_low[maze, far]": 0.2,
        "success_high[maze, far]": 1.0,
        "success@1": 0.125,
    }
    assert success_parts([ROW, other | {"n[maze, far]": 1.0}]) == [
        ("maze (8)", ["25 (7–59)", "–"]),
        ("maze, far (1)", ["–", "100 (20–100)"]),
        ("within 1 turn", ["6.2", "12.5"]),
        ("within 2 turns", ["12.5", "–"]),
        ("within 3 turns", ["18.8", "–"]),
        ("within 5 turns", ["31.2", "–"]),
        ("within 8 turns", ["50.0", "–"]),
    ]


def test_what_has_no_parts_has_no_lines_and_what_is_no_number_is_a_dash():
    assert success_parts([{"acc": 0.5}, {}]) == []
    assert success_parts([]) == []
    assert success_parts([{"success[a]": "high", "n[a]": None, "success@x": 1.0}]) == [("a (0)", ["–"])]
