import pytest
from chatmind.agent.v1 import agent_pb2, model_pb2, tool_pb2
from google.protobuf.field_mask_pb2 import FieldMask

from services.agent.api.convert.agents import from_models, from_tools, to_changes, to_settings
from services.agent.domain.chat import (
    EndpointInfo,
    EndpointState,
    ModelInfo,
    Provider,
    ToolProtocol,
    ToolSpec,
)
from services.agent.domain.models import AgentSettings, ModelOptions, Visibility
from services.common.convert import to_json
from services.common.errors import InvalidArgumentError
from services.common.ids import new_id
from services.common.text import Json

OUTPUT_ONLY = {"id", "owner_user_id", "create_time", "update_time"}


def fields_of_the_contract() -> set[str]:
    """Every path of an agent that may be changed, as the contract has them."""
    found = set()
    for field in agent_pb2.Agent.DESCRIPTOR.fields:
        if field.name in OUTPUT_ONLY:
            continue
        found.add(field.name)
        if field.message_type is not None and not field.is_repeated:
            found |= {f"{field.name}.{inner.name}" for inner in field.message_type.fields}
    return found


class TestSettings:
    def test_unset_fields_take_the_documented_meaning(self) -> None:
        assert AgentSettings("x") == to_settings(agent_pb2.Agent(display_name="x"))

    def test_output_only_fields_are_left_aside(self) -> None:
        asked = agent_pb2.Agent(display_name="x", id=new_id(), owner_user_id="bob")

        assert AgentSettings("x") == to_settings(asked)

    def test_zero_is_not_unset(self) -> None:
        asked = agent_pb2.Agent(options=agent_pb2.ModelOptions(temperature=0, seed=0))

        assert ModelOptions(temperature=0, seed=0) == to_settings(asked).options

    def test_every_stop_is_cleaned(self) -> None:
        asked = agent_pb2.Agent(options=agent_pb2.ModelOptions(stop=["a", "b\0"]))

        assert to_settings(asked).options.stop == ("a", "b\ufffd")

    def test_no_tool_is_named_twice_among_approvals(self) -> None:
        asked = agent_pb2.Agent(
            approvals=[
                agent_pb2.ToolApproval(tool="look", mode=agent_pb2.ToolApproval.MODE_ALWAYS),
                agent_pb2.ToolApproval(tool="look", mode=agent_pb2.ToolApproval.MODE_NEVER),
            ]
        )

        with pytest.raises(InvalidArgumentError) as refused:
            to_settings(asked)

        [violation] = refused.value.violations
        assert violation.field == "agent.approvals[1].tool"


class TestChange:
    @pytest.mark.parametrize("path", sorted(fields_of_the_contract()))
    def test_every_field_of_the_contract_may_be_named(self, path: str) -> None:
        new, changed = to_changes(agent_pb2.Agent(id=new_id()), FieldMask(paths=[path]))

        assert AgentSettings("") == new
        assert changed <= {path}

    def test_what_is_not_named_is_not_looked_at(self) -> None:
        asked = agent_pb2.Agent(
            display_name="x", memory_enabled=True, visibility=agent_pb2.VISIBILITY_TENANT
        )

        new, changed = to_changes(asked, FieldMask(paths=["visibility"]))

        assert AgentSettings("", visibility=Visibility.TENANT) == new
        assert {"visibility"} == changed

    @pytest.mark.parametrize("path", [*sorted(OUTPUT_ONLY), "nothing", "options.nothing", ""])
    def test_any_other_is_refused(self, path: str) -> None:
        with pytest.raises(InvalidArgumentError) as refused:
            to_changes(agent_pb2.Agent(id=new_id()), FieldMask(paths=["display_name", path]))

        assert [each.field for each in refused.value.violations] == ["update_mask"]

    def test_nothing_named_is_refused(self) -> None:
        with pytest.raises(InvalidArgumentError):
            to_changes(agent_pb2.Agent(id=new_id()), FieldMask())


class TestRegistries:
    def test_a_tool_is_told_with_its_schema(self) -> None:
        schema: dict[str, Json] = {
            "type": "object",
            "properties": {"q": {"type": "string"}},
            "required": ["q"],
        }

        [tool] = from_tools([ToolSpec("look", "Looks.", schema, idempotent=True)])

        assert (tool.name, tool.description, tool.idempotent) == ("look", "Looks.", True)
        assert tool.effect == tool_pb2.Tool.EFFECT_STATE_CHANGING
        assert not tool.trusted
        assert to_json(tool.input_schema) == schema

    def test_a_model_is_told_with_its_servers(self) -> None:
        server = EndpointInfo(1, 2, 3, 4, EndpointState.PROBING, calls=1)

        [model] = from_models([ModelInfo("a", "b", Provider.OPENAI, endpoints=(server,))])

        expected = model_pb2.Model.Endpoint(
            place=1,
            priority=2,
            weight=3,
            max_concurrent=4,
            state=model_pb2.Model.Endpoint.STATE_PROBING,
            calls=1,
        )
        assert list(model.endpoints) == [expected]

    def test_a_model_is_told_with_its_protocol(self) -> None:
        [model] = from_models(
            [ModelInfo("a", "b", Provider.OPENAI, 8192, ToolProtocol.TAGS, default=True)]
        )

        expected = model_pb2.Model(
            name="a",
            model="b",
            provider=model_pb2.Model.PROVIDER_OPENAI,
            context_tokens=8192,
            tool_protocol=model_pb2.Model.TOOL_PROTOCOL_TAGS,
            default=True,
        )
        assert expected == model
