//! What the agent is started with.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Keeps the kernel keys of one node as its NodeTuning asks, and reports what became of them.
#[derive(Clone, Debug, clap::Parser)]
#[command(name = "tunedweb-agent", version, about)]
pub struct Options {
    /// Name of this node, which is that of the NodeTuning to follow.
    #[arg(long, env = "TUNEDWEB_AGENT_NODE")]
    pub node: String,

    /// Folder below which the host's proc/sys is found.
    #[arg(long, env = "TUNEDWEB_AGENT_ROOT", default_value = "/host")]
    pub root: PathBuf,

    /// Folder of the node that holds the journal.
    #[arg(long, env = "TUNEDWEB_AGENT_JOURNAL", default_value = tunedweb_api::names::JOURNAL_DIRECTORY)]
    pub journal: PathBuf,

    /// How often the keys are compared with what is wanted, give or take a tenth: 5s to 24h.
    #[arg(
        long,
        env = "TUNEDWEB_AGENT_DRIFT_INTERVAL",
        default_value = "60s",
        value_parser = parse_interval
    )]
    pub drift_interval: Duration,

    /// Address and port of /healthz, /readyz and /metrics.
    #[arg(long, env = "TUNEDWEB_AGENT_ADMIN", default_value = "127.0.0.1:9181")]
    pub admin: SocketAddr,
}

/// A sync takes milliseconds, so that more often than every 5 s would still be cheap, but nobody
/// would notice; after a day without a look nobody would call it kept.
const INTERVAL_PERMITTED: std::ops::RangeInclusive<Duration> =
    Duration::from_secs(5)..=Duration::from_hours(24);

fn parse_interval(text: &str) -> Result<Duration, String> {
    let interval = text
        .parse::<jiff::SignedDuration>()
        .ok()
        .and_then(|interval| Duration::try_from(interval).ok());
    interval
        .filter(|interval| INTERVAL_PERMITTED.contains(interval))
        .ok_or_else(|| "permitted are 5s to 24h, such as 60s, 5m or 1h30m".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_read_with_its_unit_and_kept_within_bounds() {
        assert_eq!(parse_interval("60s"), Ok(Duration::from_mins(1)));
        assert_eq!(parse_interval("1h30m"), Ok(Duration::from_mins(90)));
        for text in ["", "60", "4s", "25h", "-60s", "soon"] {
            let problem = parse_interval(text).expect_err(text);
            assert!(problem.contains("5s to 24h"), "{problem}");
        }
    }

    #[test]
    fn the_command_line_is_well_formed() {
        use clap::CommandFactory as _;
        Options::command().debug_assert();
    }
}
