//! The journal.

/// What is wrong with the journal.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// Placeholder until the store is in.
    #[error("open the journal")]
    Open(#[source] std::io::Error),
}
