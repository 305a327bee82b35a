"""When files are merged, and how a copy catches up: decisions without files."""

from __future__ import annotations

import random

import pytest

from penstock.state.layers import (
    FAN_IN,
    SNAPSHOT,
    Layer,
    catch_up,
    is_snapshot_due,
    layers_to_merge,
)

MB = 1 << 20


def merged(layers: tuple[Layer, ...], group: tuple[Layer, ...]) -> tuple[Layer, ...]:
    """Do as a partition does with a group of its layers."""
    if not group:
        return layers
    rank = max(layer.rank for layer in group) + 1
    size = sum(layer.size for layer in group)
    pack = Layer(f"{group[-1].name}p", group[-1].until_ms, rank, size)
    return (*layers[: -len(group)], pack)


def grown(batches: int, size: int = 1000) -> tuple[Layer, ...]:
    layers: tuple[Layer, ...] = ()
    for time_ms in range(1, batches + 1):
        layers = (*layers, Layer(str(time_ms), time_ms, 0, size))
        layers = merged(layers, layers_to_merge(layers))
    return layers


def test_layers_grow_with_the_logarithm_of_batches() -> None:
    assert [len(grown(FAN_IN - 1)), len(grown(FAN_IN))] == [FAN_IN - 1, 1]
    assert max(len(grown(batches)) for batches in range(1, 600)) <= 3 * (FAN_IN - 1)
    assert [layer.rank for layer in grown(FAN_IN**3)] == [3]


def test_each_layer_holds_its_own_batches_in_order() -> None:
    ranks = [layer.rank for layer in grown(FAN_IN**2 + 2 * FAN_IN + 3)]
    assert ranks == [2, 1, 1, 0, 0, 0]


def test_large_layers_are_not_merged_in_memory() -> None:
    assert len(grown(40, size=8 * MB)) == 40


@pytest.mark.parametrize(
    ("snapshot", "changes", "due"),
    [
        (0, MB, False),
        (0, MB + 1, True),
        (10 * MB, 10 * MB, False),
        (10 * MB, 10 * MB + 1, True),
    ],
)
def test_a_snapshot_is_due_when_changes_outweigh_the_last(
    snapshot: int, changes: int, due: bool
) -> None:
    layers = [Layer("d", 2, 0, changes - 5), Layer("e", 3, 0, 5)]
    if snapshot:
        layers.insert(0, Layer("s", 1, SNAPSHOT, snapshot))
    assert is_snapshot_due(layers) is due


@pytest.mark.parametrize(
    ("have_ms", "afresh", "names"),
    [
        (None, True, "spde"),
        (5, True, "spde"),
        (10, False, "pde"),
        (15, False, "pde"),  # within the pack: all of it
        (20, False, "de"),
        (30, False, "e"),
        (40, False, ""),
    ],
)
def test_catching_up(have_ms: int | None, afresh: bool, names: str) -> None:
    layers = [
        Layer("s", 10, SNAPSHOT, 1),
        Layer("p", 20, 1, 1),
        Layer("d", 30, 0, 1),
        Layer("e", 40, 0, 1),
    ]
    plan = catch_up(have_ms, layers)
    assert (plan.afresh, "".join(layer.name for layer in plan.apply)) == (afresh, names)


def test_catching_up_from_anywhere_ends_in_the_same_state() -> None:
    chance = random.Random(4)
    history: list[dict[int, int]] = [{}]
    contents: dict[str, dict[int, int]] = {}
    layers: tuple[Layer, ...] = ()
    for time_ms in range(1, 300):
        change = {chance.randrange(30): chance.randrange(1000) for _ in range(3)}
        history.append({**history[-1], **change})
        contents[str(time_ms)] = change
        layers = (*layers, Layer(str(time_ms), time_ms, 0, 10))
        group = layers_to_merge(layers)
        layers = merged(layers, group)
        if group:
            contents[layers[-1].name] = {
                key: value for each in group for key, value in contents[each.name].items()
            }
        start_ms = chance.randrange(time_ms)
        state = dict(history[start_ms])
        for layer in catch_up(start_ms or None, layers).apply:
            state.update(contents[layer.name])
        assert state == history[-1]
