//! uname(2): which kernel this is.

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
