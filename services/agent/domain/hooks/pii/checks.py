"""Check digits and lengths that tell real numbers from others that look like them. Pure."""

from ipaddress import ip_address
from typing import Final

_ID_WEIGHTS: Final = (7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2)
_ID_CHECKS: Final = "10X98765432"

# Lengths of the IBAN registry, by country.
IBAN_LENGTHS: Final = {
    country: length
    for length, countries in {
        15: "NO",
        16: "BE",
        18: "DK FI FO GL NL SD",
        19: "MK SI",
        20: "AT BA EE KZ LT LU XK",
        21: "CH HR LI LV",
        22: "BG BH CR DE GB GE IE ME RS VA",
        23: "AE GI IL IQ OM SO TL",
        24: "AD CZ ES MD PK RO SA SE SK TN VG",
        25: "LY PT ST",
        26: "IS TR",
        27: "BI DJ FR GR IT MC MR SM",
        28: "AL AZ BY CY DO GT HU LB NI PL SV",
        29: "BR EG PS QA UA",
        30: "JO KW MU YE",
        31: "MT SC",
        32: "LC",
        33: "RU",
    }.items()
    for country in countries.split()
}


def luhn(number: str) -> bool:
    """Whether the digits of a card number fit its last one; other characters are passed over."""
    digits = [int(each) for each in reversed(number) if each.isdigit()]
    doubled = (2 * each for each in digits[1::2])
    total = sum(digits[::2]) + sum(each - 9 if each > 9 else each for each in doubled)
    return total % 10 == 0 and any(digits)


def iban(number: str) -> bool:
    """Whether an IBAN without blanks, in upper case, has its country's length and its check."""
    if IBAN_LENGTHS.get(number[:2]) != len(number):
        return False
    moved = number[4:] + number[:4]
    return int("".join(str(int(each, 36)) for each in moved)) % 97 == 1


def resident_id(number: str) -> bool:
    """Whether the 18 characters of a Chinese resident id, perhaps in groups, fit its last one."""
    number = number.replace(" ", "").replace("-", "")
    total = sum(int(each) * weight for each, weight in zip(number[:17], _ID_WEIGHTS, strict=True))
    return _ID_CHECKS[total % 11] == number[17].upper()


def ip(text: str) -> bool:
    """Whether this is an address of IPv4, or of IPv6 with a digit in it."""
    try:
        ip_address(text)
    except ValueError:
        return False
    return any(each.isdigit() for each in text)
