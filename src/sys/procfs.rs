//! Reads small files of the kernel's in few calls: they report no size, and return a page at a time (seq_file in the
//! kernel).

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// The size of one read(2). More than a page, so that everything ready fits.
const AT_ONCE: usize = 16 * 1024;

/// The whole file.
pub fn bytes(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let mut all = vec![0; AT_ONCE];
    let mut filled = 0;
    loop {
        if all.len() - filled < AT_ONCE / 2 {
            all.resize(all.len() * 2, 0);
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
        }
        std::fs::write(&path, [0xff]).unwrap();
        assert!(text(&path).is_err());
        std::fs::remove_file(&path).unwrap();
        assert!(text("/proc/self/mountinfo").unwrap().contains(" / "));
    }
}
