//! `--pidfd-socket` (runc 1.2): sends a descriptor of a process over a socket (pidfd_open(2)).

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;

use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::runtime::RuntimeError;

/// Sends a pidfd over a socket, with the name `pidfd`.
pub fn send(socket: &Path, pid: i32) -> Result<(), RuntimeError> {
    let step = || format!("send a pidfd to {socket:?}");
    let pid = Pid::from_raw(pid).ok_or(RuntimeError::NotRunning)?;
    let pidfd = pidfd_open(pid, PidfdFlags::empty()).map_err(RuntimeError::io(step()))?;
    let stream = UnixStream::connect(socket).map_err(RuntimeError::io(step()))?;
    crate::sys::socket::send(stream.as_fd(), b"pidfd", &[pidfd.as_fd()])
        .map_err(RuntimeError::io(step()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn a_descriptor_of_the_process_arrives() {
        let path = std::env::temp_dir().join(format!("agentbox-pidfd-{}", std::process::id()));
        let listener = UnixListener::bind(&path).unwrap();
        let own = i32::try_from(std::process::id()).unwrap();
        send(&path, own).unwrap();
        let (stream, _) = listener.accept().unwrap();
        let received = crate::sys::socket::receive(stream.as_fd(), &mut [0; 16]).unwrap();
        let fd = std::os::fd::AsRawFd::as_raw_fd(&received.fds[0]);
        let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).unwrap();
        assert!(info.contains(&format!("Pid:\t{own}\n")), "{info}");
        std::fs::remove_file(path).unwrap();
    }
}
