//! What was read of a file in the node's directory of policies or of presets.

/// The text of a file, or why it could not be read: an error only for those who choose that file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileText {
    /// Its text.
    Readable(String),
    /// Why there is none.
    Unreadable(String),
}

impl From<Result<String, String>> for FileText {
    fn from(read: Result<String, String>) -> Self {
        match read {
            Ok(text) => Self::Readable(text),
            Err(why) => Self::Unreadable(why),
        }
    }
}
