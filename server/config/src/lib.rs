//! Settings of the server: what a user may write, what is checked, and why.
//!
//! Pure: no I/O, no clock, no environment.
//! [`Settings`] is what stands in the settings file; [`ServerSettings`] is the part of it that
//! `TunedWebServer.spec.server` carries too, word for word.

mod settings;

pub use settings::{KeepAlive, Listener, OpenFileCache, ServerSettings, Settings, Timeouts, Ulimits};
