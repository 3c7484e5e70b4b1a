//! Asks Docker's daemon by its socket: a program `docker` may talk to another machine, or be missing.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::sys::deadline::Deadline;

/// The daemon asks containerd and its plugins before it answers.
const WITHIN: Duration = Duration::from_secs(5);
/// Poll interval of [`await_runtime`].
const PAUSE: Duration = Duration::from_millis(100);
/// An answer has a few KiB, more with many insecure registries or warnings.
const MOST_BYTES: usize = 256 << 10;

/// The daemon's answer about itself.
#[derive(Debug, PartialEq, Eq)]
pub struct DaemonInfo {
    /// Its version.
    pub version: String,
    /// The program of its runtime `agentbox`; an empty path if the runtime is there and names none.
    pub runtime: Option<PathBuf>,
}

/// Asks the daemon about itself.
///
/// # Errors
/// The daemon is missing, refuses the caller, gives another answer, or none within five seconds.
pub fn info(socket: &Path) -> io::Result<DaemonInfo> {
    let deadline = Deadline::begin(WITHIN, None)?;
    let mut stream = UnixStream::connect(socket)?;
    stream.write_all(b"GET /info HTTP/1.0\r\nHost: docker\r\n\r\n")?;
    let (mut answer, mut part) = (Vec::new(), [0; 4096]);
    while answer.len() < MOST_BYTES && !deadline.has_passed() {
        match stream.read(&mut part)? {
            0 => break,
            n => answer.extend_from_slice(&part[..n]),
        }
    }
    parse(&answer).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Waits until the daemon lists this program as its runtime `agentbox`. Returns whether it does.
pub fn await_runtime(socket: &Path, program: &Path, within: Duration) -> bool {
    let since = Instant::now();
    loop {
        let found = info(socket).ok().and_then(|info| info.runtime);
        if found.as_deref() == Some(program) {
            return true;
        }
        if since.elapsed() >= within {
            return false;
        }
        std::thread::sleep(PAUSE);
    }
}

fn parse(answer: &[u8]) -> Option<DaemonInfo> {
    const END_OF_HEAD: &[u8] = b"\r\n\r\n";
    let head = answer.windows(4).position(|part| part == END_OF_HEAD)?;
    let body: Value = serde_json::from_slice(&answer[head + 4..]).ok()?;
    let runtime = body.get("Runtimes")?.as_object()?.get("agentbox");
    Some(DaemonInfo {
        version: body.get("ServerVersion")?.as_str()?.to_owned(),
        runtime: runtime.map(program),
    })
}

/// The program of a runtime: its own path, or a shim's option (dockerd 23 and later).
fn program(runtime: &Value) -> PathBuf {
    let path = runtime.get("path").and_then(Value::as_str);
    let option = |name| runtime.get("options")?.get(name)?.as_str();
    let path = path.filter(|path| !path.is_empty());
    path.or_else(|| option("BinaryName"))
        .unwrap_or_default()
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_and_the_runtime_are_read_from_the_answers_body() {
        let said = |runtimes: &str| {
            let head = "HTTP/1.0 200 OK\r\nServer: Docker/26\r\n\r\n";
            let text =
                format!("{head}{{\"ServerVersion\":\"26.1.5+dfsg1\",\"Runtimes\":{runtimes}}}\n");
            let info = parse(text.as_bytes()).unwrap();
            assert_eq!(info.version, "26.1.5+dfsg1");
            info.runtime
        };
        let path = |text: &str| Some(PathBuf::from(text));
        assert_eq!(said(r#"{"agentbox":{"path":"/bin/a"}}"#), path("/bin/a"));
        let shim = r#"{"agentbox":{"path":"","runtimeType":"io.containerd.runc.v2","options":{"BinaryName":"/bin/b"}}}"#;
        assert_eq!(said(shim), path("/bin/b"));
        assert_eq!(said(r#"{"agentbox":{"runtimeType":"x"}}"#), path(""));
        let others = r#"{"runc":{"path":"runc"},"agentbox-strict":{"path":"/bin/a"}}"#;
        assert_eq!(said(others), None);
        for other in [
            &b""[..],
            b"HTTP/1.0 200 OK\r\n\r\n",
            b"\r\n\r\n{\"ServerVersion\":1,\"Runtimes\":{}}",
            b"\r\n\r\n{\"ServerVersion\":\"26\"}",
            b"\r\n\r\n{\"message\":\"no\"}",
            b"\r\n\r\n[]",
        ] {
            assert_eq!(parse(other), None);
        }
    }

    /// A reload returns before the daemon has read its file.
    #[test]
    fn the_runtime_is_awaited_until_the_daemon_lists_it() {
        let path = std::env::temp_dir().join(format!("agentbox-slow-{}", std::process::id()));
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let answers = [
            "",
            r#""agentbox":{"path":"/bin/old"}"#,
            r#""agentbox":{"path":"/bin/a"}"#,
        ];
        let daemon = std::thread::spawn(move || {
            for runtimes in answers {
                let (mut stream, _) = listener.accept().unwrap();
                let mut request = [0; 100];
                assert!(stream.read(&mut request).unwrap() > 0);
                let body = format!("{{\"ServerVersion\":\"26\",\"Runtimes\":{{{runtimes}}}}}");
                write!(stream, "HTTP/1.0 200 OK\r\n\r\n{body}").unwrap();
            }
        });
        let program = Path::new("/bin/a");
        assert!(await_runtime(&path, program, Duration::from_secs(60)));
        daemon.join().unwrap();
        // Nothing answers now.
        assert!(!await_runtime(&path, program, Duration::ZERO));
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_silent_daemon_is_not_waited_for() {
        let path = std::env::temp_dir().join(format!("agentbox-silent-{}", std::process::id()));
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let since = std::time::Instant::now();
        assert!(info(&path).is_err());
        assert!(since.elapsed() < Duration::from_secs(20));
        drop(listener);
        std::fs::remove_file(path).unwrap();
    }
}
