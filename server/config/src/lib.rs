//! Settings of the server: what a user may write, what is checked, and why.
//!
//! Pure: no I/O, no clock, no environment.
//!
//! [`Settings`] is what stands in the settings file; [`ServerSettings`] is the part of it that
//! `TunedWebServer.spec.server` carries too, word for word. [`Config`] is the same once checked: the
//! server takes nothing else. [`TuningReport`] is what the server answers on `/tuning`: what was
//! asked for and what the kernel gave.

mod config;
mod etag;
mod fields;
mod nearest;
mod parse;
mod problem;
mod settings;
mod tuning_report;

pub use config::{Config, FileCacheConfig, KeepAliveConfig, TimeoutConfig};
pub use etag::{content_etag, digest_etag};
pub use problem::{Problem, Problems};
pub use settings::{
    KeepAlive, Listener, OpenFileCache, ServerSettings, Settings, Timeouts, Ulimits,
};
pub use tuning_report::{
    BacklogReport, ConnectionsReport, NofileReport, Shortfall, TuningReport, WorkersReport,
    WorkersSource,
};
