"""Numbers as people write them: other digits, groups, decimal commas. A text is read as meant, or refused.

Every file, flag and hint reads numbers here, so that one text means one number everywhere.

    text                      number
    12,50                     12.50
    1,250,000  1 250 000      1250000
    1.250,5    1'250.5        1250.5
    1,00,000                  100000 (lakh)
    ١٢٫٥       １２．５          12.5
    1,250                     refused: 1250 or 1.250
    5k         (5)   5 %      refused, with what to write
"""

from __future__ import annotations

import math
import re
import unicodedata

_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+")
_LAKHS = re.compile(r"[1-9]\d?(,\d{2})+,\d{3}(\.\d*)?", re.ASCII)
_GROUP_SIGNS = " _'\u2019\u02bc\u00a0\u202f\u2007\u2009\u066c"
"""Signs between groups of three digits that never are decimal signs."""
_PLAIN_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_OTHER_BASE = re.compile(r"[+-]?0([xX][0-9a-fA-F]+|[oO][0-7]+|[bB][01]+)")
_POINT_GROUP = re.compile(r"[+-]?[1-9]\d{0,2}\.\d{3}", re.ASCII)
_MARKS = str.maketrans(
    {"\u2212": "-", "\uff0d": "-", "\uff0b": "+", "\uff0e": ".", "\uff0c": ",", "\u066b": "."}
)
"""The minus sign, full-width signs, and the Arabic decimal separator."""
_DOLLARS = re.compile(r"^(?:usd|us\$|\$\s?us|\$)\s*|\s*(?:usd|us\$|\$|(?:us\s)?dollars?)$", re.IGNORECASE)
_CODES = "EUR GBP CHF JPY CNY RMB INR AUD CAD BRL KRW SEK NOK DKK PLN CZK SGD HKD TWD NZD MXN ZAR TRY RUB ILS"
_OTHER_CURRENCY = re.compile(
    rf"[\u20ac\u00a3\u00a5\u20b9\u20a9\u20bd\u20ba\u20aa]|\b(?:{'|'.join(_CODES.split())}|Fr|Rs)\b|\b(?:A|C|AU|CA|NZ|HK|S|R)\$",
    re.IGNORECASE,
)
_SUFFIXES = {"k": (3, 10), "m": (6, 20), "g": (9, 30), "b": (9, 0), "t": (12, 40)}
"""Powers of ten and of two that a letter after a number may mean."""


class NotOneNumber(ValueError):
    """A text that means no finite number, or two.

    `reason` follows ``got '1,250'`` in an error, and is empty where there is none; `hint` says what to write.
    """

    def __init__(self, problem: str, *, reason: str = "", hint: str = "") -> None:
        super().__init__(problem)
        self.reason, self.hint = reason, hint


def number_of(text: str, *, has_decimal_commas: bool = False) -> float:
    """Return the finite number that a text means.

    `has_decimal_commas` is true for a table whose columns end at semicolons, as spreadsheets write them where
    the comma is decimal: there 1.250 may be 1250.

    Raises:
        NotOneNumber: when it means none, or two, or is not finite.
    """
    if has_decimal_commas and _POINT_GROUP.fullmatch(text.strip()):
        raise _two(text, (text.strip().replace(".", ""), text.strip()))
    try:
        value = float(text)
    except ValueError:
        readings = number_readings(text)
        if len(readings) > 1:
            raise _two(text, readings) from None
        if not readings or _OTHER_BASE.fullmatch(text.strip()):
            raise NotOneNumber(f"{text!r} is no number", hint=_hint(text.strip())) from None
        value = float(readings[0])
    if not math.isfinite(value):
        raise NotOneNumber(f"{text!r} is not finite")
    return value


def _two(text: str, readings: tuple[str, ...]) -> NotOneNumber:
    both = f"may be {readings[0]} or {readings[1]}"
    hint = "Write it without groups of digits, and with a point before decimals"
    return NotOneNumber(f"{text.strip()!r} {both}", reason=f", which {both}", hint=hint)


def _hint(text: str) -> str:
    """Return what to write in place of a text that is no number; empty where nothing is known."""
    if _OTHER_BASE.fullmatch(text):
        return f"Write {int(text, 0)}"
    if text.lower() in ("true", "false", "yes", "no", "on", "off"):
        return "It is no yes or no"
    if found := re.fullmatch(r"\((.+)\)", text):
        return f"Write -{found[1]} if the brackets mean less than zero" if number_readings(found[1]) else ""
    if found := re.fullmatch(r"(.+?)\s*[%\uff05\u066a]", text):
        inner = number_readings(found[1])
        return f"Write {float(inner[0]) / 100.0:g} for a fraction, or {inner[0]}" if len(inner) == 1 else ""
    if found := re.fullmatch(r"(.+?)\s*([kKmMgGbBtT])(?:io?)?", text):
        inner, (ten, two) = number_readings(found[1]), _SUFFIXES[found[2].lower()]
        if len(inner) != 1:
            return ""
        tens = f"{float(inner[0]) * 10**ten:.15g}"
        return f"Write {tens}" + (
            f", or {float(inner[0]) * 2**two:.15g} if it counts in 1,024s" if two else ""
        )
    return ""


def ascii_digits(text: str) -> str:
    """Return a text with digits of other scripts as 0 to 9, and plain signs around them."""
    if text.isascii():
        return text
    # Web pages and Arabic text have marks that nobody sees, such as U+200B and U+200F.
    seen = (sign for sign in text.translate(_MARKS) if unicodedata.category(sign) != "Cf")
    return "".join(str(unicodedata.decimal(sign)) if sign.isdecimal() else sign for sign in seen)


def number_readings(text: str) -> tuple[str, ...]:
    """Return the numbers that a text may mean, as they are to be written; empty when it is no number.

    One reading: ``12,50`` is 12.50, ``1,250,000`` and ``1 250 000`` are 1250000, ``1.250,5`` is 1250.5. Two:
    ``1,250`` may be 1250 or 1.250, the thousands first. A comma before anything but groups of three digits
    separates no thousands. Digits are kept as typed, so 3.10 stays 3.10.
    """
    text = ascii_digits(text.strip())
    if _PLAIN_NUMBER.fullmatch(text):
        return (text,)
    if _OTHER_BASE.fullmatch(text):
        return (str(int(text.replace("+", ""), 0)),)
    sign = text[:1] if text[:1] in ("+", "-") else ""
    body = text[len(sign) :]
    if _LAKHS.fullmatch(body):
        return (sign + body.replace(",", ""),)
    for mark in _GROUP_SIGNS:
        if mark in body:
            whole, point, rest = body, "", ""
            for decimal in ".,":
                if decimal in body:
                    whole, point, rest = body.partition(decimal)
            groups = whole.split(mark)
            is_grouped = re.fullmatch(r"\d{1,3}", groups[0]) and all(
                re.fullmatch(r"\d{3}", g) for g in groups[1:]
            )
            if not (
                is_grouped or (mark == "_" and all(group.isascii() and group.isdigit() for group in groups))
            ):
                return ()
            body = "".join(groups) + ("." + rest if point else "")
            return (sign + body,) if _PLAIN_NUMBER.fullmatch(body) else ()
    if not re.fullmatch(r"[0-9.,]*[0-9][0-9.,]*", body):
        return ()
    by_comma, by_point = _separated(body, group=",", point="."), _separated(body, group=".", point=",")
    return tuple(sign + one for one in dict.fromkeys((*by_comma, *by_point)))


def _separated(body: str, *, group: str, point: str) -> tuple[str, ...]:
    """Return the number in digits with these signs for groups and for decimals; empty if it is none."""
    whole, has_point, rest = body.partition(point)
    groups = whole.split(group)
    if len(groups) > 1:
        is_grouped = re.fullmatch(r"[1-9]\d{0,2}", groups[0]) and all(
            re.fullmatch(r"\d{3}", g) for g in groups[1:]
        )
        if not is_grouped:
            return ()
    if has_point and not rest and point == ",":
        return ()
    number = "".join(groups) + (f".{rest}" if has_point else "")
    number = f"0{number}" if number.startswith(".") else number
    return (number,) if _PLAIN_NUMBER.fullmatch(number) else ()


def is_grouped(text: str) -> bool:
    """Return whether commas in a number group its thousands."""
    text = ascii_digits(text.strip())
    return bool(_THOUSANDS.fullmatch(text) or _LAKHS.fullmatch(text))


def other_currency(text: str) -> str:
    """Return the sign or code of a currency other than the dollar of the USA in a text; empty for none."""
    found = _OTHER_CURRENCY.search(text)
    return found[0].strip() if found else ""


def without_dollars(text: str) -> str:
    """Return an amount of dollars without their sign: ``$5``, ``US$ 5``, ``5 USD``.

    Raises:
        NotOneNumber: when it is in another currency, which it names.
    """
    if other := other_currency(text):
        said = f"is in {other}: budgets and caps count USD"
        raise NotOneNumber(f"{text.strip()!r} {said}", reason=f", which {said}", hint="Convert it to USD")
    return _DOLLARS.sub("", text.strip()).strip()
