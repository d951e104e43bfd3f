import pytest

from services.agent.domain.zones import nearest_zones, zone_of


class TestZoneOf:
    @pytest.mark.parametrize("name", ["UTC", "Asia/Shanghai", "America/Argentina/Ushuaia"])
    def test_a_name_of_the_iana_is_one(self, name: str) -> None:
        assert str(zone_of(name)) == name

    @pytest.mark.parametrize(
        "name",
        ["", "Nowhere", "../UTC", "/etc/localtime", "Asia", "Asia/Shanghai\0", "x" * 65, "\ud800"],
    )
    def test_nothing_else_is(self, name: str) -> None:
        assert zone_of(name) is None


class TestNearestZones:
    def test_a_city_finds_its_zone(self) -> None:
        assert nearest_zones("new york") == ["America/New_York"]

    def test_what_is_like_none_finds_none(self) -> None:
        assert nearest_zones("zzzzzz") == []
