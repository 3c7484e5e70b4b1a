//! Paths inside and outside of the container (before and after `pivot_root`), as two types that cannot be mixed up.

use std::path::Path;

use crate::text::text_type;

/// The kernel's PATH_MAX counts the NUL that ends a path (limits.h).
const LONGEST: usize = 4095;

const GRAMMAR: &str = "an absolute path of at most 4095 bytes without `.`, `..`, empty components, \
                       a trailing slash or control characters";

text_type! {
    /// A path inside the container: absolute, without `.`, `..` or empty components.
    GuestPath,
    GRAMMAR,
    is_normal
}

impl AsRef<Path> for GuestPath {
    fn as_ref(&self) -> &Path {
        Path::new(&self.0)
    }
}

text_type! {
    /// A path on the node: absolute, without `.`, `..` or empty components.
    HostPath,
    GRAMMAR,
    is_normal
}

impl AsRef<Path> for HostPath {
    fn as_ref(&self) -> &Path {
        Path::new(&self.0)
    }
}

impl GuestPath {
    /// Whether this is the container's root itself.
    pub fn is_root(&self) -> bool {
        self.0 == "/"
    }
}

/// Whether a string is an absolute path without `.`, `..` or empty components.
fn is_normal(value: &str) -> bool {
    let Some(rest) = value.strip_prefix('/') else {
        return false;
    };
    value.len() <= LONGEST
        && !value.chars().any(char::is_control)
        && (rest.is_empty()
            || rest
                .split('/')
                .all(|component| !matches!(component, "" | "." | "..")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_paths_with_one_spelling_are_accepted() {
        let longest = format!("/{}", "a".repeat(LONGEST - 1));
        for good in ["/", "/a", "/a/b c", "/...", "/a/..b", "/ü", &longest] {
            assert_eq!(good.parse::<GuestPath>().unwrap().as_str(), good);
            assert_eq!(good.parse::<HostPath>().unwrap().as_str(), good);
        }
        let longer = format!("{longest}a");
        for bad in [
            "", "a", "./a", "//", "/a/", "/a//b", "/./a", "/a/..", "/..", "/a\0b", "/a\n",
            "/a\u{85}", " /a", &longer,
        ] {
            assert!(bad.parse::<GuestPath>().is_err(), "{bad:?}");
            assert!(bad.parse::<HostPath>().is_err(), "{bad:?}");
        }
    }
}
