//! The result, for people and for programs.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::time::Duration;

use tunedweb_measure::{Histogram, PodSummary, encode_log_lines, per_second};

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
pub(crate) fn table(
    plan: &Plan,
    url: &Url,
    measurement: &Measurement,
    pod: &PodSummary,
    ports: Option<PortRange>,
) -> String {
    let summary = &pod.summary;
    let cpu = microseconds(measurement.cpu);
    let mut rows = vec![
        (
            "load",
            format!(
                "http://{}{} at {}, {} connections on {} threads, {}",
                url.authority,
                url.path,
                plan.address,
                plan.connections,
                plan.threads,
                if plan.short {
                    "a new one for each request"
                } else {
                    "kept"
                },
            ),
        ),
        (
            "requests",
            format!(
                "{} in {:.3} s, {} a second",
                grouped(summary.requests),
                measurement.duration.as_secs_f64(),
                grouped(summary.requests_per_second),
            ),
        ),
        (
            "bytes",
            format!(
                "{}, {} a second",
                grouped(summary.bytes),
                grouped(summary.bytes_per_second)
            ),
        ),
        (
            "response",
            format!(
                "p50 {}, p90 {}, p99 {}, p99.9 {}, max {}, mean {} µs",
                grouped(summary.p50_microseconds),
                grouped(summary.p90_microseconds),
                grouped(summary.p99_microseconds),
                grouped(summary.p999_microseconds),
                grouped(summary.max_microseconds),
                grouped(summary.mean_microseconds),
            ),
        ),
        (
            "opened",
            format!("{} connections", grouped(summary.connections_opened)),
        ),
        ("errors", errors(pod, &measurement.counts.examples)),
        (
            "own CPU",
            format!(
                "{:.2} of {} threads, {} requests a CPU second",
                measurement.cpu.as_secs_f64() / measurement.duration.as_secs_f64().max(1e-9),
                plan.threads,
                grouped(per_second(summary.requests, cpu)),
            ),
        ),
    ];
    if pod.ended_early {
        rows.push(("note", "stopped by a signal before the end".to_owned()));
    }
    rows.extend(port_note(measurement.counts.closed_first, ports).map(|note| ("note", note)));
    rows.iter().fold(String::new(), |mut text, (name, value)| {
        let _ = writeln!(text, "{name:<9} {value}");
        text
    })
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
fn errors(pod: &PodSummary, examples: &Examples) -> String {
    let errors = &pod.summary.errors;
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

fn microseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
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
