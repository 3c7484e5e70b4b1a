//! Asks Docker's daemon for its version, by its socket: a program `docker` may be another machine's, or not be there.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use crate::sys::deadline::Deadline;

/// Where the daemon listens unless it is told otherwise.
pub const SOCKET: &str = "/run/docker.sock";

const WITHIN: Duration = Duration::from_secs(2);
/// An answer is about 2 KiB.
const MOST_BYTES: usize = 64 << 10;

/// The daemon's version.
///
/// # Errors
/// It is not there, does not let the caller ask, or answers something else, or nothing in two seconds.
pub fn version(socket: &Path) -> io::Result<String> {
    let deadline = Deadline::begin(WITHIN, None)?;
    let mut stream = UnixStream::connect(socket)?;
    stream.write_all(b"GET /version HTTP/1.0\r\nHost: docker\r\n\r\n")?;
    let (mut answer, mut part) = (Vec::new(), [0; 4096]);
    while answer.len() < MOST_BYTES && !deadline.has_passed() {
        match stream.read(&mut part)? {
            0 => break,
            n => answer.extend_from_slice(&part[..n]),
        }
    }
    parse(&answer).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

fn parse(answer: &[u8]) -> Option<String> {
    const END_OF_HEAD: &[u8] = b"\r\n\r\n";
    let head = answer.windows(4).position(|part| part == END_OF_HEAD)?;
    let body: serde_json::Value = serde_json::from_slice(&answer[head + 4..]).ok()?;
    Some(body.get("Version")?.as_str()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_read_from_the_answers_body() {
        let answer = b"HTTP/1.0 200 OK\r\nServer: Docker/26\r\n\r\n{\"Version\":\"26.1.5+dfsg1\",\"Os\":\"linux\"}\n";
        assert_eq!(parse(answer).as_deref(), Some("26.1.5+dfsg1"));
        for other in [
            &b""[..],
            b"HTTP/1.0 200 OK\r\n\r\n",
            b"\r\n\r\n{\"Version\":1}",
            b"\r\n\r\n[]",
        ] {
            assert_eq!(parse(other), None);
        }
    }

    #[test]
    fn a_daemon_that_says_nothing_is_not_waited_for() {
        let path = std::env::temp_dir().join(format!("agentbox-silent-{}", std::process::id()));
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let since = std::time::Instant::now();
        assert!(version(&path).is_err());
        assert!(since.elapsed() < Duration::from_secs(10));
        drop(listener);
        std::fs::remove_file(path).unwrap();
    }
}
