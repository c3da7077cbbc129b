"""Times as strangers write them: read as meant, or refused with what they may mean."""

from __future__ import annotations

import pytest

from boa_daemon.time_text import duration_seconds, has_zone, instant_seconds

# 2017-10-29 02:30 in Berlin is 00:30 UTC in summer time: 1509237000 seconds.
MEMBERS = {
    "2017-10-29 00:30:00": 1509237000.0,
    "2017-10-29T00:30:00Z": 1509237000.0,
    "2017-10-29 00:30:00 UTC": 1509237000.0,
    "2017-10-29 02:30:00+02:00": 1509237000.0,
    "2017-10-29 02:30:00+0200": 1509237000.0,
    "2017-10-29 02:30:00+02": 1509237000.0,
    "2017-10-28T20:30:00-04:00": 1509237000.0,
    "2017-10-29 02:30:00 Europe/Berlin": 1509237000.0,
    "2017-10-29 00:30:00.500": 1509237000.5,
    "2017-10-29 00:30": 1509237000.0,
    "2017-W43-7T00:30:00": 1509237000.0,
    "20171029T003000": 1509237000.0,
    "20171029003000": 1509237000.0,
    "2017-10-29 06:00:00 +0530": 1509237000.0,
    "2017-10-29 06:00 UTC+5:30": 1509237000.0,
    "2017-10-28 16:30 GMT-8": 1509237000.0,
    "2017-10-29 00:30:00.0 +0000 UTC": 1509237000.0,
    "2017-10-29T02:30:00+02:00[Europe/Berlin]": 1509237000.0,
    "Sun, 29 Oct 2017 00:30:00 GMT": 1509237000.0,
    "\u0662\u0660\u0661\u0667-\u0661\u0660-\u0662\u0669 00:30": 1509237000.0,
    "2017-10-28 24:00": 1509235200.0,
    "2017-10-28T24:00:00": 1509235200.0,
    "2017/10/29 00:30:00": 1509237000.0,
    "2017.10.29 0:30": 1509237000.0,
    "2017-10-29 2:30+02:00": 1509237000.0,
    "Sun Oct 29 00:30:00 2017": 1509237000.0,
    "Sun Oct 29 00:30:00 UTC 2017": 1509237000.0,
    "Oct 29, 2017 00:30": 1509237000.0,
    "29-Oct-2017 00:30": 1509237000.0,
    "29/Oct/2017:00:30:00 +0000": 1509237000.0,
    "29 October 2017 00:30": 1509237000.0,
    "2017-10-29 00:30:00 (UTC)": 1509237000.0,
    "2017-10-29 02:30:00 (UTC+2:00)": 1509237000.0,
    "2017-10-29 02:30:00 +0200 (CEST)": 1509237000.0,
    "2017-8-9": 1502236800.0,
    "29/10/2017 00:30": 1509237000.0,
    "10/29/2017 0:30": 1509237000.0,
    "29.10.2017T00:30": 1509237000.0,
    "29-10-2017 00:30:00": 1509237000.0,
    "8/8/2017": 1502150400.0,
    "Sunday, 29 October 2017 00:30": 1509237000.0,
    "Sund. Octob. 29 2017 00:30": 1509237000.0,
    "2017-10-29": 1509235200.0,
    "2017-10-29+02:00": 1509228000.0,
    "1509237000": 1509237000.0,
    "1509237000.25": 1509237000.25,
    "1509237000250": 1509237000.25,
    "1509237000250000": 1509237000.25,
    "1509237000250000000": 1509237000.25,
}


@pytest.mark.parametrize(("text", "seconds"), MEMBERS.items(), ids=MEMBERS)
def test_a_time_is_an_instant(text: str, seconds: float) -> None:
    """Offsets and zones are honoured."""
    assert instant_seconds(text) == seconds


REFUSED = {
    "31.04.2017": "there is no such day",
    "29 Okt 2017 00:30": "",
    "Mar 29 2017 10:30 11:30": "",
    "2017-10-29 02:30 PST": "may be North America",
    "2017-10-29 02:30 IST": "India",
    "2017-10-29 02:30 CET": "Europe/Berlin",
    "2017-10-29 02:30 XYZ": "no offset and no zone",
    "2017-10-29 02:30 Mars/Base": "no time zone",
    "2017-10-29 02:30+02:00 Europe/Berlin": "",
    "2017-10-29T02:30:00+03:00[Europe/Berlin]": "not that of Europe/Berlin",
    "2017-03-26 02:30 Europe/Berlin": "skip",
    "2017-13-29 02:30": "month",
    "2017-10-29 24:01": "hour",
    "2017-10-29 1:30 PM": "24 hours",
    "2017-10-29x02:30": "",
    "03/01/2026": "2026-01-03 or 2026-03-01",
    "1.3.2026 12:00": "2026-03-01 or 2026-01-03",
    "01-11-2026 07:00": "2026-11-01 or 2026-01-11",
    "13/13/2026": "no such day",
    "Marathon 3 2026": "no time",
    "Mon Marathon 3 2026": "no time",
    "Foo Mar 3 2026": "no time",
    "3-Decimal-2026": "no time",
    "Tue Mar  2 08:00:00 2026": "2026-03-02 is a Monday",
    "Mon, 01 Mar 2026 12:00:00 GMT": "2026-03-01 is a Sunday",
    "46082.5": "2026-03-01 12:00",
    "202603011200": "2026-03-01 12:00, or a count of milliseconds: 1976",
    "99999999999999": "no instant",
    "9" * 20: "no instant",
    "noon": "no time",
    "": "no time",
    "true": "no time",
    "nan": "no time",
}


@pytest.mark.parametrize(("text", "said"), REFUSED.items(), ids=REFUSED)
def test_what_is_no_instant_is_refused(text: str, said: str) -> None:
    """Both readings are named where there are two."""
    with pytest.raises(ValueError, match=r".+") as caught:
        instant_seconds(text)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("text", "has"),
    [("2017-10-29 02:30", False), ("2017-10-29", False), ("20171029003000", False), ("1509237000", True),
     ("2017-10-29T02:30Z", True), ("2017-10-29-05:00", True), ("Sun, 29 Oct 2017 00:30:00 GMT", True)],
)  # fmt: skip
def test_a_time_says_whether_it_names_its_zone(text: str, has: bool) -> None:
    """A day alone names none."""
    assert has_zone(text) is has


# 1 d 2 h 3 min 4 s are 93784 seconds.
RUN_TIMES = {
    "93784": 93784.0,
    "26:03:04": 93784.0,
    "1-02:03:04": 93784.0,
    "1 day, 2:03:04": 93784.0,
    "1 days 02:03:04": 93784.0,
    "P1DT2H3M4S": 93784.0,
    "PT26H3M4S": 93784.0,
    "1d 2h 3m 4s": 93784.0,
    "1d2h3min4s": 93784.0,
    "1 day, 2 hours and 3 minutes": 93780.0,
    "93784s": 93784.0,
    "93784000 ms": 93784.0,
    "93784000000\u00b5s": 93784.0,
    "90m": 5400.0,
    "1.5 h": 5400.0,
    "1,5 h": 5400.0,
    "P1W": 604800.0,
    "0:00:00.5": 0.5,
    "0": 0.0,
}


@pytest.mark.parametrize(("text", "seconds"), RUN_TIMES.items(), ids=map(ascii, RUN_TIMES))
def test_a_run_time_is_seconds(text: str, seconds: float) -> None:
    """By its clock or its units."""
    assert duration_seconds(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("text", "said"),
    [("1:30", "1:30:00 or 0:01:30"), ("P1M", "no fixed length"), ("P1Y", "no fixed length"),
     ("1,250s", "may be"),
     ("1-25:00:00", "no such time"), ("1:60:00", "no such time"), ("2m 1h", "no run time"),
     ("1 fortnight", "no"),
     ("-1h", "no run time"), ("", "no run time"), ("h", "no run time"), ("P", "no run time"),
     ("1h 5", "no run")],
)  # fmt: skip
def test_what_is_no_run_time_or_two_is_refused(text: str, said: str) -> None:
    """With both readings where there are two."""
    with pytest.raises(ValueError, match=said):
        duration_seconds(text)
