"""Tool calls that wait for a person, through the gateway and over every process."""

from collections.abc import Iterator
from itertools import chain

import pytest

from services.common.ids import new_id
from tests.agent.scripted_model import ScriptedModel, calls, says
from tests.e2e.conftest import run
from tests.e2e.installation import Installation, JsonObject
from tests.e2e.test_first_steps import AGENT, GATEWAY, RUN
from tests.e2e.test_model import model_in_a_thread

pytestmark = pytest.mark.timeout(60)

ACCESS = "chatmind.gateway.v1.AccessService"
NOT_FOUND, FAILED_PRECONDITION = 5, 9
APPROVE, DENY = "DECISION_APPROVE", "DECISION_DENY"


@pytest.fixture(scope="module")
def model() -> Iterator[ScriptedModel]:
    """The model of this module's installation."""
    with model_in_a_thread() as model:
        model.otherwise = says("There.")
        yield model


@pytest.fixture(scope="module")
def installation(
    model: ScriptedModel, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installation]:
    """An installation whose default model is the scripted one."""
    data_dir = tmp_path_factory.mktemp("chatmind")
    models = data_dir / "models.toml"
    models.write_text(f'[models.scripted]\nmodel = "m1"\nbase_url = "{model.base_url}"\n')
    yield from run(data_dir, CHATMIND_MODELS_FILE=str(models))


@pytest.fixture(scope="module")
def agent_id(installation: Installation) -> str:
    """An agent that asks before it calculates."""
    words = ("Clerk", "--tool", "calculator", "--approval", "calculator=always")
    return installation.chatmind("agent", "create", *words).stdout.strip()


class Waiting:
    """A run with a call that waits, or may wait."""

    def __init__(
        self,
        installation: Installation,
        agent_id: str,
        model: ScriptedModel,
        *,
        waits: bool = True,
    ) -> None:
        self._installation = installation
        model.script(calls(("c1", "calculator", '{"expression": "17 * 23"}')))
        request = {"agentId": agent_id, "text": "What is 17 * 23?"}
        self.sent = installation.call(f"{GATEWAY}/SendMessage", request).message
        if waits:
            self.until("STATE_AWAITING_APPROVAL")

    @property
    def id(self) -> str:
        """The run's."""
        return str(self.sent["runId"])

    def until(self, state: str) -> JsonObject:
        """The run, once it stands so."""
        request = {"sessionId": self.sent["sessionId"], "afterSequence": "0"}
        with self._installation.stream(f"{RUN}/WatchSession", request) as events:
            next(events)  # from now on, every change is told
            found = self._installation.call(f"{RUN}/GetRun", {"runId": self.id}).message["run"]
            runs = (event["run"] for event in events if "run" in event)
            return next(run for run in chain([found], runs) if run["state"] == state)

    def approval(self) -> JsonObject:
        """What it waits for."""
        listed = self._installation.call(f"{RUN}/ListApprovals", {"runId": self.id}).message
        [approval] = listed["approvals"]
        assert isinstance(approval, dict)
        return approval

    def answer(self, decision: str, **more: str) -> JsonObject:
        """The request that answers it."""
        approval = self.approval()
        digest = approval["argumentsDigest"]
        return {
            "approvalId": approval["id"],
            "decision": decision,
            "argumentsDigest": digest,
            **more,
        }

    def results(self) -> list[str]:
        """What the model was given for its call."""
        request = {"sessionId": self.sent["sessionId"]}
        listed = self._installation.call(f"{AGENT}/ListMessages", request).message
        return [each["text"] for each in listed["messages"] if each.get("toolCallId")]


class TestApprovals:
    """What becomes of a call, by what is said to it."""

    def test_approved_it_is_made_once_and_the_record_says_by_whom(
        self, installation: Installation, model: ScriptedModel, agent_id: str
    ) -> None:
        """With the command, and no second time."""
        waiting = Waiting(installation, agent_id, model)
        assert waiting.results() == []

        done = installation.chatmind("run", "approve", waiting.id, "--yes")
        waiting.until("STATE_FINISHED")
        again = installation.call(f"{RUN}/ResolveApproval", waiting.answer(APPROVE))

        assert done.returncode == 0, done.stderr
        assert '"expression": "17 * 23"' in done.stderr
        assert waiting.results() == ["391"]
        assert again.status == FAILED_PRECONDITION
        approval = waiting.approval()
        assert (approval["state"], approval["resolverUserId"]) == ("STATE_APPROVED", "admin")
        assert approval["createTime"] < approval["resolveTime"]

    def test_denied_it_is_told_to_the_model(
        self, installation: Installation, model: ScriptedModel, agent_id: str
    ) -> None:
        """Whoever denies can say why, and cannot think better of it."""
        waiting = Waiting(installation, agent_id, model)

        denied = waiting.answer(DENY, comment="not today")
        installation.call(f"{RUN}/ResolveApproval", denied).message  # noqa: B018 - has to go well
        waiting.until("STATE_FINISHED")
        late = installation.call(f"{RUN}/ResolveApproval", waiting.answer(APPROVE))

        assert waiting.results() == ["Error: denied by the user: not today"]
        assert late.status == FAILED_PRECONDITION

    @pytest.mark.parametrize("tenant", ["", "other"])
    def test_others_cannot_tell_it_from_one_that_is_not_there(
        self, installation: Installation, model: ScriptedModel, agent_id: str, tenant: str
    ) -> None:
        """Neither another user of the tenant nor one of another tenant."""
        key = {"displayName": "x", "userId": "mallory", "tenant": tenant}
        secret = installation.call(f"{ACCESS}/CreateApiKey", key).message["secret"]
        waiting = Waiting(installation, agent_id, model)
        wanted, missing = waiting.answer(APPROVE), new_id()

        foreign = installation.call(f"{RUN}/ResolveApproval", wanted, key=secret)
        absent = installation.call(
            f"{RUN}/ResolveApproval", {**wanted, "approvalId": missing}, key=secret
        )
        listed = installation.call(f"{RUN}/ListApprovals", {"runId": waiting.id}, key=secret)

        assert {NOT_FOUND} == {foreign.status, absent.status, listed.status}
        told = str(foreign.error["message"]).replace(str(wanted["approvalId"]), missing)
        assert told == absent.error["message"]
        assert waiting.approval()["state"] == "STATE_PENDING"
        assert installation.chatmind("run", "cancel", waiting.id).returncode == 0

    def test_it_outlives_a_kill_of_the_agent_service(
        self, installation: Installation, model: ScriptedModel, agent_id: str
    ) -> None:
        """SIGKILL while it waits: it waits on, and is made once it is approved."""
        waiting = Waiting(installation, agent_id, model)
        before = waiting.approval()
        installation.service("agent").kill()
        installation.wait_until_ready()

        same = waiting.approval()
        installation.call(f"{RUN}/ResolveApproval", waiting.answer(APPROVE)).message  # noqa: B018 - has to go well
        waiting.until("STATE_FINISHED")

        assert before == same
        assert waiting.results() == ["391"]

    def test_what_an_agent_says_of_tools_can_be_changed(
        self, installation: Installation, model: ScriptedModel
    ) -> None:
        """Also of tools that are not there yet, and of none that can never be."""
        words = ("Free", "--tool", "calculator", "--approval", "calculator=always")
        agent_id = installation.chatmind("agent", "create", *words).stdout.strip()
        said = ("--approval", "calculator=never", "--approval", "ask_librarian=always")
        changed = installation.chatmind("agent", "update", "Free", *said)
        refused = installation.chatmind("agent", "update", "Free", "--approval", "nothing=always")

        free = Waiting(installation, agent_id, model, waits=False)
        free.until("STATE_FINISHED")

        assert changed.returncode == 0, changed.stderr
        assert refused.returncode == 1
        assert "agent.approvals[0].tool" in refused.stderr
        assert free.results() == ["391"]

    def test_without_an_answer_it_is_not_made(
        self, installation: Installation, model: ScriptedModel, agent_id: str
    ) -> None:
        """And a yes that comes too late is refused; the whole installation is started anew."""
        installation.interrupt()
        short = {"CHATMIND_AGENT_APPROVAL_SECONDS": "0.5"}
        installation.environment = {**installation.environment, **short}
        installation.start()
        installation.wait_until_ready()

        waiting = Waiting(installation, agent_id, model, waits=False)
        waiting.until("STATE_FINISHED")
        late = installation.call(f"{RUN}/ResolveApproval", waiting.answer(APPROVE))

        [told] = waiting.results()
        assert "nobody approved the call in time" in told
        assert late.status == FAILED_PRECONDITION
        assert waiting.approval()["state"] == "STATE_EXPIRED"
