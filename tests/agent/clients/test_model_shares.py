from collections import Counter

from services.agent.clients.model_shares import Shares


class TestNext:
    def test_turns_follow_the_weights_and_are_spread(self) -> None:
        shares = Shares([2, 1])

        assert [shares.next([0, 1]) for _ in range(6)] == [0, 1, 0, 0, 1, 0]

    def test_any_weights_are_kept_exactly(self) -> None:
        shares = Shares([7, 1, 5])

        assert Counter(shares.next([0, 1, 2]) for _ in range(130)) == {0: 70, 1: 10, 2: 50}

    def test_who_may_not_have_a_turn_saves_up_none(self) -> None:
        shares = Shares([1, 1])

        assert [shares.next([1]) for _ in range(10)] == [1] * 10
        assert sorted(shares.next([0, 1]) for _ in range(10)) == [0] * 5 + [1] * 5
