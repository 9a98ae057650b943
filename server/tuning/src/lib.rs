//! What may be tuned on a node, what it means, and how wishes become a plan.
//!
//! Pure: no I/O, no clock, no environment. The package `tunedweb-tuner` carries plans out.

mod plan;
mod report;
mod setting;

pub use plan::{Owner, Plan, PlanContext};
pub use report::{ApplyReport, KeyReport, KeyState, NodeFacts, Outcome};
pub use setting::{SysctlSetting, UlimitName, UlimitSetting};
