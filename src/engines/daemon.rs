//! PURE. Where engines' daemons and tools have their configuration and their sockets.

/// dockerd's default socket.
pub const DOCKER_SOCKET: &str = "/run/docker.sock";
/// dockerd's pid file.
pub const DOCKER_PID: &str = "/run/docker.pid";
/// dockerd's configuration.
pub const DOCKER_CONFIG: &str = "/etc/docker/daemon.json";
/// The directory of [`DOCKER_CONFIG`].
pub const DOCKER_CONFIGS: &str = "/etc/docker";
/// containerd's configuration.
pub const CONTAINERD_CONFIG: &str = "/etc/containerd/config.toml";
/// The directory of podman's and CRI-O's configuration.
pub const PODMAN_CONFIGS: &str = "/etc/containers";
/// podman's files, lowest priority first (containers.conf(5)). The second is the administrator's.
pub const PODMAN_CONFIG: [&str; 2] = [
    "/usr/share/containers/containers.conf",
    "/etc/containers/containers.conf",
];
/// The directory of podman's drop-in files, which apply in order of their names.
pub const PODMAN_MORE: &str = "/etc/containers/containers.conf.d";
