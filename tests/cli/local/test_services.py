"""The services of one machine."""

from pathlib import Path

import pytest

from cli.local.services import Layout, plan_layout, plan_services

NAMES = ["embedding", "knowledge", "agent", "gateway"]


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return plan_layout(tmp_path, {})


class TestPlanLayout:
    def test_the_usual_addresses(self, layout: Layout, tmp_path: Path) -> None:
        assert dict(layout.grpc) == {
            "embedding": "127.0.0.1:8053",
            "knowledge": "127.0.0.1:8052",
            "agent": "127.0.0.1:8051",
            "gateway": "127.0.0.1:8050",
        }
        assert layout.http == "127.0.0.1:8080"
        assert layout.key_file == tmp_path / "admin.key"

    def test_each_may_be_told_otherwise(self, tmp_path: Path) -> None:
        told = {
            "CHATMIND_AGENT_LISTEN": "0.0.0.0:9051",
            "CHATMIND_GATEWAY_HTTP_LISTEN": "0.0.0.0:9080",
            "CHATMIND_GATEWAY_LISTEN": "",
        }
        layout = plan_layout(tmp_path, told)

        assert (layout.grpc["agent"], layout.http) == ("0.0.0.0:9051", "0.0.0.0:9080")
        assert layout.grpc["gateway"] == "127.0.0.1:8050"


class TestPlanServices:
    def test_callees_come_before_their_callers(self, layout: Layout) -> None:
        services = plan_services(layout, database_url="postgresql://db/x", environment={})

        assert [service.name for service in services] == NAMES
        assert [service.module for service in services] == [f"services.{name}" for name in NAMES]
        assert [service.address for service in services] == list(layout.grpc.values())

    def test_each_is_told_where_the_others_and_its_keys_are(
        self, layout: Layout, tmp_path: Path
    ) -> None:
        for service in plan_services(layout, database_url="postgresql://db/x", environment={}):
            told = service.environment

            assert told["CHATMIND_DATABASE_URL"] == "postgresql://db/x"
            assert told["CHATMIND_KNOWLEDGE_EMBEDDING_ADDRESS"] == "127.0.0.1:8053"
            assert told["CHATMIND_AGENT_KNOWLEDGE_ADDRESS"] == "127.0.0.1:8052"
            assert told["CHATMIND_GATEWAY_KNOWLEDGE_ADDRESS"] == "127.0.0.1:8052"
            assert told["CHATMIND_GATEWAY_AGENT_ADDRESS"] == "127.0.0.1:8051"
            name = service.name.upper()
            assert told[f"CHATMIND_{name}_LISTEN"] == service.address
            assert told[f"CHATMIND_{name}_IDENTITY_DIR"] == str(
                tmp_path / "identity" / service.name
            )

    def test_what_the_operator_sets_reaches_all_but_cannot_part_them(self, layout: Layout) -> None:
        environment = {
            "OPENAI_API_KEY": "k",
            "OMP_NUM_THREADS": "4",
            "CHATMIND_GATEWAY_AGENT_ADDRESS": "elsewhere:1",
        }
        for service in plan_services(layout, database_url="x", environment=environment):
            told = service.environment

            assert (told["OPENAI_API_KEY"], told["OMP_NUM_THREADS"]) == ("k", "4")
            assert told["OPENBLAS_NUM_THREADS"] == "1"
            assert told["CHATMIND_GATEWAY_AGENT_ADDRESS"] == "127.0.0.1:8051"
