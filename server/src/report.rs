//! What was asked for and what was reached: for `/tuning`, and for people at the start.

use std::io;
use std::net::TcpListener;

use tunedweb_config::{
    BacklogReport, Config, ConnectionsReport, NofileReport, Shortfall, TuningReport, WorkersReport,
    WorkersSource,
};

use crate::sys::accept_queue;

/// What the start of the server reached.
#[derive(Debug)]
pub(crate) struct Reached {
    pub(crate) workers: WorkersReport,
    pub(crate) nofile: NofileReport,
    pub(crate) connections_max: u32,
}

/// Holds what was reached against `config`.
pub(crate) fn tuning_report(
    config: &Config,
    listeners: &[TcpListener],
    reached: Reached,
) -> io::Result<TuningReport> {
    let first = listeners.first().ok_or(io::ErrorKind::NotFound)?;
    let Reached {
        workers,
        nofile,
        connections_max,
    } = reached;
    let backlog = BacklogReport {
        asked: config.backlog,
        somaxconn: somaxconn(),
        effective: accept_queue(first)?.length_max,
    };
    let connections = ConnectionsReport {
        asked: config.connections_max,
        effective: connections_max,
    };
    Ok(TuningReport {
        version: 1,
        server_version: env!("CARGO_PKG_VERSION").to_owned(),
        listen: first.local_addr()?,
        shortfalls: shortfalls(&nofile, &backlog, &connections),
        workers,
        nofile,
        backlog,
        max_connections_per_worker: connections,
        settings: config.settings.clone(),
    })
}

/// The report as lines, each of what was asked for and what was reached.
pub(crate) fn lines(report: &TuningReport) -> Vec<String> {
    let TuningReport {
        workers,
        nofile,
        backlog,
        max_connections_per_worker,
        ..
    } = report;
    let source = match workers.source {
        WorkersSource::Settings => "as set".to_owned(),
        WorkersSource::AffinityMask => format!("{} CPUs may be used", workers.affinity_cpus),
        WorkersSource::CgroupQuota => format!(
            "the cgroup permits {} thousandths of a CPU",
            workers.quota_millicpus.unwrap_or_default()
        ),
    };
    let mut lines = vec![
        format!(
            "workers: asked {}, running {} ({source})",
            asked(workers.asked),
            workers.running
        ),
        format!(
            "open files: asked {}, soft limit {} (was {}), hard limit {}",
            asked(nofile.asked),
            nofile.soft,
            nofile.soft_found,
            nofile.hard
        ),
        format!(
            "accept queue: asked {}, effective {} (net.core.somaxconn {})",
            backlog.asked,
            backlog.effective,
            backlog
                .somaxconn
                .map_or_else(|| "not readable".to_owned(), |value| value.to_string())
        ),
        format!(
            "connections of a worker: asked {}, permitted {}",
            max_connections_per_worker.asked, max_connections_per_worker.effective
        ),
    ];
    lines.extend(report.shortfalls.iter().map(|shortfall| {
        let Shortfall {
            setting,
            asked,
            reached,
            advice,
        } = shortfall;
        format!("short of {setting}: asked {asked}, reached {reached}; {advice}")
    }));
    lines
}

fn asked<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(
        || "as many as permitted".to_owned(),
        |value| value.to_string(),
    )
}

/// The bound of every accept queue in this network namespace (listen(2)).
fn somaxconn() -> Option<u32> {
    std::fs::read_to_string("/proc/sys/net/core/somaxconn")
        .ok()?
        .trim()
        .parse()
        .ok()
}

fn shortfalls(
    nofile: &NofileReport,
    backlog: &BacklogReport,
    connections: &ConnectionsReport,
) -> Vec<Shortfall> {
    let mut found = Vec::new();
    let mut add = |setting: &str, asked: u64, reached: u64, advice: String| {
        if reached < asked {
            found.push(Shortfall {
                setting: setting.to_owned(),
                asked,
                reached,
                advice,
            });
        }
    };
    if let Some(asked) = nofile.asked {
        let advice = format!(
            "the hard limit is {}; raise it for the process (container runtime, systemd LimitNOFILE, \
             ulimit -Hn), or have CAP_SYS_RESOURCE raise it",
            nofile.hard
        );
        add("ulimits.nofile", asked, nofile.soft, advice);
    }
    let advice = format!(
        "the kernel cuts every queue to net.core.somaxconn; set it to {} before the server starts",
        backlog.asked
    );
    add(
        "server.listener.backlog",
        backlog.asked.into(),
        backlog.effective.into(),
        advice,
    );
    let advice = "each connection takes an open file; raise ulimits.nofile, or ask for fewer";
    let (asked, reached) = (connections.asked.into(), connections.effective.into());
    add(
        "server.maxConnectionsPerWorker",
        asked,
        reached,
        advice.to_owned(),
    );
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wish_that_was_not_met_says_what_would_meet_it() {
        let nofile = NofileReport {
            asked: Some(65_536),
            soft_found: 1_024,
            hard_found: 20_000,
            soft: 20_000,
            hard: 20_000,
        };
        let backlog = BacklogReport {
            asked: 65_535,
            somaxconn: Some(4_096),
            effective: 4_096,
        };
        let connections = ConnectionsReport {
            asked: 100,
            effective: 100,
        };
        let found = shortfalls(&nofile, &backlog, &connections);
        let settings: Vec<&str> = found.iter().map(|s| s.setting.as_str()).collect();
        assert_eq!(settings, ["ulimits.nofile", "server.listener.backlog"]);
        assert!(found[0].advice.contains("hard limit is 20000"));
        assert!(found[1].advice.contains("net.core.somaxconn"));
    }
}
