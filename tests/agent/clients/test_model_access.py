import pytest

from services.agent.clients.model_access import (
    ModelsFileError,
    account_headers,
    checked_key,
    proxy_of,
)

ACCOUNT = {"OPENAI_ORG_ID": "org-1", "OPENAI_PROJECT_ID": "proj-1"}


class TestAccountHeaders:
    def test_openai_itself_is_told_of_the_account(self) -> None:
        assert account_headers("https://api.openai.com/v1", ACCOUNT) == {
            "openai-organization": "org-1",
            "openai-project": "proj-1",
        }

    def test_what_is_not_set_is_not_told(self) -> None:
        assert account_headers("https://api.openai.com/v1", {"OPENAI_ORG_ID": ""}) == {}

    @pytest.mark.parametrize("host", ["127.0.0.1", "api.openai.com.example"])
    def test_other_servers_are_not_told(self, host: str) -> None:
        assert account_headers(f"http://{host}/v1", ACCOUNT) == {}


class TestCheckedKey:
    @pytest.mark.parametrize("key", ["two\nlines", "k\0", "clé"])
    def test_one_that_no_header_can_hold_is_refused_and_not_told(self, key: str) -> None:
        with pytest.raises(ModelsFileError, match=r"^SOME_KEY: ") as error:
            checked_key(key, variable="SOME_KEY")

        assert key not in str(error.value)

    def test_blanks_around_it_are_no_part_of_it(self) -> None:
        assert checked_key(" k\n", variable="SOME_KEY") == "k"


class TestProxyOf:
    @pytest.mark.parametrize(
        ("environ", "proxy"),
        [
            ({}, None),
            ({"https_proxy": "http://p:1"}, "http://p:1"),
            ({"HTTPS_PROXY": "http://p:1"}, "http://p:1"),
            ({"https_proxy": "http://p:1", "HTTPS_PROXY": "http://q:1"}, "http://p:1"),
            ({"https_proxy": "p:1"}, "http://p:1"),
            ({"http_proxy": "http://p:1"}, None),
            ({"all_proxy": "http://p:1"}, "http://p:1"),
            ({"https_proxy": "http://p:1", "no_proxy": "*"}, None),
            ({"https_proxy": "http://p:1", "no_proxy": "x, model.example"}, None),
            ({"https_proxy": "http://p:1", "NO_PROXY": ".EXAMPLE:443"}, None),
            ({"https_proxy": "http://p:1", "no_proxy": "odel.example,,"}, "http://p:1"),
        ],
    )
    def test_it_is_the_one_that_the_environment_names(
        self, environ: dict[str, str], proxy: str | None
    ) -> None:
        assert proxy_of("https://Model.example/v1", environ) == proxy

    def test_one_of_another_kind_is_refused_without_its_password(self) -> None:
        with pytest.raises(ModelsFileError, match="proxy") as error:
            proxy_of("http://model.example/v1", {"all_proxy": "socks5://u:hunter2@p:1"})

        assert "hunter2" not in str(error.value)
