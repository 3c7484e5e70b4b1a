#!/usr/bin/env bash
# Starts servers of Debian's packages in the small internet that up.sh made, and waits until each of them listens.
#   real.sh DIR    the directory of up.sh
set -euo pipefail
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
DIR=$1
[ -n "${AGENTBOX_RIG:-}" ] || { echo "real.sh: only inside a rig (hack/rig)" >&2; exit 1; }
export PYTHONPATH=$HERE PYTHONDONTWRITEBYTECODE=1
serve() { ip netns exec internet "$@" >>"$DIR/real.log" 2>&1 </dev/null & }
serve /usr/bin/gunicorn --bind 198.51.100.12:9104 --certfile "$DIR/server.pem" --keyfile "$DIR/server.key" real:flask_app
serve /usr/bin/php -S 198.51.100.12:9105 "$HERE/real.php"
serve /usr/bin/python3 -m uvicorn --host 198.51.100.12 --port 9106 real:starlette_app
for port in 9104 9105 9106; do
    for _ in $(seq 200); do
        ip netns exec internet bash -c "exec 3<>/dev/tcp/198.51.100.12/$port" 2>/dev/null && continue 2
        sleep 0.1
    done
    cat "$DIR/real.log" >&2
    exit 1
done
