"""The loop's phases: what one that failed in its first step does when it is resumed."""

from __future__ import annotations

import json

import pytest

from support.sessions import Silent
from whet.errors import TooManyFailures
from whet.run_folder.folder import RunFolder
from whet.trainer.checkpoint import newest_first
from whet.trainer.loop import Batch, Loop, Phase


def test_a_phase_that_failed_in_its_first_step_does_not_begin_again(tmp_path):
    begun = []

    def go(*, fails):
        def collect(step):
            if fails:
                raise TooManyFailures("too many")
            return Batch()

        folder = RunFolder(tmp_path)
        folder.acquire()
        loop = Loop({}, folder, 0, 0, Silent())
        if saved := newest_first(tmp_path):
            loop.resume(saved[0])
        phase = Phase(
            "train",
            2,
            collect,
            begin=lambda: begun.append("begin"),
            validate=lambda step: Batch(metrics={"acc": 0.5}),
            validate_every=10,
        )
        try:
            loop.run([phase])
        finally:
            folder.release()

    with pytest.raises(TooManyFailures):
        go(fails=True)
    go(fails=False)
    assert begun == ["begin"]
    rows = map(json.loads, (tmp_path / "metrics.jsonl").read_text().splitlines())
    assert [row["step"] for row in rows] == [0, 1, 2]
