//! What the server answers on `/tuning`: what was asked for and what the kernel gave.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::settings::Settings;

/// The answer of `GET /tuning` (JSON).
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TuningReport {
    /// Format of this report: 1.
    pub version: u32,
    /// Version of the server.
    pub server_version: String,
    /// Address that requests are answered on, with the port that the kernel gave.
    pub listen: SocketAddr,
    /// Worker threads.
    pub workers: WorkersReport,
    /// Open files (`RLIMIT_NOFILE`).
    pub nofile: NofileReport,
    /// Accept queue of each listener.
    pub backlog: BacklogReport,
    /// Open connections of one worker.
    pub max_connections_per_worker: ConnectionsReport,
    /// Wishes that were not met, each with what would meet it; empty: all were.
    #[serde(default)]
    pub shortfalls: Vec<Shortfall>,
    /// The settings, defaults filled in.
    pub settings: Settings,
}

/// Worker threads.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkersReport {
    /// As set; none: left to the server.
    #[serde(default)]
    pub asked: Option<u16>,
    /// Threads that run.
    pub running: u16,
    /// What decided the number.
    pub source: WorkersSource,
    /// CPUs in the affinity mask.
    pub affinity_cpus: u32,
    /// CPU time that the cgroups permit, in thousandths of a CPU; none: no quota.
    #[serde(default)]
    pub quota_millicpus: Option<u64>,
}

/// What decided the number of workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub enum WorkersSource {
    /// The setting `server.workers`.
    Settings,
    /// The affinity mask (`sched_getaffinity(2)`).
    AffinityMask,
    /// The CPU quota of a cgroup.
    CgroupQuota,
}

/// Open files: the soft and hard limit before and after the server asked.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NofileReport {
    /// As set; none: the hard limit.
    #[serde(default)]
    pub asked: Option<u64>,
    /// Soft limit at start.
    pub soft_found: u64,
    /// Hard limit at start.
    pub hard_found: u64,
    /// Soft limit read back after it was set.
    pub soft: u64,
    /// Hard limit read back.
    pub hard: u64,
}

/// Accept queue: `listen(2)` cuts silently, so the kernel's own figure is read back.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BacklogReport {
    /// As set.
    pub asked: u32,
    /// `net.core.somaxconn` of the network namespace; none: could not be read.
    #[serde(default)]
    pub somaxconn: Option<u32>,
    /// Length that the kernel reports for the listeners.
    pub effective: u32,
}

/// Open connections of one worker.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ConnectionsReport {
    /// As set.
    pub asked: u32,
    /// What the open-file limit leaves room for.
    pub effective: u32,
}

/// One wish that was not met.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Shortfall {
    /// Path of the setting, such as `ulimits.nofile`.
    pub setting: String,
    /// What was asked for.
    pub asked: u64,
    /// What was reached.
    pub reached: u64,
    /// What would meet the wish.
    pub advice: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_reads_back_the_same() {
        let report = TuningReport {
            version: 1,
            server_version: "0.1.0".to_owned(),
            listen: SocketAddr::from(([127, 0, 0, 1], 8080)),
            workers: WorkersReport {
                asked: None,
                running: 2,
                source: WorkersSource::CgroupQuota,
                affinity_cpus: 8,
                quota_millicpus: Some(1_500),
            },
            nofile: NofileReport {
                asked: Some(65_536),
                soft_found: 1_024,
                hard_found: 20_000,
                soft: 20_000,
                hard: 20_000,
            },
            backlog: BacklogReport {
                asked: 65_535,
                somaxconn: Some(4_096),
                effective: 4_096,
            },
            max_connections_per_worker: ConnectionsReport {
                asked: 65_536,
                effective: 9_000,
            },
            shortfalls: vec![Shortfall {
                setting: "ulimits.nofile".to_owned(),
                asked: 65_536,
                reached: 20_000,
                advice: "raise the hard limit".to_owned(),
            }],
            settings: Settings::parse("root = '/srv'").unwrap(),
        };
        let text = serde_json::to_string(&report).unwrap();
        assert_eq!(serde_json::from_str::<TuningReport>(&text).unwrap(), report);
    }
}
