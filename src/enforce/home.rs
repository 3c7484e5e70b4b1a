//! HOME of a process without one: from the container's /etc/passwd, parsed by our own few lines.
//!
//! libcontainer calls getpwuid(3), and glibc loads the library named in the image's /etc/nsswitch.conf into the
//! container's init process. That process still holds CAP_SYS_ADMIN of the node and has no filter (the class of
//! CVE-2019-14271). libcontainer does so only if HOME is missing or empty, so it always finds one: [`settle`] sets a
//! mark, and [`resolve`] replaces the mark by the home directory once the container's files are mounted.

use std::io::Read;

use oci_spec::runtime::Process;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};

use crate::plan::{FileKind, passwd};

const KEY: &str = "HOME=";

/// Stands for an unknown home directory; not a valid path, since it is not absolute.
const MARK: &str = "HOME=of-the-user-in-etc-passwd";

/// The largest /etc/passwd that is read, in bytes; images have far fewer users.
const LARGEST: u64 = 1 << 20;

/// Makes sure that libcontainer finds HOME: the given one, else the mark. As in runc, the last of several counts, and
/// an empty one counts as missing.
pub fn settle(process: &mut Process) {
    let mut env = process.env().clone().unwrap_or_default();
    let last = env.iter().rev().find(|e| e.starts_with(KEY));
    let given = last.is_some_and(|e| e.len() > KEY.len());
    // Of two libcontainer takes the last, and takes `HOME` without `=` for an empty one.
    env.retain(|e| match e.strip_prefix("HOME") {
        Some("" | "=") => false,
        Some(rest) => given || !rest.starts_with('='),
        None => true,
    });
    if !given {
        env.push(MARK.to_owned());
    }
    process.set_env(Some(env));
}

/// Replaces the mark by this user's home directory. Called in the container.
pub fn resolve(env: &mut [String], uid: u32) {
    for variable in env.iter_mut().filter(|e| *e == MARK) {
        let home = read_passwd().and_then(|text| find(&text, uid));
        *variable = format!("{KEY}{}", home.as_deref().unwrap_or("/"));
    }
}

/// The container's /etc/passwd, if it is a regular file of ordinary size: a pipe would block.
fn read_passwd() -> Option<String> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let resolve = ResolveFlags::NO_MAGICLINKS;
    let fd = rustix::fs::openat2(CWD, "/etc/passwd", flags, Mode::empty(), resolve).ok()?;
    let stat = rustix::fs::fstat(&fd).ok()?;
    if FileKind::of(stat.st_mode) != FileKind::File {
        return None;
    }
    let mut bytes = Vec::new();
    let mut file = std::fs::File::from(fd).take(LARGEST);
    file.read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// The home of the user with this uid.
fn find(text: &str, uid: u32) -> Option<String> {
    let home = passwd::lines(text).find(|user| user.uid == uid)?.home;
    (!home.is_empty() && !home.contains('\0')).then(|| home.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settled(env: &[&str]) -> Vec<String> {
        let mut process = Process::default();
        process.set_env(Some(env.iter().map(ToString::to_string).collect()));
        settle(&mut process);
        process.env().clone().unwrap_or_default()
    }

    #[test]
    fn libcontainer_always_finds_a_home() {
        for none in [
            &[][..],
            &["HOME="],
            &["HOME=/a", "HOME="],
            &["PATH=/bin", "HOME"],
        ] {
            let env = settled(none);
            assert_eq!(env.last().map(String::as_str), Some(MARK), "{none:?}");
            assert!(!env.contains(&KEY.to_owned()), "{none:?}");
        }
        assert_eq!(settled(&["HOME=", "HOME=/a", "HOME"]), ["HOME=/a"]);
        assert_eq!(settled(&["HOMES", "HOME=/a"]), ["HOMES", "HOME=/a"]);
        assert_eq!(settled(&["HOME=/a", "A=b"]), ["HOME=/a", "A=b"]);
        assert_eq!(settled(&[MARK]), [MARK]);
    }

    #[test]
    fn a_home_is_the_sixth_field_of_the_users_line() {
        let text = "root:x:0:0::/root:/bin/sh\nbroken\nempty:x:7:7:::\nme:x:1000:1000:Me:/home/me\nme2:x:1000:1::/other:\n";
        assert_eq!(find(text, 0).as_deref(), Some("/root"));
        assert_eq!(find(text, 1000).as_deref(), Some("/home/me"));
        for nobody in [7, 1, u32::MAX] {
            assert_eq!(find(text, nobody), None);
        }
    }

    #[test]
    fn only_the_mark_is_replaced() {
        let mut env = ["A=b".to_owned(), "HOME=/given".to_owned()];
        resolve(&mut env, 0);
        assert_eq!(env, ["A=b", "HOME=/given"]);
        let mut env = [MARK.to_owned()];
        resolve(&mut env, u32::MAX);
        assert_eq!(env, ["HOME=/"]);
    }
}
