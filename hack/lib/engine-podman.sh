# shellcheck shell=bash
# podman in a rig: no service; its programs and libraries are laid over the rig's root. Sourced by rig-inner.sh.

# lay_over ROOT: what make_root calls before the root is entered.
lay_over() {
    local dir=$RIG_REPO/build/engines/$RIG_ENGINE
    tar -C "$dir" --exclude=./.complete -cf - . | tar -C "$1" --keep-directory-symlink -xf -
}

configure_engine() {
    local name
    mkdir -p /etc/containers "$RIG_STATE/podman"
    cat >/etc/containers/storage.conf <<TOML
[storage]
driver = "overlay"
graphroot = "$RIG_STATE/podman"
runroot = "/run/containers/storage"
TOML
    {
        # No systemd here; netavark's rules by iptables. A cgroup2 mount beside v1 has no pids controller.
        cat <<'TOML'
[containers]
log_driver = "k8s-file"
pids_limit = 0
[network]
network_backend = "netavark"
firewall_driver = "iptables"
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
runtime = "runc"
# To these it gives --log, and shows the error as it is; of another only what it wrote to standard error.
runtime_supports_json = ["crun", "runc", "agentbox", "agentbox-strict", "agentbox-standard", "agentbox-permissive",
  "agentbox-unconfined"]
[engine.runtimes]
TOML
        for name in agentbox agentbox-strict agentbox-standard agentbox-permissive agentbox-unconfined; do
            echo "$name = [\"/usr/local/bin/$name\"]"
        done
    } >/etc/containers/containers.conf
}

start_engine() { podman info >"$RIG_STATE/engine.log" 2>&1 || die "podman does not work: $(tail -3 "$RIG_STATE/engine.log")"; }

remove_containers() {
    timeout 60 podman rm --all --force --volumes >/dev/null || say "some containers could not be removed"
    podman pod rm --all --force >/dev/null || say "some pods could not be removed"
}

image_ids() { podman images -q --no-trunc; }
load_image() { podman load -q -i "$1" >/dev/null; }
prune_images() { podman image prune -f >/dev/null; }
