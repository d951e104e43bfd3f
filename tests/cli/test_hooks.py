import pytest
from chatmind.agent.v1 import agent_pb2

from cli.errors import CommandError
from cli.hooks import hooks_of


def test_a_name_alone_has_no_configuration() -> None:
    assert hooks_of(["logging"]) == [agent_pb2.AgentHook(name="logging")]


def test_a_configuration_may_hold_the_sign() -> None:
    [hook] = hooks_of(['x={"a": "b=c"}'])

    assert (hook.name, hook.config["a"]) == ("x", "b=c")


@pytest.mark.parametrize("config", ["{", "[1]", "5"])
def test_what_is_no_object_is_told(config: str) -> None:
    with pytest.raises(CommandError, match="the configuration of the hook 'x' is no JSON object"):
        hooks_of([f"x={config}"])
