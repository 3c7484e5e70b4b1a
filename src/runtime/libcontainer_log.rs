//! PURE. The only reader of libcontainer's log lines. Its errors keep the errno and lose the step; its log has both, as
//! text.

/// The beginning of a failed chdir(2)'s line, before and after the change of user.
const CHDIR: &str = "failed to chdir";

/// Why libcontainer could not enter the working directory, in runc's words, if this line reports that.
pub(super) fn chdir_fault(line: &str) -> Option<String> {
    let fields = line.strip_prefix(CHDIR)?;
    let errno = fields
        .split(' ')
        .find_map(|field| field.strip_prefix("e=").or(field.strip_prefix("err=")));
    let words = errno.and_then(in_words);
    Some(words.map_or_else(|| line.to_owned(), str::to_owned))
}

/// The C library's words in lower case, which engines know from runc.
fn in_words(errno: &str) -> Option<&'static str> {
    match errno {
        "ENOENT" => Some("no such file or directory"),
        "EACCES" => Some("permission denied"),
        "EPERM" => Some("operation not permitted"),
        "ENOTDIR" => Some("not a directory"),
        "ELOOP" => Some("too many levels of symbolic links"),
        "ENAMETOOLONG" => Some("file name too long"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines are those of src/process/init/process.rs in libcontainer 0.7.0. Another version may write others:
    /// compare them, then change the number here.
    #[test]
    fn reads_the_lines_of_the_version_that_is_built_in() {
        let lock = include_str!("../../Cargo.lock");
        assert!(lock.contains("name = \"libcontainer\"\nversion = \"0.7.0\"\n"));
        for (line, why) in [
            ("failed to chdir e=ENOENT", "no such file or directory"),
            (
                "failed to chdir to cwd err=EACCES cwd=\"/ENOENT\"",
                "permission denied",
            ),
            ("failed to chdir e=EIO", "failed to chdir e=EIO"),
        ] {
            assert_eq!(chdir_fault(line).as_deref(), Some(why), "{line}");
        }
        assert_eq!(chdir_fault("failed to set capabilities e=EPERM"), None);
    }
}
