#!/bin/bash
# The lease of a node, and its reaction to a spot warning. Runs on every rented node from its first boot.
#
# The daemon writes the end of the lease into the tag boa:lease and renews it. The node reads the tag from its
# own metadata, without credentials. When the lease ends the node powers itself off; it was launched so that
# powering off terminates it and ends its bill. While the metadata cannot be read, the last known lease holds:
# silence never prolongs it.
#
# On a spot warning the script writes the notice to $BOA_RUN/interruption.json and runs $BOA_ON_WARNING once.
set -u
BOA_LEASE="${BOA_LEASE:-@LEASE@}"
BOA_IMDS="${BOA_IMDS:-http://169.254.169.254}"
BOA_RUN="${BOA_RUN:-/run/boa}"
BOA_POLL_SECONDS="${BOA_POLL_SECONDS:-5}"
BOA_POWEROFF="${BOA_POWEROFF:-shutdown -h now}"
BOA_ON_WARNING="${BOA_ON_WARNING:-/opt/boa/on-warning}"

get() {
    local token
    token="$(curl -sf -m 2 -X PUT "$BOA_IMDS/latest/api/token" -H 'X-aws-ec2-metadata-token-ttl-seconds: 60')" || return 1
    curl -sf -m 2 -H "X-aws-ec2-metadata-token: $token" "$BOA_IMDS/latest/meta-data/$1"
}

mkdir -p "$BOA_RUN"
lease="$BOA_LEASE"
while true; do
    if tag="$(get tags/instance/boa:lease)" && [[ "$tag" =~ ^[0-9]+$ ]]; then
        lease="$tag"
    fi
    echo "$lease" > "$BOA_RUN/lease.new" && mv "$BOA_RUN/lease.new" "$BOA_RUN/lease"
    if (( $(date +%s) >= lease )); then
        echo "boa: the lease ended at $lease and nobody renewed it: powering off" >&2
        $BOA_POWEROFF
        exit 0
    fi
    if [[ ! -e "$BOA_RUN/interruption.json" ]] && notice="$(get spot/instance-action)" && [[ -n "$notice" ]]; then
        echo "$notice" > "$BOA_RUN/interruption.json.new"
        mv "$BOA_RUN/interruption.json.new" "$BOA_RUN/interruption.json"
        if [[ -x "$BOA_ON_WARNING" ]]; then "$BOA_ON_WARNING" "$BOA_RUN/interruption.json" & fi
    fi
    sleep "$BOA_POLL_SECONDS"
done
