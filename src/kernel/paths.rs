//! PURE. A quick answer about two paths, for lists in which most entries have nothing to do with a path.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Whether a byte belongs to a component for certain. Others may be dropped by `Path`: `a//b`, `a/./b`.
pub fn is_of_component(byte: u8) -> bool {
    byte != b'/' && byte != b'.'
}

/// Whether a path is certainly not another one, nor below it: the first byte in which they differ belongs to a component
/// of each, and both components begin at the same place. `false` tells nothing.
pub fn is_outside(path: &Path, other: &Path) -> bool {
    let (path, other) = (path.as_os_str().as_bytes(), other.as_os_str().as_bytes());
    let first = path.iter().zip(other).find(|(one, two)| one != two);
    first.is_some_and(|(one, two)| is_of_component(*one) && is_of_component(*two))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_is_called_outside_is() {
        let some = ["", ".", "..", "a", "b", ".a", "a.", ".b.", "ab"];
        let mut paths: Vec<String> = Vec::new();
        for base in some {
            for next in some {
                for slash in ["/", "//", "/./"] {
                    let path = format!("{base}{slash}{next}");
                    paths.extend([format!("/{path}"), format!("{path}/"), path]);
                }
            }
        }
        for one in paths.iter().map(Path::new) {
            for other in paths.iter().map(Path::new) {
                let outside = is_outside(one, other);
                assert!(!(outside && one.starts_with(other)), "{one:?} {other:?}");
            }
        }
        assert!(is_outside(Path::new("/var/lib/a"), Path::new("/var/lib/b")));
        assert!(!is_outside(Path::new("/var"), Path::new("/var/lib")));
    }
}
