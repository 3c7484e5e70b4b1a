#!/usr/bin/env bash
# Makes the small internet in a network namespace beside the caller's: only inside a rig, whose namespaces are its own.
#   up.sh DIR    DIR gets authority.crt (what clients trust), witness.jsonl (what arrived) and server.log
set -euo pipefail
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
DIR=$1
[ -n "${AGENTBOX_RIG:-}" ] || { echo "up.sh: only inside a rig (hack/rig)" >&2; exit 1; }
mkdir -p "$DIR"
[ ! -e "$DIR/ready" ] || exit 0

ip netns add internet
ip link add uplink type veth peer name world netns internet
ip addr add 203.0.113.1/24 dev uplink
ip -6 addr add 2001:db8:ffff::1/64 dev uplink nodad
ip link set uplink up
in_world() { ip netns exec internet "$@"; }
in_world ip link set lo up
in_world ip addr add 203.0.113.2/24 dev world
in_world ip addr add 203.0.113.3/24 dev world
in_world ip -6 addr add 2001:db8:ffff::2/64 dev world nodad
in_world ip link set world up
for address in 198.51.100.{10,11,12,13,53}/32 10.9.9.9/32 169.254.169.254/32 100.64.0.1/32 \
    168.63.129.16/32 100.100.100.200/32; do
    in_world ip addr add "$address" dev lo
done
for address in 2001:db8::{10,11,12}/128; do
    in_world ip -6 addr add "$address" dev lo nodad
done
# Both ways: answers find the engine's bridges through the rig, which masquerades.
in_world ip route add default via 203.0.113.1
in_world ip -6 route add default via 2001:db8:ffff::1
# Everything that a container could ask for leads to the witness, metadata and private addresses included.
ip route replace default via 203.0.113.2
for net in 10.9.9.0/24 169.254.0.0/16 100.64.0.0/10 198.51.100.0/24; do
    ip route replace "$net" via 203.0.113.2
done
ip -6 route replace default via 2001:db8:ffff::2
echo "nameserver 198.51.100.53" >/etc/resolv.conf

openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 30 -subj "/CN=test authority" \
    -addext "basicConstraints=critical,CA:TRUE" -keyout "$DIR/ca.key" -out "$DIR/authority.crt" 2>/dev/null
openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj "/CN=example.test" \
    -keyout "$DIR/server.key" -out "$DIR/server.csr" 2>/dev/null
printf 'subjectAltName=DNS:example.test,DNS:*.example.test\nbasicConstraints=CA:FALSE\n' >"$DIR/ext"
openssl x509 -req -in "$DIR/server.csr" -CA "$DIR/authority.crt" -CAkey "$DIR/ca.key" -CAcreateserial -days 30 \
    -extfile "$DIR/ext" -out "$DIR/server.pem" 2>/dev/null
: >"$DIR/witness.jsonl"
python3 -B "$HERE/index.py" "$DIR/files"
ip netns exec internet python3 -B "$HERE/server.py" --witness "$DIR/witness.jsonl" \
    --cert "$DIR/server.pem" --key "$DIR/server.key" --files "$DIR/files" >"$DIR/server.log" 2>&1 </dev/null &
for _ in $(seq 100); do
    if grep -q ready "$DIR/server.log"; then
        touch "$DIR/ready"
        exit 0
    fi
    sleep 0.1
done
cat "$DIR/server.log" >&2
exit 1
