//! The controller of `BenchmarkRun`: observe → resolve → render → apply → report.

use std::sync::Arc;

use futures::future::BoxFuture;
use kube::runtime::controller::Action;
use tunedweb_api::BenchmarkRun;

use crate::cluster::Guarded;
use crate::context::Context;
use crate::objects::WriteError;
use crate::runner::Visit;

/// Why a visit failed, by step.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("report")]
    Report(#[source] WriteError),
}

/// One visit.
pub(crate) fn reconcile(
    _object: Arc<Guarded<BenchmarkRun>>,
    _context: Arc<Context>,
) -> BoxFuture<'static, Visit<Error>> {
    Box::pin(async move { Ok(Action::await_change()) })
}
