//! Small files, read in as few calls as it takes. The kernel's have no size to be asked for, and hand out a page at a time
//! (seq_file in the kernel). std begins with 32 bytes where it knows no size.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use rustix::fs::{Mode, OFlags};

/// The size of one read(2). More than a page, so that everything ready fits.
const AT_ONCE: usize = 16 * 1024;

/// The whole file.
pub fn bytes(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    at_most(File::open(path)?, u64::MAX)
}

/// Opens a regular file, and nothing else: a pipe would block, and a device has no end.
pub fn open_regular(path: &Path) -> io::Result<Option<File>> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    let is_file = file.metadata()?.is_file();
    Ok(is_file.then_some(file))
}

/// The first `most` bytes of a file, or all of it.
pub fn at_most(mut file: impl Read, most: u64) -> io::Result<Vec<u8>> {
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let mut all = vec![0; AT_ONCE.min(most)];
    let mut filled = 0;
    while filled < most {
        if all.len() - filled < AT_ONCE / 2 {
            all.resize((all.len() * 2).min(most), 0);
        }
        match file.read(&mut all[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    all.truncate(filled);
    Ok(all)
}

/// The whole file, as text.
pub fn text(path: impl AsRef<Path>) -> io::Result<String> {
    String::from_utf8(bytes(path)?)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// The whole file, whose bytes a process can choose: its name, or a directory's, may not be text.
pub fn lossy(path: impl AsRef<Path>) -> io::Result<String> {
    Ok(String::from_utf8_lossy(&bytes(path)?).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_whole_however_long_it_is() {
        let path = std::env::temp_dir().join(format!("agentbox-procfs-{}", std::process::id()));
        for length in [0, 1, AT_ONCE - 1, AT_ONCE, 3 * AT_ONCE + 7] {
            let content: Vec<u8> = (0..length).map(|n| (n % 251) as u8).collect();
            std::fs::write(&path, &content).unwrap();
            assert_eq!(bytes(&path).unwrap(), content, "{length}");
            for most in [0, 1, length / 2, length, length + 1] {
                let file = File::open(&path).unwrap();
                let expected = &content[..most.min(length)];
                assert_eq!(
                    at_most(&file, most as u64).unwrap(),
                    expected,
                    "{length}, {most}"
                );
            }
        }
        std::fs::write(&path, [0xff]).unwrap();
        assert!(text(&path).is_err());
        std::fs::remove_file(&path).unwrap();
        assert!(text("/proc/self/mountinfo").unwrap().contains(" / "));
    }
}
