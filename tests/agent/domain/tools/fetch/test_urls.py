import pytest

from services.agent.domain.tools.fetch.urls import UrlError, allowed, read_rules, read_url


class TestReadUrl:
    @pytest.mark.parametrize(
        ("text", "read"),
        [
            ("https://example.org", "https://example.org/"),
            ("HTTPS://Docs.Example.ORG/A/b?C=d#there", "https://docs.example.org/A/b?C=d"),
            ("http://example.org:80/", "http://example.org/"),
            ("https://example.org:8443?q=1", "https://example.org:8443/?q=1"),
            (
                "https://xn--bcher-kva.example/ü?q=ä",
                "https://xn--bcher-kva.example/%C3%BC?q=%C3%A4",
            ),
            ("https://example.org/%2e%2E/[x]|y", "https://example.org/%2e%2E/%5Bx%5D%7Cy"),
            ("https://a.b/@c:d?e=http://f@g", "https://a.b/@c:d?e=http://f@g"),
            ("https://localhost/", "https://localhost/"),
        ],
    )
    def test_an_address_is_read_once(self, text: str, read: str) -> None:
        assert str(read_url(text)) == read
        assert str(read_url(read)) == read

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "example.org",
            "//example.org/",
            "ftp://example.org/",
            "file:///etc/passwd",
            "https:/example.org/",
            "https:///example.org/",
            "https://",
            " https://example.org/",
            "https://example.org/ ",
            "https://example.org/a b",
            "https://example.org/\n",
            "https://exa\tmple.org/",
            "https://example.org\\@other.org/",
            "https://example.org/\\other",
            "https://user@example.org/",
            "https://user:word@example.org/",
            "https://example.org:@other.org/",
            "https://@example.org/",
            "https://example.org:/",
            "https://example.org:0/",
            "https://example.org:65536/",
            "https://example.org:٤٤٣/",
            "https://example.org.:443/",
            "https://.example.org/",
            "https://exam_ple.org/",
            "https://-example.org/",
            "https://example-.org/",
            f"https://{'a' * 64}.org/",
            f"https://{'a.' * 127}org/",
            "https://exam%70le.org/",
            "https://exаmple.org/",
            "https://example。org/",
            "https://\u212a.org/",
            "https://127.0.0.1/",
            "https://127.1/",
            "https://2130706433/",
            "https://0x7f.1/",
            "https://0177.0.0.1/",
            "https://[::1]/",
            "https://①27.0.0.1/",
            "https://example.org/%zz",
            "https://example.org/\x00",
            "https://example.org/\u2028",
            f"https://example.org/{'a' * 2000}",
        ],
    )
    def test_anything_unusual_is_refused(self, text: str) -> None:
        with pytest.raises(UrlError):
            read_url(text)


class TestRules:
    def test_a_list_of_rules_is_read(self) -> None:
        rules = read_rules(" docs.python.org, *.Example.org:8443,,http://old.example.net/ ")

        assert [str(rule) for rule in rules] == [
            "docs.python.org",
            "*.example.org:8443",
            "http://old.example.net",
        ]

    def test_no_list_allows_nothing(self) -> None:
        assert read_rules(" , ") == ()

    @pytest.mark.parametrize(
        "entry",
        [
            *("*", "*.org", "*.*.org", "a*.org", "a.org/path", "ftp://a.org", "u@a.org", "a.org:0"),
            *("10.0.0.1", "a.org:99999", "a b.org", "[::1]"),
        ],
    )
    def test_what_is_no_rule_is_named(self, entry: str) -> None:
        with pytest.raises(ValueError, match=r"must|too much"):
            read_rules(f"docs.python.org,{entry}")

    @pytest.mark.parametrize(
        ("rule", "url", "is_allowed"),
        [
            ("a.org", "https://a.org/x", True),
            ("a.org", "https://A.ORG:443/x", True),
            ("a.org", "http://a.org/x", False),
            ("a.org", "https://a.org:8443/x", False),
            ("a.org", "https://b.a.org/", False),
            ("a.org", "https://ba.org/", False),
            ("*.a.org", "https://b.a.org/", True),
            ("*.a.org", "https://c.b.a.org/", True),
            ("*.a.org", "https://a.org/", False),
            ("*.a.org", "https://ba.org/", False),
            ("*.a.org", "https://a.org.b.net/", False),
            ("http://a.org", "http://a.org/", True),
            ("http://a.org", "https://a.org/", False),
            ("a.org:8443", "https://a.org:8443/", True),
        ],
    )
    def test_a_rule_means_scheme_host_and_port(self, rule: str, url: str, is_allowed: bool) -> None:
        assert allowed(read_url(url), read_rules(rule)) is is_allowed
