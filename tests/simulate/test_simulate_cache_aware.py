"""The model of the gateway's cache_aware policy, rule by rule."""

from agentbatch.simulate.cache_aware import CacheAware

SHARED, OTHER = ("shared", 400), ("other", 400)


def piece(name: str, tokens: int = 600) -> tuple[str, int]:
    return name, tokens


def test_a_prompt_nobody_knows_goes_to_the_least_loaded_worker_the_first_of_several() -> None:
    gateway = CacheAware()
    assert gateway.choose({"a": 0, "b": 0}, [piece("x")], 600) == "a"
    assert gateway.choose({"a": 5, "b": 5}, [piece("y")], 600) == "a"
    assert gateway.choose({"a": 5, "b": 4, "c": 4}, [piece("z")], 600) == "b"


def test_a_prompt_mostly_known_follows_its_prefix_while_loads_are_balanced() -> None:
    gateway = CacheAware()
    assert gateway.choose({"a": 4, "b": 3}, [SHARED, piece("x")], 1000) == "b"
    assert gateway.choose({"a": 3, "b": 4}, [SHARED, piece("x"), piece("y")], 1600) == "b"
    assert gateway.choose({"a": 3, "b": 4}, [SHARED, piece("z")], 1000) == "b"  # 40 % known, above the 30 %
    assert gateway.choose({"a": 3, "b": 4}, [SHARED, piece("w", 1000)], 1400) == "a"  # 29 %


def test_more_than_five_thirds_of_the_least_load_goes_to_the_least_loaded_whatever_is_known() -> None:
    gateway = CacheAware()
    gateway.choose({"a": 1, "b": 0}, [SHARED], 400)
    assert gateway.choose({"a": 3, "b": 5}, [SHARED], 400) == "b"  # 5 <= 1.6666667 x 3
    assert gateway.choose({"a": 2, "b": 4}, [SHARED], 400) == "a"
    assert gateway.choose({"a": 0, "b": 0}, [SHARED], 400) == "a"  # and is remembered there from then on


def test_the_worker_that_had_the_longest_prefix_last_takes_it() -> None:
    gateway = CacheAware()
    gateway.choose({"a": 0, "b": 0}, [SHARED, OTHER], 800)
    gateway.choose({"a": 9, "b": 0}, [SHARED], 400)  # imbalanced: b has the shared part now, too
    assert gateway.choose({"a": 4, "b": 4}, [SHARED], 400) == "b"
    assert gateway.choose({"a": 4, "b": 4}, [SHARED, OTHER], 800) == "a"
