"""`slurm/class_comment.py`: what BOA plans a job of Slurm by."""

from __future__ import annotations

import pytest

from boa_daemon.slurm.class_comment import names_class, read_class_comment


@pytest.mark.parametrize(
    ("comment", "found"),
    [
        ("", {}),
        ("grant 17", {}),
        ("boa:class=vision", {"class": "vision"}),
        ("grant 17 boa:class=vision, elastic", {"class": "vision", "elastic": "true"}),
        ("boa:min_gpus=1,max_gpus=8,scale=0.5", {"min_gpus": "1", "max_gpus": "8", "scale": "0.5"}),
        (
            "boa:class=vision,elastic=false,tasks=true",
            {"class": "vision", "elastic": "false", "tasks": "true"},
        ),
    ],
)
def test_a_comment_has_keys_with_values(comment: str, found: dict[str, str]) -> None:
    """A key alone is true; what stands before `boa:` is a note for people."""
    assert read_class_comment(comment) == found
    assert names_class(comment) == ("class" in found)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("clas=vision", "boa:clas is not known"),
        ("min_gpus=2.5", "boa:min_gpus must be a whole number from 1; got '2.5'"),
        ("max_gpus=0", "boa:max_gpus must be a whole number from 1; got '0'"),
        ("weight", "boa:weight must be a number; got ''"),
        ("weight=-1", "boa:weight must be a number; got '-1'"),
        ("weight=0", "boa:weight must be more than zero; got '0'"),
        ("scale=0.00", "boa:scale must be more than zero; got '0.00'"),
        ("max_usd=0", "boa:max_usd must be more than zero; got '0'"),
        ("elastic=no", "boa:elastic must be true or false; got 'no'"),
        ("shrink=", "boa:shrink must be true or false; got ''"),
        ("tasks=4", "boa:tasks must be true or false; got '4'"),
    ],
)
def test_what_may_mean_something_else_is_refused(given: str, said: str) -> None:
    """`elastic=no` is not elastic, and with a weight of zero no job's width could be decided."""
    with pytest.raises(ValueError, match="comment") as caught:
        read_class_comment(f"boa:class=vision,{given}")
    assert said in str(caught.value)
