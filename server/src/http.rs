//! HTTP/1.1 on the wire (RFC 9110, RFC 9112): pure functions from bytes to decisions.
//!
//! Framing is strict: what two parsers might read in two ways is refused, since a proxy in front
//! may read it the other way.

pub(crate) mod condition;
pub(crate) mod discard;
pub(crate) mod facts;
pub(crate) mod head;
pub(crate) mod host;
pub(crate) mod status;
pub(crate) mod target;
