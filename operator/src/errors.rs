//! Errors for people.

use std::error::Error;

/// An error with what led to it, in a line.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::{RequestError, WriteError};

    #[test]
    fn each_level_is_told_once() {
        let error = WriteError::Request {
            verb: "apply",
            kind: "Service".to_owned(),
            name: "site".to_owned(),
            source: RequestError::Refused {
                code: 403,
                message: "no quota left".to_owned(),
            },
        };
        assert_eq!(
            chain(&error),
            "apply Service site: no quota left (status 403)"
        );
    }
}
