//! One thing that is wrong with what was asked for.

use std::fmt;

use serde::Serialize;

/// Something that is wrong with what was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    /// Where it stands, such as `spec.tuning.sysctls[net.core.somaxconn].value`.
    pub field: String,
    /// What stands there.
    pub value: String,
    /// What may stand there.
    pub permitted: String,
    /// Why it is refused.
    pub reason: String,
    /// What to use; empty where there is nothing to say.
    pub instead: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is {:?}: {}", self.field, self.value, self.reason)?;
        if !self.permitted.is_empty() {
            write!(f, "; permitted: {}", self.permitted)?;
        }
        if !self.instead.is_empty() {
            write!(f, "; use instead: {}", self.instead)?;
        }
        Ok(())
    }
}
