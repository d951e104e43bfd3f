import pytest

from services.agent.domain.prices import Prices, priced
from services.agent.domain.run_models import Cost, Usage

PRICES = Prices("USD", input_nanos=270_000_000, cached_input_nanos=70_000_000, output_nanos=1)


class TestPriced:
    def test_each_kind_of_token_has_its_price(self) -> None:
        usage = Usage(1000, 3_000_000, 400, 2_000_000)

        assert priced(usage, PRICES).cost == Cost("USD", 600 * 270 + 400 * 70 + 3)

    @pytest.mark.parametrize(("tokens", "nanos"), [(499_999, 0), (500_000, 1), (1_499_999, 1)])
    def test_a_fraction_is_rounded(self, tokens: int, nanos: int) -> None:
        assert priced(Usage(0, tokens), PRICES).cost == Cost("USD", nanos)

    def test_nothing_costs_nothing(self) -> None:
        assert priced(Usage(), PRICES).cost == Cost("USD", 0)

    def test_without_prices_there_is_no_cost(self) -> None:
        assert priced(Usage(1, 2), None) == Usage(1, 2)

    def test_large_amounts_stay_exact(self) -> None:
        dear = Prices("USD", 10**15, 10**15, 10**15)

        assert priced(Usage(10**9 - 1, 1), dear).cost == Cost("USD", 10**18)
