"""`slurm/class_comment.py`: what BOA plans a job of Slurm by."""

from __future__ import annotations

import pytest

from boa_daemon.slurm.class_comment import read_class_comment, speaks_to_boa


@pytest.mark.parametrize(
    ("comment", "found"),
    [
        ("", {}),
        ("grant 17", {}),
        ("boa:class=vision", {"class": "vision"}),
        ("grant 17 boa:class=vision, elastic", {"class": "vision", "elastic": "true"}),
        ("BOA:Class=Vision,ELASTIC=True", {"class": "Vision", "elastic": "true"}),
        ("boa: class = vision ; elastic,", {"class": "vision", "elastic": "true"}),
        ("boa:class=\"vision\",'elastic'", {"class": "vision", "elastic": "true"}),
        ('"boa:class=vision"', {"class": "vision"}),
        ("grant 17 | boa:class=vision", {"class": "vision"}),
        ("grant 17,boa:class=vision,boa:elastic", {"class": "vision", "elastic": "true"}),
        ("boa:class=vision boa:elastic", {"class": "vision", "elastic": "true"}),
        ("boa:class=vision\nboa:elastic", {"class": "vision", "elastic": "true"}),
        ("see http://boa:8080/ and s3://team/boa:x", {}),
        ("balboa:class=vision", {}),
        ("boa constrictor", {}),
        ("boa:train-17:g3:0a1b2c3d", {}),
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
    assert speaks_to_boa(comment) == bool(found)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("clas=vision", "boa:clas is not known. Did you mean 'class'?"),
        ("max-gpus=4", "boa:max-gpus is not known. Did you mean 'max_gpus'?"),
        ("class=nlp", "boa:class is given twice"),
        ("elastic,elastic=false", "boa:elastic is given twice"),
        ("max_gpus=1,250", "boa:250 is not known"),
        ("max_gpus=8.0", "must be a whole number from 1; got '8.0'"),
        ("max_gpus=\u0668", "must be a number"),
        ("max_gpus=8 elastic", "boa:max_gpus must be a number; got '8 elastic'"),
        ("; grant 17", "boa:grant 17 is not known"),
        ("elastic grant 17", "boa:elastic grant 17 is not known"),
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


@pytest.mark.parametrize(
    ("comment", "said"),
    [
        ("boa:", "boa: names no key"),
        ("boa:,", "boa: names no key"),
        ("boa:class", "boa:class has no value"),
        ("boa:class=", "boa:class has no value"),
        ("boa:class=''", "boa:class has no value"),
        ("boa:class=vision elastic", "has a space in its value 'vision elastic'"),
        ("boa:vision", "boa:vision is not known"),
        ("boa:clas=vision", "Did you mean 'class'?"),
        ("BOA : Klass=vision", "boa:Klass is not known. Did you mean 'class'?"),
    ],
)
def test_what_speaks_to_boa_and_says_nothing_is_refused(comment: str, said: str) -> None:
    """A comment with `boa:` is never taken for one of people alone."""
    assert speaks_to_boa(comment)
    with pytest.raises(ValueError, match="comment") as caught:
        read_class_comment(comment)
    assert said in str(caught.value)
