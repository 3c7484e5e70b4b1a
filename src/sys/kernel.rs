//! uname(2): the kernel's version; getrlimit(2): which limit this process may set.

use rustix::process::{Resource, Rlimit};

/// The limit of core files, soft and hard, with which a crash starts no `core_pattern` program (core(5), "Piping core
/// dumps to a program"): 1, since 0 does not stop a piped one.
pub const NO_CORE: u64 = 1;

/// The limit of core files for child processes: [`NO_CORE`], or 0 if the hard limit is 0 and this process may not raise
/// it (sudoers(5), limits.conf(5) and `--ulimit core=0` set it so).
pub fn core_bytes() -> u64 {
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    if rustix::process::getrlimit(Resource::Core) != none {
        return NO_CORE;
    }
    let raised = Rlimit {
        current: Some(0),
        maximum: Some(NO_CORE),
    };
    match rustix::process::setrlimit(Resource::Core, raised) {
        Ok(()) => NO_CORE,
        Err(_) => 0,
    }
}

/// Sets this process's limit of core files to [`core_bytes`].
pub fn limit_core() -> rustix::io::Result<()> {
    let bytes = Some(core_bytes());
    let both = Rlimit {
        current: bytes,
        maximum: bytes,
    };
    rustix::process::setrlimit(Resource::Core, both)
}

/// The kernel's version: the first two numbers of its release; zeros if missing.
pub fn version() -> (u32, u32) {
    parse(&rustix::system::uname().release().to_string_lossy())
}

fn parse(release: &str) -> (u32, u32) {
    let mut numbers = release
        .split(|c: char| !c.is_ascii_digit())
        .map(|n| n.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_first_two_numbers_of_a_release() {
        assert_eq!(parse("6.1.0-37-amd64"), (6, 1));
        assert_eq!(parse("5.15.167.4-microsoft-standard-WSL2"), (5, 15));
        assert_eq!(parse("next"), (0, 0));
    }
}
