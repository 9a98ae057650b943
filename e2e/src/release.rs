//! The chart in the cluster, as `e2e/lib/release.sh` installs it.

use crate::command::{self, RunError};

/// Name of the Helm release.
pub const NAME: &str = "tunedweb";
/// Namespace of the operator.
pub const NAMESPACE: &str = "tunedweb-system";
/// Environment variable: file with the chart's values that name the images built here.
pub const VALUES_VARIABLE: &str = "TUNEDWEB_VALUES";

const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../charts/tunedweb");

/// Installs or upgrades the chart and waits for operator and agents.
pub async fn install() -> Result<String, RunError> {
    let values = std::env::var(VALUES_VARIABLE).unwrap_or_default();
    let place = [
        "--namespace",
        NAMESPACE,
        "--create-namespace",
        "--wait",
        "--timeout",
        "3m",
    ];
    let release = ["upgrade", "--install", NAME, CHART, "--values", &values];
    command::run("helm", &[&release[..], &place].concat()).await
}

/// Uninstalls the chart, as a user would, and waits until what it installed is gone.
pub async fn uninstall() -> Result<String, RunError> {
    command::run(
        "helm",
        &[
            "uninstall",
            NAME,
            "--namespace",
            NAMESPACE,
            "--wait",
            "--timeout",
            "3m",
        ],
    )
    .await
}
