//! PURE. Lists of users: passwd(5), read as the C library reads them.

/// A user's line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PasswdLine<'a> {
    /// Login name.
    pub name: &'a str,
    /// User id.
    pub uid: u32,
    /// Primary group.
    pub gid: u32,
    /// Home directory; may be empty.
    pub home: &'a str,
    /// Login shell; may be empty.
    pub shell: &'a str,
}

/// The lines with numbers in the id fields. The fields after those may be missing, and a colon can be part of the
/// shell, as in glibc.
pub fn lines(text: &str) -> impl Iterator<Item = PasswdLine<'_>> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| {
        let mut fields = line.splitn(7, ':');
        let (name, _password) = (fields.next()?, fields.next()?);
        Some(PasswdLine {
            name,
            uid: fields.next()?.parse().ok()?,
            gid: fields.next()?.parse().ok()?,
            home: fields.nth(1).unwrap_or_default(),
            shell: fields.next().unwrap_or_default(),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_needs_numbers_but_no_shell() {
        let text = "root:x:0:0:root:/root:/bin/bash\nbroken\n+::::::\nname:x:me:1::/:\n#no:x:1:1::/:\nme:x:1000:1001:Me,,:/home/me\n\
                    bare:x:7:8\n";
        let found: Vec<_> = lines(text).collect();
        let names: Vec<_> = found.iter().map(|line| line.name).collect();
        assert_eq!(names, ["root", "me", "bare"]);
        assert_eq!((found[2].gid, found[2].home), (8, ""));
        assert_eq!((found[0].uid, found[0].shell), (0, "/bin/bash"));
        let me = found[1];
        assert_eq!(
            (me.uid, me.gid, me.home, me.shell),
            (1000, 1001, "/home/me", "")
        );
    }
}
