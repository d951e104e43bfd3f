"""How usage adds up is in tests/contracts/test_agent_queue.py."""

from services.agent.domain.run_models import Cost, Usage
from services.agent.store.postgres.usage import ADDED, HELD, SUB_USAGE, SUBS_COUNTED, USAGE, values


class TestValues:
    def test_they_come_in_the_order_of_the_columns(self) -> None:
        assert values(Usage(1, 2, 3, 4, Cost("EUR", 5))) == (1, 2, 3, 4, "EUR", 5)
        assert values(Usage(1, 2)) == (1, 2, 0, 0, None, None)

    def test_every_column_is_read_and_added(self) -> None:
        names = [name.strip() for name in HELD.split(",")]

        assert [name.strip() for name in USAGE.split(",")] == [f"run.{name}" for name in names]
        assert [name.strip() for name in SUB_USAGE.split(",")] == [f"run.sub_{n}" for n in names]
        assert all(f"{name} = " in ADDED for name in names)
        assert all(f"sub_{name} = " in SUBS_COUNTED for name in names)
