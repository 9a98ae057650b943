//! What a load run is asked to do, what it answers, and what may be concluded from it.
//!
//! Pure: no I/O, no clock, no environment.

mod load;
mod result;

pub use load::{ConnectionReuse, Load, LoadMode, Objectives};
pub use result::{
    Errors, LoadSummary, Objective, PodSummary, Validity, ValidityReason, ValidityState, Verdict,
    VerdictState,
};
