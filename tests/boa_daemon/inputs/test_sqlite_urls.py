"""`inputs/sqlite_urls.py`: what is written into a URL is read from it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from boa_daemon.inputs.sqlite_urls import path_from_url, sqlite_url
from boa_daemon.store.database_setup import parsed_url

# A path has no zero, and a driver takes no half of a sign.
PATHS = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), min_size=1, max_size=20)


@given(path=PATHS)
def test_a_path_goes_into_a_url_and_comes_back(path: str) -> None:
    """Whatever signs it has; a query behind it is no part of it."""
    assert path_from_url(sqlite_url(path)) == path
    assert path_from_url(f"{sqlite_url(path)}?mode=ro") == path


@given(path=PATHS.map(lambda name: f"/{name.strip()}x"))
def test_the_database_is_opened_at_that_path(path: str) -> None:
    """SQLAlchemy gets the path, and not what stands in the URL."""
    assert parsed_url(sqlite_url(path)).database == path
