from __future__ import annotations

import pytest
import torch

from tests.learning.data_files import parity_rows, source
from transductor.learning.divided_data import divided
from transductor.learning.recipes import RECIPES, chosen_recipes
from transductor.learning.running import FitPlan, planned, read_model, run_recipe, shared_steps


def silent(*_):
    pass


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return divided(source(tmp_path_factory.mktemp("data"), parity_rows(100, longest=6)))


def test_times_are_shared_and_what_one_leaves_goes_to_the_others():
    costs = {"quick": 0.001, "slow": 0.1, "slower": 0.2}
    most = dict.fromkeys(costs, 1000)
    steps = shared_steps(costs, most, 41.0)
    assert steps == {"quick": 1000, "slow": 200, "slower": 100}
    assert shared_steps({"slow": 10.0}, {"slow": 1500}, 1.0) == {"slow": 20}, "some steps are always done"
    assert shared_steps({}, {}, 5.0) == {}


def test_a_recipe_that_was_interrupted_ends_where_it_would_have_ended(tmp_path, data):
    recipe, steps = RECIPES["dense"], 120

    class Killed(Exception):
        pass

    def kill(_, step, *__):
        if step == 70:
            raise Killed

    whole = run_recipe(recipe, data, steps, 0, tmp_path / "whole", silent)
    with pytest.raises(Killed):
        run_recipe(recipe, data, steps, 0, tmp_path / "killed", kill)
    assert (tmp_path / "killed" / "state" / "training.json").exists()
    seen = []
    resumed = run_recipe(recipe, data, steps, 0, tmp_path / "killed", lambda _, step, *__: seen.append(step))
    assert seen[0] == 51, "it goes on from the state that was written after 50 steps"
    assert resumed["bands"] == whole["bands"]
    assert resumed["curve"] == whole["curve"]
    models = [read_model(tmp_path / name) for name in ("whole", "killed")]
    for one, other in zip(*(model.state_dict().values() for model in models), strict=True):
        assert torch.equal(one, other)
    assert not (tmp_path / "killed" / "state").exists()


def test_what_is_recorded_is_not_repeated(tmp_path, data):
    recipe = RECIPES["orthogonal"]
    first = run_recipe(recipe, data, 5, 0, tmp_path, silent)
    seen = []
    assert run_recipe(recipe, data, 5, 0, tmp_path, lambda *each: seen.append(each)) == first
    assert seen == [("orthogonal", 5, 5, "trained before")]


def test_a_state_that_cannot_be_read_is_begun_again(tmp_path, data):
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "training.json").write_text("{")
    outcome = run_recipe(RECIPES["dense"], data, 3, 0, tmp_path, silent)
    assert outcome["failed"] is None


def test_a_plan_round_trips_and_leaves_out_attention_where_sequences_are_too_long(tmp_path):
    rows = parity_rows(30, longest=4) + [{"tokens": ["a"] * n, "label": "even"} for n in (4200, 4300, 4400, 4500)]
    long = divided(source(tmp_path, rows))
    plan = planned(long, [RECIPES["attention"]], budget=1.0, seconds=0.1, seed=0, on_progress=silent)
    assert plan.steps == {}
    assert "too long for attention" in plan.left_out["attention"]
    plan.write(tmp_path)
    assert FitPlan.read(tmp_path) == plan
    assert FitPlan.read(tmp_path / "nowhere") is None


def test_recipes_are_chosen_by_name():
    assert [recipe.name for recipe in chosen_recipes(["lstm", "dense"])] == ["dense", "lstm"]
    assert len(chosen_recipes(None)) == len(RECIPES)
    assert chosen_recipes([]) == ()
    with pytest.raises(ValueError, match=r"recipes must be one of .*dense.*; got 'gru'"):
        chosen_recipes(["gru"])


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_takes_a_step(tmp_path, data, name):
    outcome = run_recipe(RECIPES[name], data, 1, 0, tmp_path, silent)
    assert outcome["failed"] is None
    assert outcome["parameters"] > 0
    assert [each["count"] for each in outcome["bands"]] == [len(data.validation.examples), len(data.longer.examples)]
