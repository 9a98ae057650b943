//! What is wrong with a setting, in words that tell what to do.

use std::fmt;

/// One setting that cannot be used as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where: `server.listener.backlog`, or `line 3, column 5` where the file is not TOML.
    pub path: String,
    /// What was written there.
    pub found: String,
    /// What is permitted there.
    pub permitted: String,
    /// What to do about it.
    pub advice: String,
}

impl Problem {
    pub(crate) fn new(
        path: impl Into<String>,
        found: impl Into<String>,
        permitted: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self {
            path: path.into(),
            found: found.into(),
            permitted: permitted.into(),
            advice: advice.into(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            path,
            found,
            permitted,
            advice,
        } = self;
        write!(
            out,
            "{path}: found {found}, permitted: {permitted}; {advice}"
        )
    }
}

/// Every problem of one settings file, in the order of the settings.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Problems(pub Vec<Problem>);

impl fmt::Display for Problems {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        out.write_str(&lines.join("\n"))
    }
}
