//! What a load run is asked to do, what it answers, and what may be concluded from it.
//!
//! Pure: no I/O, no clock, no environment.
//!
//! A load pod counts into a [`Histogram`] and a [`PodSummary`]. The summary leaves it as termination
//! message, the histogram as log lines ([`encode_log_lines`]). Whoever reads them puts each pod
//! together ([`PodReport::read`]), merges all of them ([`PodReport::merge`]; percentiles come from the
//! merged histogram, never from an average), asks whether the result can be trusted ([`validity`])
//! and whether it is what was wanted ([`verdict`]).

mod histogram;
mod load;
mod report;
mod result;
pub mod statistics;
mod validity;
mod verdict;

pub use histogram::{
    Histogram, LogLinesError, MICROSECONDS_MAX, decode_log_lines, encode_log_lines,
};
pub use load::{ConnectionReuse, Load, LoadMode, Objectives};
pub use report::{PodReport, ReportError, TERMINATION_MESSAGE_BYTES_MAX};
pub use result::{
    Errors, LoadSummary, Objective, PodSummary, Validity, ValidityReason, ValidityState, Verdict,
    VerdictState, per_second,
};
pub use validity::{ValidityInputs, validity};
pub use verdict::verdict;
