"""How EC2's "no" becomes ours: what is out of reach, and when to ask again.

Throttling closes everything for seconds and says nothing about capacity. No capacity closes one offer, and
the cool-downs grow. A quota closes all types that count against it, in every zone. Denied calls and
credentials stop all launching; releasing does not come this way, so it goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from boa_daemon.backends.aws.errors import CallFailed
from boa_daemon.backends.aws.market import AwsMarket
from boa_daemon.tick.offers import Offer
from boa_daemon.tick.ports import Refused, Unknown

NOT_OFFERED_SECONDS, QUOTA_SECONDS, BAD_REQUEST_SECONDS = 4 * 3600.0, 3600.0, 600.0
DENIED_SECONDS, CREDENTIALS_SECONDS, THROTTLED_SECONDS = 300.0, 60.0, 5.0
TOKEN_SECONDS, SUBNET_SECONDS = 30.0, 1800.0


def refusal_of(error: CallFailed, offer: Offer, market: AwsMarket) -> Refused | Unknown:
    """Return what a failed launch means for the planner."""
    answer = _ANSWERS.get(error.meaning, _bad_request)
    return answer(error, offer, market)


def _no_capacity(error: CallFailed, offer: Offer, market: AwsMarket) -> Refused:
    """One offer rests; the cool-down grows with each refusal in a row."""
    return Refused(reason=str(error), kind="no-capacity", scopes=(offer.key,))


def _not_offered(error: CallFailed, offer: Offer, market: AwsMarket) -> Refused:
    """The zone does not have the type at all: hours."""
    scope = f"{offer.instance_type}/{offer.zone or '*'}"
    return Refused(
        reason=str(error), kind="bad-request", scopes=(scope,), retry_after_seconds=NOT_OFFERED_SECONDS
    )


def _quota(error: CallFailed, offer: Offer, market: AwsMarket) -> Refused:
    """Other zones would say the same, and so would other types of the quota."""
    code = market.quota_code(offer.instance_type, offer.market)
    market.learn_quota(code, error.vcpu_limit)
    names = [name for name in market.settings.instance_types if market.quota_code(name, offer.market) == code]
    return Refused(
        reason=str(error),
        kind="quota",
        scopes=tuple(f"{name}/*/{offer.market}" for name in names or [offer.instance_type]),
        retry_after_seconds=QUOTA_SECONDS,
    )


def _throttled(error: CallFailed, offer: Offer, market: AwsMarket) -> Refused:
    """Everybody waits a few seconds, not all the same; no word about capacity."""
    seconds = THROTTLED_SECONDS * Random(str(error) + offer.key).uniform(1.0, 2.0)
    return Refused(reason=str(error), kind="throttled", scopes=("*",), retry_after_seconds=seconds)


def _subnet_full(error: CallFailed, offer: Offer, market: AwsMarket) -> Refused:
    """The zone rests once all its subnets are full."""
    return Refused(
        reason=str(error),
        kind="no-capacity",
        scopes=(f"*/{offer.zone or '*'}",),
        retry_after_seconds=SUBNET_SECONDS,
    )


def _denied(error: CallFailed, offer: Offer, market: AwsMarket) -> Refused:
    """Nobody may launch until somebody mends the policy or the credentials."""
    seconds = CREDENTIALS_SECONDS if error.meaning == "credentials" else DENIED_SECONDS
    return Refused(reason=str(error), kind="denied", scopes=("*",), retry_after_seconds=seconds)


def _unknown(error: CallFailed, offer: Offer, market: AwsMarket) -> Unknown:
    """It may have been done."""
    return Unknown(reason=str(error))


def _token_reused(error: CallFailed, offer: Offer, market: AwsMarket) -> Refused:
    """The next tick has another id, and so another token."""
    return Refused(reason=str(error), kind="bad-request", retry_after_seconds=TOKEN_SECONDS)


def _bad_request(error: CallFailed, offer: Offer, market: AwsMarket) -> Refused:
    """The settings are wrong for this type; other types may do."""
    return Refused(
        reason=str(error),
        kind="bad-request",
        scopes=(offer.instance_type,),
        retry_after_seconds=BAD_REQUEST_SECONDS,
    )


_ANSWERS: dict[str, Callable[[CallFailed, Offer, AwsMarket], Refused | Unknown]] = {
    "no-capacity": _no_capacity,
    "price": _no_capacity,
    "not-offered": _not_offered,
    "quota": _quota,
    "throttled": _throttled,
    "subnet-full": _subnet_full,
    "denied": _denied,
    "credentials": _denied,
    "unknown": _unknown,
    "token-reused": _token_reused,
}
