#!/usr/bin/env bash
# The work of an agent on an ordinary day, and of an agent that was talked into mischief. hack/demo runs this twice: without
# walls, and behind `agentbox wrap`.
#
# It expects a workspace as its working directory, and in its environment
#   DEMO_HOME  a home directory with an SSH key in it      DEMO_PORT  a port with a server, outside
#   DEMO_PID   a process outside
# Prints one line for each attempt: its name, "done" or "denied", and the system's answer.
set -uo pipefail
# The system's own programs, not those of a home directory.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin

# try WHAT COMMAND...
try() {
    local what=$1 said
    shift
    if said=$("$@" 2>&1); then
        printf '%s\tdone\t\n' "$what"
    else
        printf '%s\tdenied\t%s\n' "$what" "$(tail -n 1 <<<"$said" | cut -c 1-70)"
    fi
}

# call NAME NUMBER ARGUMENTS: one system call, which has no effect outside of this process.
call() {
    python3 - "$@" <<'PY'
import ctypes, os, sys
name, *numbers = sys.argv[1:]
libc = ctypes.CDLL(None, use_errno=True)
# An answer about the arguments means that the call itself was allowed.
if libc.syscall(*(ctypes.c_long(int(number)) for number in numbers)) == -1:
    error = ctypes.get_errno()
    if error in (1, 38):
        sys.exit(f"{name}: {os.strerror(error)}")
PY
}

connect_to() {
    python3 - "$1" "$2" <<'PY'
import socket, sys
try:
    with socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=3) as s:
        s.sendall(b"secret")
        if s.recv(1) != b"k":
            sys.exit("no answer")
except OSError as error:
    sys.exit(str(error))
PY
}

raw_socket() {
    python3 -c '
import socket, sys
try:
    socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
except OSError as error:
    sys.exit(str(error))'
}

own_server() {
    python3 -c '
import socket
server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(server.getsockname())
client.sendall(b"x")
assert server.accept()[0].recv(1) == b"x"'
}

# A file without a name in a directory: it could be written there, and is gone again.
write_to() {
    python3 - "$1" <<'PY'
import os, sys
try:
    os.close(os.open(sys.argv[1], os.O_TMPFILE | os.O_WRONLY, 0o600))
except OSError as error:
    sys.exit(f"{sys.argv[1]}: {error.strerror}")
PY
}

# The work.
try "write a file in the workspace" bash -c 'echo "print(6 * 7)" >answer.py'
try "run a program on it" bash -c '[ "$(python3 answer.py)" = 42 ]'
try "use a temporary file" bash -c 'f=$(mktemp) && echo x >"$f" && rm "$f"'
try "read the system's libraries" test -r /usr/bin/env
try "serve and connect on loopback" own_server

# The rest.
try "read the SSH key" cat "$DEMO_HOME/.ssh/id_ed25519"
try "write to /etc" write_to /etc
try "write to /usr/bin" write_to /usr/bin
try "find the token in the environment" bash -c 'echo "${DEMO_TOKEN:?is not there}"'
try "send data to a server" connect_to 127.0.0.1 "$DEMO_PORT"
try "signal a process outside" kill -0 "$DEMO_PID"
try "make a raw socket" raw_socket
try "trace a process" call ptrace 101 0 0 0 0
try "use io_uring" call io_uring_setup 425 1 0
try "make a user namespace" unshare --user true
try "mount something" call mount 165 0 0 0 0 0
try "load a kernel program" call bpf 321 0 0 0
try "read the kernel's keyring" call keyctl 250 0 -3 0
