//! madvise(2).
#![expect(unsafe_code, reason = "raw system calls; every block states its proof")]

use std::io;

/// The mappings of this program's code: executable, unwritable, file-backed.
#[derive(Debug, Clone)]
pub struct Code(Vec<(usize, usize)>);

impl Code {
    /// Reads them from /proc/self/maps.
    pub fn find() -> io::Result<Self> {
        let maps = std::fs::read_to_string("/proc/self/maps")?;
        Ok(Self(maps.lines().filter_map(code_mapping).collect()))
    }

    /// Gives back its pages in memory; they return from the page cache when they run.
    ///
    /// Otherwise a process that starts once and then mostly sleeps keeps everything that its start touched. Only code
    /// is released: relocated or written data would be lost (MADV_DONTNEED, madvise(2)).
    pub fn release(&self) -> io::Result<()> {
        for (start, end) in &self.0 {
            // SAFETY: a mapping of this process as the kernel told, which this program never unmaps or changes: private, never
            // written (`r-xp`) and backed by a file, so that every page is read again, unchanged, when it is next touched.
            let rc = unsafe {
                libc::madvise(
                    *start as *mut libc::c_void,
                    end - start,
                    libc::MADV_DONTNEED,
                )
            };
            if rc != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(())
    }
}

/// The bounds of a line of /proc/self/maps, if it maps the code of a file (proc_pid_maps(5)).
fn code_mapping(line: &str) -> Option<(usize, usize)> {
    let mut fields = line.split_ascii_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let is_code = fields.next()? == "r-xp";
    let is_file = fields.nth(3)?.starts_with('/');
    let bounds = (
        usize::from_str_radix(start, 16).ok()?,
        usize::from_str_radix(end, 16).ok()?,
    );
    (is_code && is_file).then_some(bounds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_code_of_files_is_released() {
        let code = "7f0000001000-7f0000003000 r-xp 00001000 fe:00 1234 /usr/bin/agentbox";
        assert_eq!(
            code_mapping(code),
            Some((0x7f00_0000_1000, 0x7f00_0000_3000))
        );
        for other in [
            "7f0000001000-7f0000003000 r--p 00001000 fe:00 1234 /usr/bin/agentbox",
            "7f0000001000-7f0000003000 rw-p 00001000 fe:00 1234 /usr/bin/agentbox",
            "7ffd00000000-7ffd00002000 r-xp 00000000 00:00 0 [vdso]",
            "7f0000001000-7f0000003000 rwxp 00000000 00:00 0",
        ] {
            assert_eq!(code_mapping(other), None, "{other}");
        }
    }

    #[test]
    fn a_program_runs_on_after_its_code_was_released() {
        let code = Code::find().unwrap();
        assert!(!code.0.is_empty());
        code.release().unwrap();
        assert_eq!(code_mapping("nonsense"), None);
    }
}
