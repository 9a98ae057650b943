//! The result, for people and for programs.

use std::fmt::Write as _;
use std::io::{self, Write};

use tunedweb_measure::{Histogram, LoadSummary, PodSummary, encode_log_lines, per_second};

use crate::duration::microseconds;
use crate::limits::PortRange;
use crate::measurement::{Measurement, Progress};
use crate::plan::Plan;
use crate::url::Url;
use crate::worker::Examples;

/// A port stays in TIME_WAIT for so long (TCP_TIMEWAIT_LEN of Linux).
const TIME_WAIT_SECONDS: u32 = 60;

/// One line about the second that is over. `former`: requests before it.
pub(crate) fn progress(now: &Progress, former: u64) -> String {
    format!(
        "{:>4} s  {:>10} requests/s  {:>8} errors  {:>7} connections",
        now.elapsed.as_secs(),
        grouped(now.requests.saturating_sub(former)),
        grouped(now.errors),
        grouped(now.connections),
    )
}

/// The result for people.
pub(crate) struct Report<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) url: &'a Url,
    pub(crate) measurement: &'a Measurement,
    pub(crate) summary: &'a LoadSummary,
    pub(crate) ports: Option<PortRange>,
}

impl Report<'_> {
    pub(crate) fn table(&self) -> String {
        let counts = &self.measurement.counts;
        let early = self.measurement.ended_early;
        let stopped = early.then(|| "stopped by a signal before the end".to_owned());
        let rows = [
            Some(("load", self.load())),
            Some(("requests", self.requests())),
            Some(("bytes", self.bytes())),
            Some(("response", self.response())),
            Some(("opened", self.opened())),
            Some(("errors", errors(self.summary, &counts.examples))),
            Some(("own CPU", self.cpu())),
            stopped.map(|note| ("note", note)),
            port_note(counts.closed_first, self.ports).map(|note| ("note", note)),
        ];
        let lines = rows.iter().flatten();
        lines.fold(String::new(), |mut text, (name, value)| {
            let _ = writeln!(text, "{name:<9} {value}");
            text
        })
    }

    fn load(&self) -> String {
        let Self { plan, url, .. } = self;
        let kept = if plan.short {
            "a new one for each request"
        } else {
            "kept"
        };
        format!(
            "http://{}{} at {}, {} connections on {} threads, {kept}",
            url.authority, url.path, plan.address, plan.connections, plan.threads,
        )
    }

    fn requests(&self) -> String {
        format!(
            "{} in {:.3} s, {} a second",
            grouped(self.summary.requests),
            self.measurement.duration.as_secs_f64(),
            grouped(self.summary.requests_per_second),
        )
    }

    fn bytes(&self) -> String {
        format!(
            "{}, {} a second",
            grouped(self.summary.bytes),
            grouped(self.summary.bytes_per_second),
        )
    }

    fn response(&self) -> String {
        format!(
            "p50 {}, p90 {}, p99 {}, p99.9 {}, max {}, mean {} µs",
            grouped(self.summary.p50_microseconds),
            grouped(self.summary.p90_microseconds),
            grouped(self.summary.p99_microseconds),
            grouped(self.summary.p999_microseconds),
            grouped(self.summary.max_microseconds),
            grouped(self.summary.mean_microseconds),
        )
    }

    fn opened(&self) -> String {
        format!("{} connections", grouped(self.summary.connections_opened))
    }

    /// A generator that uses a whole CPU for each of its threads is what it measures.
    fn cpu(&self) -> String {
        let cpu = microseconds(self.measurement.cpu);
        let length = microseconds(self.measurement.duration).max(1);
        let percent = u128::from(cpu) * 100 / u128::from(length);
        format!(
            "{percent} % of {} %, {} requests a CPU second",
            u32::from(self.plan.threads) * 100,
            grouped(per_second(self.summary.requests, cpu)),
        )
    }
}

/// The result for programs: JSON in one line, then the histogram.
pub(crate) fn write(
    mut out: impl Write,
    json: Option<&str>,
    pod: &PodSummary,
    histogram: Option<&Histogram>,
) -> io::Result<()> {
    if let Some(json) = json {
        writeln!(out, "{json}")?;
    }
    if let Some(histogram) = histogram {
        for line in encode_log_lines(&pod.run, pod.index, histogram) {
            writeln!(out, "{line}")?;
        }
    }
    out.flush()
}

/// The kinds that occurred, each with the first cause where it has several.
fn errors(summary: &LoadSummary, examples: &Examples) -> String {
    let errors = &summary.errors;
    let status = examples.status.map(|status| status.to_string());
    let kinds = [
        (
            "connect",
            errors.connect,
            examples.connect.map(|errno| errno.to_string()),
        ),
        ("closed", errors.closed, None),
        ("timeout", errors.timeout, None),
        (
            "protocol",
            errors.protocol,
            examples.protocol.map(|reason| reason.to_string()),
        ),
        ("status", errors.status, status),
    ];
    let mut text = grouped(errors.total());
    for (kind, count, example) in kinds {
        if count > 0 {
            let example = example.map_or(String::new(), |cause| format!(" (first: {cause})"));
            let _ = write!(text, ", {kind} {}{example}", grouped(count));
        }
    }
    text
}

/// Said when this side had to close connections first: their ports are not free for a minute.
fn port_note(closed_first: u64, ports: Option<PortRange>) -> Option<String> {
    if closed_first == 0 {
        return None;
    }
    let ports = ports?.ports();
    Some(format!(
        "the server left {} connections for this side to close; each keeps its port for \
         {TIME_WAIT_SECONDS} s, and {ports} ports last for {} connections a second",
        grouped(closed_first),
        ports / TIME_WAIT_SECONDS,
    ))
}

/// 1234567 as 1,234,567.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<&str> = digits
        .as_bytes()
        .rchunks(3)
        .rev()
        .filter_map(|group| str::from_utf8(group).ok())
        .collect();
    groups.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_grouped_by_three() {
        for (number, text) in [(0, "0"), (999, "999"), (1_000, "1,000")] {
            assert_eq!(grouped(number), text);
        }
        assert_eq!(grouped(u64::MAX), "18,446,744,073,709,551,615");
    }
}
