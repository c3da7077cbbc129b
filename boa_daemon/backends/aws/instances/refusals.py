"""Convert errors of EC2 launches to refusals: which offers are closed, and for how long.

Throttling closes all offers for seconds and says nothing about capacity. Missing capacity closes one offer,
with growing cool-downs. A quota closes all types that count against it, in every zone. Denied calls and bad
credentials stop all launches; ending instances does not use this module and continues.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from boa_daemon.backends.aws.client.errors import CallFailed
from boa_daemon.backends.aws.instances.market import AwsMarket
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
    """Close one offer; the cool-down grows with each refusal in a row."""
    return Refused(reason=str(error), kind="no-capacity", scopes=(offer.key,))


def _not_offered(error: CallFailed, offer: Offer, market: AwsMarket) -> Refused:
    """Close the type in this zone for hours: the zone does not have it."""
    scope = f"{offer.instance_type}/{offer.zone or '*'}"
    return Refused(
        reason=str(error), kind="bad-request", scopes=(scope,), retry_after_seconds=NOT_OFFERED_SECONDS
    )


def _quota(error: CallFailed, offer: Offer, market: AwsMarket) -> Refused:
    """Close every type of the quota in all zones."""
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
    """Close all offers for a few seconds, with jitter; this says nothing about capacity."""
    seconds = THROTTLED_SECONDS * Random(str(error) + offer.key).uniform(1.0, 2.0)
    return Refused(reason=str(error), kind="throttled", scopes=("*",), retry_after_seconds=seconds)


def _subnet_full(error: CallFailed, offer: Offer, market: AwsMarket) -> Refused:
    """Close the zone: all its subnets are full."""
    return Refused(
        reason=str(error),
        kind="no-capacity",
        scopes=(f"*/{offer.zone or '*'}",),
        retry_after_seconds=SUBNET_SECONDS,
    )


def _denied(error: CallFailed, offer: Offer, market: AwsMarket) -> Refused:
    """Stop all launches until the policy or the credentials are mended."""
    seconds = CREDENTIALS_SECONDS if error.meaning == "credentials" else DENIED_SECONDS
    return Refused(reason=str(error), kind="denied", scopes=("*",), retry_after_seconds=seconds)


def _unknown(error: CallFailed, offer: Offer, market: AwsMarket) -> Unknown:
    """Return an unknown outcome: the launch may have happened."""
    return Unknown(reason=str(error))


def _token_reused(error: CallFailed, offer: Offer, market: AwsMarket) -> Refused:
    """Drop the request: the next tick has another action id, and so another token."""
    return Refused(reason=str(error), kind="bad-request", retry_after_seconds=TOKEN_SECONDS)


def _bad_request(error: CallFailed, offer: Offer, market: AwsMarket) -> Refused:
    """Close this type: the settings are wrong for it, but other types may work."""
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
