//! uname(2): which kernel this is; getrlimit(2): what it lets this process set.

use rustix::process::{Resource, Rlimit};

/// The limit of core files, soft and hard, with which a crash starts no `core_pattern` program (core(5), "Piping core dumps to a
/// program"): 1, since with 0 a piped one still starts its helper.
pub const NO_CORE: u64 = 1;

/// The limit of core files that a process of this one's can be given: [`NO_CORE`], or 0 where the hard limit is 0 and this process
/// may not raise it (sudoers(5), limits.conf(5) and `--ulimit core=0` set it so).
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

/// The kernel's version, by the first two numbers of its release; zeros where there is none.
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
    fn a_release_is_read_by_its_first_two_numbers() {
        assert_eq!(parse("6.1.0-37-amd64"), (6, 1));
        assert_eq!(parse("5.15.167.4-microsoft-standard-WSL2"), (5, 15));
        assert_eq!(parse("next"), (0, 0));
    }
}
