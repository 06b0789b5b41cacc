"""Steps in cells of their own: the first time they go on from one another, and any can be taken again."""

from __future__ import annotations

import pytest

from labs.desk.bench import Story


class Told:
    """A story whose state is a list of the steps taken since it began."""

    def __init__(self):
        self.begun = 0
        self.story = Story(self._begin)

    def _begin(self) -> list[str]:
        self.begun += 1
        return []

    def take(self, name: str, says: str = "") -> list[str]:
        def step(state: list[str]) -> None:
            state.append(says or name)
            print(says or name)

        step.__name__ = name
        self.story(step)
        return self.story.given


def test_steps_go_on_from_one_another():
    told = Told()
    told.take("one"), told.take("two")
    assert told.take("three") == ["one", "two", "three"]
    assert told.begun == 1


def test_step_that_is_taken_again_finds_what_the_steps_before_it_leave(capsys):
    told = Told()
    told.take("one"), told.take("two"), told.take("three")
    capsys.readouterr()
    assert told.take("two") == ["one", "two"]
    assert capsys.readouterr().out == "two\n", "what earlier steps print belongs to their cells"
    assert told.take("three") == ["one", "two", "three"]
    assert told.begun == 2


def test_step_out_of_order_has_those_before_it_taken_first():
    told = Told()
    told.take("one"), told.take("two"), told.take("three")
    told.take("one")
    assert told.take("three") == ["one", "two", "three"]


def test_edited_step_replaces_the_old_one():
    told = Told()
    told.take("one"), told.take("two")
    told.take("one", says="other")
    assert told.take("two") == ["other", "two"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_after_a_step_that_was_cut_short_the_story_begins_anew(error):
    told = Told()
    told.take("one")

    def two(state: list[str]) -> None:
        state.append("half")
        raise error

    with pytest.raises(error):
        told.story(two)
    assert told.take("two") == ["one", "two"]
