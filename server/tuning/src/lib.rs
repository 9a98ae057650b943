//! What may be tuned on a node, what it means, and how wishes become a plan.
//!
//! Pure: no I/O, no clock, no environment. The package `tunedweb-tuner` carries plans out.
//!
//! - [`catalogue`] knows each key; what it does not know is refused.
//! - [`check_sysctls`] turns what a user wrote into [`CheckedTuning`], or into every problem at once.
//! - [`classify`] decides which way a key goes onto a node.
//! - [`merge`](merge()) makes one value of the wishes of several owners.
//! - A [`Plan`] carries wishes to a node, [`ApplyReport`] and [`KeyReport`] bring back what became of
//!   them.

pub mod catalogue;

mod check;
mod class;
mod merge;
mod plan;
mod report;
mod setting;
mod value;

pub use check::{CheckedSysctl, CheckedTuning, Problem, check_sysctls};
pub use class::{Class, KUBERNETES_MINOR_MIN, classify};
pub use merge::{Conflict, Merged, Wish, merge};
pub use plan::{
    CheckedPlan, Owner, PLAN_BYTES_MAX, PLAN_VERSION, ParsePlanError, Plan, PlanContext,
};
pub use report::{
    ApplyReport, KeyReport, KeyState, NodeFacts, Outcome, TERMINATION_MESSAGE_BYTES_MAX,
};
pub use setting::{SysctlSetting, UlimitName, UlimitSetting};
pub use value::{PortSet, Value};
