"""Which cards stand together, and what each slot gets of the machine."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tuner.hardware import Platform, find_gpu
from tuner.slots import Card, cards_here, shares_of
from tuner.slots.cards import neighbours_first
from tuner.slots.pool import environment_of


def test_pairs_that_nvlink_joins_stand_together() -> None:
    links = {(0, 3), (1, 2), (4, 7), (5, 6)}
    order = neighbours_first(8, lambda a, b: 1000 if (min(a, b), max(a, b)) in links else 0)
    pairs = {tuple(sorted(order[i : i + 2])) for i in range(0, 8, 2)}
    assert pairs == links


def test_two_boards_of_four_stay_whole() -> None:
    order = neighbours_first(8, lambda a, b: 10 if a % 2 == b % 2 else 0)
    assert {card % 2 for card in order[:4]} != {0, 1}
    assert sorted(order) == list(range(8))


@pytest.mark.parametrize("count", [1, 2, 3, 5, 8])
def test_without_news_of_links_the_order_is_that_of_the_indices(count: int) -> None:
    assert neighbours_first(count, lambda a, b: 0) == list(range(count))


def test_cards_without_nvml_are_named_by_index_or_as_the_user_named_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gpu = find_gpu("2xH200-141G")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert [card.word for card in cards_here(gpu, 2)] == ["0", "1"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,GPU-8932f937")
    assert [card.word for card in cards_here(gpu, 2)] == ["3", "GPU-8932f937"]


def test_cores_and_ports_are_shared_out() -> None:
    shares = shares_of([Card("0"), Card("1"), Card("2"), Card("3")], cores=range(10))
    cores = [core for share in shares for core in share.cores]
    assert sorted(cores) == list(range(10)) and all(len(share.cores) >= 2 for share in shares)
    assert all(one.ports[1] <= two.ports[0] for one, two in pairwise(shares))


def test_each_card_gets_cores_of_its_own_node() -> None:
    low, high = tuple(range(8)), tuple(range(8, 16))
    shares = shares_of([Card("0", low), Card("1", high), Card("2", low), Card("3", high)], cores=range(16))
    assert [share.cores for share in shares] == [low[:4], high[:4], low[4:], high[4:]]


def test_fewer_cores_than_cards_are_not_pinned() -> None:
    assert all(not share.cores for share in shares_of([Card("")] * 4, cores=[0, 1]))


def test_the_environment_of_a_slot_of_two() -> None:
    shares = shares_of([Card("0"), Card("1"), Card("4"), Card("5")], cores=range(8))
    environment = environment_of(shares[2:], Platform.CUDA)
    assert environment["CUDA_VISIBLE_DEVICES"] == "4,5"
    assert environment["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    low, high = map(int, environment["KIMI_TUNE_PORTS"].split("-"))
    assert (low, high) == (shares[2].ports[0], shares[3].ports[1])


def test_ports_come_from_the_share(monkeypatch: pytest.MonkeyPatch) -> None:
    from tuner.engines.vllm.ports import free_port

    monkeypatch.setenv("KIMI_TUNE_PORTS", "21000-21100")
    assert all(21000 <= free_port() < 21100 for _ in range(5))
